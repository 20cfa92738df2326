"""Crawls the bundled shop with several workers, then checks that not one product is wrong.

Each worker is a Scrapy process with a shard of its own. Kill one while it runs, with -9 if you
like, or stop everything with Ctrl-C and go on later: every product comes home exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from check import complaints, without_item
from shop import ShopError, catalogue, open_shop
from workers import workers_of

HERE = Path(__file__).resolve().parent
COMPLAINTS_SHOWN = 20
REQUESTS_PER_PRODUCT = 3  # its page, its price, its reviews


@dataclass(frozen=True)
class Run:
    """A crawl that can be gone on with: the same shop, at the same address, in as many shards."""

    products: int
    shards: int
    port: int = 0

    @classmethod
    def of(cls, folder: Path, products: int | None, shards: int | None) -> Run:
        """The run begun in *folder*, or a new one with the options given."""
        record = folder / "run.json"
        if not record.exists():
            return cls(products or 1000, shards or 4)
        run = cls(**json.loads(record.read_text()))
        if products not in {None, run.products} or shards not in {None, run.shards}:
            raise SystemExit(
                f"{folder} holds a crawl of {run.products} products in {run.shards} shards. "
                "Leave --products and --shards away to go on with it, or take another --dir."
            )
        return run

    def save(self, folder: Path) -> None:
        (folder / "run.json").write_text(json.dumps(asdict(self)))


def main() -> int:
    options = parse_options()
    if not Path(program("hexdigest-shard")).exists():
        print(f"hexdigest-shard is not installed beside {sys.executable}; see the README.")
        return 1
    folder = Path(options.dir or tempfile.mkdtemp(prefix="shop-crawl-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run = Run.of(folder, options.products, options.shards)
    try:
        return crawl_and_check(run, folder, kill=options.kill)
    except ShopError as error:
        print(error)
    except subprocess.CalledProcessError as error:
        print(f"{shlex.join(error.cmd)} ended with {error.returncode}.")
    return 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--products", type=int, metavar="N", help="in the shop (1000)")
    parser.add_argument("--shards", type=int, metavar="N", help="one worker each (4)")
    parser.add_argument("--dir", type=Path, help="where to keep the crawl, or to go on with one")
    parser.add_argument("--kill", action="store_true", help="kill -9 a worker half-way")
    return parser.parse_args()


def crawl_and_check(run: Run, folder: Path, *, kill: bool) -> int:
    log = folder / "access.jsonl"
    options = [f"--products={run.products}", f"--port={run.port}", f"--log={log}"]
    with open_shop(*options) as address:
        replace(run, port=int(address.rpartition(":")[2])).save(folder)
        print(f"A shop of {run.products} products is open at {address}.", flush=True)
        print("Kill a worker with -9 if you like, by the process id in its first line.", flush=True)
        with start_launcher(run, folder, address) as launcher:
            pass_signals_on(launcher)
            killed = watch(launcher, run, log, kill=kill)
    if launcher.returncode not in {0, 1}:
        print(f"Stopped. To go on: {shlex.join([sys.executable, __file__, f'--dir={folder}'])}")
        return launcher.returncode
    if not store(folder).exists():
        print(f"No worker came as far as its store; {folder}/logs says why.")
        return 1
    wrong = check(run, folder)
    if launcher.returncode:
        wrong.append(f"The launcher ended with 1: a worker failed; {folder}/logs says why.")
    if kill and not killed:
        wrong.append("No worker was killed: the crawl was over before its half.")
    return report(wrong, run, folder)


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def start_launcher(run: Run, folder: Path, address: str) -> subprocess.Popen[bytes]:
    command = [
        *(program("hexdigest-shard"), "run", "--shards", str(run.shards), "--max-restarts", "3"),
        *("--log-dir", str(folder / "logs"), "--"),
        *(program("scrapy"), "crawl", "products", "-s", f"HEXSHARD_STORE={store(folder)}"),
        *("-a", "shard={shard}", "-a", "shards={shards}"),
    ]
    print(f"$ {shlex.join(command)}", flush=True)
    return subprocess.Popen(
        command,
        cwd=HERE,
        env={**os.environ, "SHOP_URL": address},
        stdin=subprocess.DEVNULL,
        process_group=0,  # out of the terminal's reach: each Ctrl-C gets there once, through us
    )


def store(folder: Path) -> Path:
    return folder / "crawl.sqlite3"


def pass_signals_on(launcher: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: launcher.send_signal(received))


def watch(launcher: subprocess.Popen[bytes], run: Run, log: Path, *, kill: bool) -> bool:
    """Wait for the launcher; whether a worker was killed on the way."""
    asked = 0
    killed = False
    # What is said while it runs would disturb the launcher's live view.
    said = ""
    with log.open() as requests:
        while not has_ended(launcher):
            asked += sum(1 for _ in requests)
            workers = workers_of(launcher.pid)
            if kill and not killed and workers and asked > run.products * REQUESTS_PER_PRODUCT / 2:
                killed = True
                shard, pid = next(iter(workers.items()))
                os.kill(pid, signal.SIGKILL)
                said = f"Killed {pid}, the worker of shard {shard}, half-way."
    if said:
        print(said, flush=True)
    return killed


def has_ended(launcher: subprocess.Popen[bytes]) -> bool:
    try:
        launcher.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        return False
    return True


def check(run: Run, folder: Path) -> list[str]:
    """A sentence for each thing that is wrong with the export or the store."""
    command = program("hexdigest-shard")
    export = folder / "items.jsonl"
    subprocess.run([command, "export", str(store(folder)), str(export)], check=True)
    subprocess.run([command, "status", str(store(folder))], check=True)
    status = subprocess.run(
        [command, "status", "--json", str(store(folder))], check=True, stdout=subprocess.PIPE
    )
    with export.open() as lines:
        items = map(json.loads, lines)
        return complaints(catalogue(run.products), items, json.loads(status.stdout))


def report(wrong: list[str], run: Run, folder: Path) -> int:
    if wrong:
        print(*wrong[:COMPLAINTS_SHOWN], sep="\n")
        if len(wrong) > COMPLAINTS_SHOWN:
            print(f"... and {len(wrong) - COMPLAINTS_SHOWN} more.")
        print(f"Something is wrong; everything is in {folder}.")
        return 1
    absent = without_item(catalogue(run.products))
    found = run.products - sum(map(len, absent.values()))
    print(f"All is well: {found} of {run.products} products are in the export, each exactly once.")
    for outcome, pages in absent.items():
        print(f"{len(pages)} have no page in the shop ({outcome}): {', '.join(pages)}")
    print(f"The items are in {folder / 'items.jsonl'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
