"""What a run starts, hands to its workers, writes, and how it judges them."""

from __future__ import annotations

import json
import re

import pytest

FINISHED = ("open", "close=finished")


def test_every_shard_gets_its_numbers_and_all_other_braces_survive(launch, worker):
    feeds = '{"items-{shard}.jsonl": {"format": "jsonlines", "n": {}}}'
    run = launch(
        "--shards",
        "3",
        "--",
        *worker,
        "argv",
        "say=a b  'c'",
        "say={shards} {{shard}}",
        f"say={feeds}",
    )
    assert run.end() == 0
    for shard in range(3):
        assert f"[{shard}] a b  'c'\n[{shard}] 3 {{shard}}\n" in run.text
        assert f"[{shard}] {feeds.replace('{shard}', str(shard))}\n" in run.text


def test_a_worker_gets_its_own_proxy_and_no_other(launch, worker, tmp_path):
    environ = {
        "PROXY_URL": "http://ambient:1",
        "PROXY_URL_0": " http://zero:1 ",
        "PROXY_URL_1": "http://one:1",
        "PROXY_URL_7": "http://seven:1",
        "https_proxy": "http://ambient:1",
        "HTTP_PROXY": "http://ambient:1",
        "ALL_PROXY": "http://ambient:1",
        "NO_PROXY": "localhost",
        "MY_PROXY": "kept",
    }
    run = launch("--shards", "3", "--", *worker, f"environ={tmp_path}/{{shard}}", environ=environ)
    assert run.end() == 0
    seen = [json.loads((tmp_path / str(shard)).read_text()) for shard in range(3)]
    assert [each.get("PROXY_URL") for each in seen] == ["http://zero:1", "http://one:1", None]
    expected = {"CRAWL_SHARD", "CRAWL_SHARDS", "NO_PROXY", "MY_PROXY"}
    for shard, each in enumerate(seen):
        assert not [name for name in each if name.startswith("PROXY_URL_")]
        assert {n for n in each if "PROXY" in n.upper() or n.startswith("CRAWL")} - {
            "PROXY_URL"
        } == expected
        assert (each["CRAWL_SHARD"], each["CRAWL_SHARDS"]) == (str(shard), "3")
        assert not [name for name in each if name.startswith("HEXSHARD")]  # taken by the worker
    assert "ALL_PROXY, HTTP_PROXY, PROXY_URL, https_proxy kept from the workers" in run.text
    assert "PROXY_URL_7 not used" in run.text
    assert "Without a proxy: shard 2." in run.text


def test_a_proxy_may_come_from_a_file_or_a_template_and_is_hidden_like_any_other(
    launch, worker, tmp_path
):
    (tmp_path / "secret").write_text("http://whisperer:hush2hush@h:2\n")
    (tmp_path / "secret").chmod(0o640)
    environ = {
        "PROXY_URL_0": "http://whisperer:hush0hush@h:1",
        "PROXY_URL_FILE_2": f"{tmp_path}/secret",
        "PROXY_URL_TEMPLATE": "http://whisperer-{shard}:hush{shard}hush@h:3",
    }
    run = launch(
        *("--shards", "4", "--require-proxy", "--", *worker, f"environ={tmp_path}/{{shard}}"),
        "say=http://whisperer:hush{shard}hush@h:2 whisperer hush{shard}hush",
        environ=environ,
    )
    assert run.end() == 0
    seen = [json.loads((tmp_path / str(shard)).read_text()) for shard in range(4)]
    assert [each["PROXY_URL"] for each in seen] == [
        "http://whisperer:hush0hush@h:1",
        "http://whisperer-1:hush1hush@h:3",
        "http://whisperer:hush2hush@h:2",
        "http://whisperer-3:hush3hush@h:3",
    ]
    assert not [name for each in seen for name in each if name.startswith("PROXY_URL_")]
    assert "hush" not in run.text
    assert "[2] *** *** ***\n" in run.text
    assert "Others can read the file that PROXY_URL_FILE_<shard> names" in run.text


def test_ambient_proxies_are_inherited_only_when_asked(launch, worker, tmp_path):
    environ = {
        "PROXY_URL": "http://all:1",
        "PROXY_URL_0": "http://zero:1",
        "HTTP_PROXY": "http://x:1",
    }
    run = launch(
        "--shards",
        "2",
        "--inherit-proxy",
        "--",
        *worker,
        f"environ={tmp_path}/{{shard}}",
        environ=environ,
    )
    assert run.end() == 0
    seen = [json.loads((tmp_path / str(shard)).read_text()) for shard in range(2)]
    assert [each["PROXY_URL"] for each in seen] == ["http://zero:1", "http://all:1"]
    assert [each["HTTP_PROXY"] for each in seen] == ["http://x:1"] * 2
    assert "PROXY_URL_0" not in seen[1]
    assert "HTTP_PROXY, PROXY_URL handed on to the workers." in run.text


