from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Scale:
    """How much of a fault: enough to see it in the ordinary run, more with ``--long-faults``."""

    long: bool

    def times(self, number: int) -> int:
        return number * 10 if self.long else number


@pytest.fixture(scope="session")
def fault_scale(pytestconfig: pytest.Config) -> Scale:
    return Scale(pytestconfig.getoption("--long-faults"))
