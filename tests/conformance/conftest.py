"""What every store must do is tested here once; a further store adds its factory to BACKENDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.identities import dead_identity

from scrapy_hexshard import ShardSpec, WorkStore, open_store
from scrapy_hexshard.store.process import ProcessIdentity

ALONE = ShardSpec(0, 1)


@dataclass(frozen=True)
class Backend:
    """A place for one crawl, empty at first; its *url* opens it from any process."""

    url: str

    def open(self, shards: ShardSpec | int | None = ALONE, **options: Any) -> WorkStore:
        return open_store(self.url, shards, **options)


class Clock:
    """A clock that moves only when told to; tests give it to the stores they open."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


def sqlite(folder: Path) -> Backend:
    return Backend(f"sqlite:///{folder / 'crawl.sqlite3'}")


BACKENDS: dict[str, Callable[[Path], Backend]] = {"sqlite": sqlite}


@pytest.fixture(params=sorted(BACKENDS))
def new_backend(request: pytest.FixtureRequest) -> Callable[[Path], Backend]:
    """The factory of one kind of store; it is given an empty folder of its own."""
    return BACKENDS[request.param]


@pytest.fixture
def backend(new_backend: Callable[[Path], Backend], tmp_path: Path) -> Backend:
    return new_backend(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def dead() -> ProcessIdentity:
    """The identity of a process that has ended: a worker that has it is dead for all others."""
    return dead_identity()


@pytest.fixture
def store(backend: Backend, clock: Clock):
    with backend.open(clock=clock) as store:
        yield store


@pytest.fixture
def other(backend: Backend, clock: Clock):
    """A second worker of the same shard."""
    with backend.open(clock=clock) as other:
        yield other