def test_a_worker_leads_a_session_of_its_own_and_holds_nothing_but_its_pipes(launch, script):
    run = launch("--shards", "3", "--", *script("look.py"))
    assert run.end() == 0
    for shard in range(3):
        assert f"[{shard}] True /dev/null True\n" in run.text


def test_a_dry_run_shows_the_commands_but_no_proxy_and_starts_nothing(launch, tmp_path):
    touch = ("touch", f"{tmp_path}/a b {{shard}}")
    run = launch(
        "--shards",
        "2",
        "--dry-run",
        "--",
        *touch,
        environ={"PROXY_URL_1": "http://user:hushhush@host:1"},
    )
    assert run.end() == 0
    assert sorted(run.text.splitlines()) == [
        f"[0] CRAWL_SHARD=0 CRAWL_SHARDS=2 PROXY_URL=<none> touch '{tmp_path}/a b 0'",
        f"[1] CRAWL_SHARD=1 CRAWL_SHARDS=2 PROXY_URL=<set> touch '{tmp_path}/a b 1'",
        "hexdigest-shard: Without a proxy: shard 0.",
    ]
    assert not list(tmp_path.iterdir())


def test_any_command_will_do_and_is_judged_by_its_exit_code_with_a_warning(launch):
    run = launch(
        "--shards",
        "2",
        "--",
        "sh",
        "-c",
        'echo "$CRAWL_SHARD of $CRAWL_SHARDS"; exit "$0"',
        "{shard}",
    )
    assert run.end() == 1
    assert "[0] 0 of 2\n" in run.text
    assert "shard 1 failed: its process ended with exit 1." in run.text
    assert run.text.count("Judged by exit code alone, as no report came: shard 0.") == 1


FAULTY = {"dead": 8, "faults": 8, "fault": "spider: ValueError", "fault_times": 24}


@pytest.mark.parametrize(
    ("todo", "code", "says"),
    [
        (("open", "close=finished"), 0, "finished"),
        (("open", "close=closespider_errorcount"), 1, "it closed with closespider_errorcount"),
        (("open", "close=shutdown"), 1, "it closed with shutdown"),
        (("open",), 1, "it ended without saying why"),
        (("open", "close=finished", "exit=3"), 1, "its process ended with exit 3"),
        (("open", "die"), 1, "its process ended with SIGKILL"),
        (
            ("open", 'report={"event": "closed", "reason": "finished", "dead": 9, "faults": 7}'),
            1,
            "it completed no key, and 7 ended in an error",
        ),
        (
            (
                "open",
                f"report={json.dumps({'event': 'closed', 'reason': 'finished', **FAULTY})}",
            ),
            1,
            "8 ended in an error; most often: spider: ValueError (24 times).",
        ),
        (
            ("open", 'report={"event": "closed", "reason": "finished", "dead": 9, "faults": 0}'),
            0,
            "Keys given up in this run: 9. See why with: hexdigest-shard status",
        ),
    ],
)
def test_a_worker_is_judged_by_its_exit_and_its_last_report(launch, worker, todo, code, says):
    run = launch("--shards", "1", "--", *worker, *todo)
    assert run.end() == code
    assert says in run.text
    assert "Judged by exit code alone" not in run.text


def test_a_reason_of_any_text_is_shown_short_and_on_one_line(launch, worker):
    run = launch("--shards", "1", "--", *worker, "open", "close=\x1b[31mbad\n" + "x" * 500)
    assert run.end() == 1
    assert f"it closed with  [31mbad {'x' * 71}....\n" in run.text
    assert "\x1b" not in run.text


def test_the_commonest_outcome_is_shown_short_on_one_line_and_without_a_secret(launch, worker):
    fault = "item: \x1b[31m\nhush-hush " + "x" * 500
    report = {"event": "closed", "reason": "finished", "faults": 1, "fault": fault}
    told = json.dumps({**report, "fault_times": 1})
    environ = {"PROXY_URL_0": "http://user:hush-hush@h:1"}
    run = launch("--shards", "1", "--", *worker, "open", f"report={told}", environ=environ)
    assert run.end() == 1
    shown = re.search(r"most often: (item:  \[31m \*\*\* x+)\.\.\. \(1 time\)\.\n", run.text)
    assert shown
    assert len(shown[1]) == 80
    assert "hush" not in run.text
    assert "\x1b" not in run.text


def test_the_table_at_the_end_adds_up_all_lives(launch, worker, tmp_path):
    report = {"event": "progress", "done": 4, "failed": 2, "dead": 1, "items": 5}
    script = f"life={tmp_path}/{{shard}}:open+report={json.dumps(report)}+die;open+close=finished"
    run = launch("--shards", "2", "--max-restarts", "1", "--", *worker, script)
    assert run.end() == 0
    rows = [line.split() for line in run.text.splitlines()]
    assert ["total", "4", "14", "4", "2", "16"] in [row[:6] for row in rows]
    assert ["0", "2", "exit", "0", "finished", "7", "2", "1", "8"] in [row[:9] for row in rows]
