"""Each benchmark runs, in its smallest form, and what it finds is possible."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), "--tiny", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def figures(script: str, name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """What the benchmark *name* finds, by the name of the figure."""
    found = folder / "figures.json"
    done = run(script, name, f"--dir={folder}", f"--json={found}", *arguments)
    if "in memory" in done.stderr:
        pytest.skip("the folder for temporary files is in memory")
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["name"]: each for each in json.loads(found.read_text())[name]}


def values(found: dict[str, Any], unit: str) -> list[float]:
    """Of all figures of that unit; there is at least one."""
    chosen = [value for each in found.values() if each["unit"] == unit for value in each["values"]]
    assert chosen
    return chosen


def test_batches_beside_the_plain_store(tmp_path: Path) -> None:
    found = figures("store.py", "plain", tmp_path)
    assert len(found) == 10
    assert min(values(found, "keys/s")) > 0
    for processes in ("1 process", "4 processes, one file"):
        ours, plain, ratio = (
            found[f"{processes}: {each}"]["values"]
            for each in ("this store", "plain store", "ratio")
        )
        assert ratio == pytest.approx([a / b for a, b in zip(ours, plain, strict=True)])
        assert found[f"{processes}: ratio"]["at_least"] == {"1": 100, "4": 40}[processes[0]]


def test_bulk_load_and_what_the_number_of_keys_costs(tmp_path: Path) -> None:
    load = figures("store.py", "load", tmp_path)
    assert min(values(load, "keys/s")) > 0
    assert 10 < load["peak memory"]["value"] < 300
    assert 77 < load["on disk per pending key"]["value"] < 300

    kept = (tmp_path / "large.sqlite3").stat().st_ino
    size = figures("store.py", "size", tmp_path)
    assert (tmp_path / "large.sqlite3").stat().st_ino == kept
    assert min(values(size, "keys/s")) > 0
    assert size["ratio"]["value"] > 0
    assert 0 < size["the slowest of 1,000 counts()"]["value"] < 10_000


def test_a_crowd_on_one_file(tmp_path: Path) -> None:
    found = figures("store.py", "crowd", tmp_path)
    assert all(0 < each <= 1 for each in found["keys of the slowest / of the fastest"]["values"])
    assert found["errors in all"]["value"] == 0
    assert 0 < found["slowest claim of a round"]["value"] < 60


def test_one_key_at_a_time(tmp_path: Path) -> None:
    found = figures("store.py", "peers", tmp_path)
    assert {"FULL", "NORMAL"} == {name.rpartition(", ")[2] for name in found}
    assert min(values(found, "keys/s")) > 0


def test_cpu_time_of_a_crawl(tmp_path: Path) -> None:
    found = figures("crawl.py", "cpu", tmp_path)
    assert 100 < found["without the add-on"]["value"] < 1_000_000
    for variant in ("with the add-on", "with HEXSHARD_ITEMS"):
        assert found[f"{variant}: of it in the store's thread"]["value"] > 0
        assert 0.1 < found[f"{variant}: ratio"]["value"] < 10


def test_pages_per_second_of_workers(tmp_path: Path) -> None:
    found = figures("crawl.py", "workers", tmp_path)
    assert list(found) == ["1 worker", "2 workers", "4 workers"]
    assert min(values(found, "pages/s")) > 0


def test_workers_killed_half_way_and_started_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    found = figures("crash.py", "crash", tmp_path, f"--markdown={page}")
    assert list(found) == [
        "with feeds: items missing",
        "with feeds: torn lines",
        "with HEXSHARD_ITEMS: items missing",
        "with HEXSHARD_ITEMS: torn lines",
        "with HEXSHARD_ITEMS: items twice",
    ]
    assert all(each["at_most"] == each["value"] == 0 for each in found.values())
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines()]
    ends = {row[0].partition(", ")[2]: row[6:8] for row in rows if len(row) > 8}
    assert ends["with HEXSHARD_ITEMS"] == ends["with feeds"] == ["1 / 0", "finished"]


def test_a_killed_crawl_is_compared_with_what_the_shop_sells() -> None:
    compare = runpy.run_path(str(BENCHMARKS / "crash_findings.py"))["compare"]
    truth = [{"item": {"id": n, "name": f"Lamp {n}"}} for n in range(1, 6)] + [{"item": None}]
    lines = [json.dumps(each["item"]) for each in truth[:3]]
    wrong = json.dumps({"id": 4, "name": "Chair"})
    output = "\n".join([*lines, lines[2], lines[2], lines[0][:9] + lines[1], wrong, "7", ""])
    asked = [("/p/1", 503), ("/p/1", 200), ("/api/price/1", 200), ("/p/1", 200), ("/p/6", 404)]
    asked += [("/products.txt", 200), ("/products.txt", 200), ("/p/6", 404)]
    log = [{"path": path, "status": status} for path, status in asked]
    found = compare(truth, output.encode(), log)
    assert (found.missing, found.twice, found.torn, found.again) == (2, 2, 3, 2)


def test_a_page_gets_each_section_once_and_keeps_its_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Ours\n\n<!-- peers -->\nYesterday.\n<!-- end of peers -->\n\nThe end.\n")
    for _ in range(2):
        figures("store.py", "peers", tmp_path, f"--markdown={page}")
    text = page.read_text()
    assert text.startswith("# Ours\n\n<!-- peers -->\n## ")
    assert text.count("<!-- peers -->") == text.count("<!-- machine of store.py -->") == 1
    assert "Yesterday" not in text
    assert "<!-- end of peers -->\n\nThe end.\n" in text


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no such folder here")
def test_a_folder_in_memory_is_refused() -> None:
    done = run("store.py", "plain", "--dir=/dev/shm/benchmark")
    assert done.returncode == 2
    assert "in memory" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_name_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    done = run("store.py", "peer", f"--dir={tmp_path}")
    assert done.returncode == 2
    assert "no such benchmark: peer; there are plain, load, size, crowd, peers" in done.stderr
