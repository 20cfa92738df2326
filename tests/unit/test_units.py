"""The ledger: when a unit ends, and how."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scrapy_hexshard.units import DEADLINE, DONE, EMPTY, NOT_SCHEDULED, Ledger, Unit, Verdict


def opened() -> tuple[Ledger, Unit, list[Unit]]:
    ended: list[Unit] = []
    ledger = Ledger(ended.append)
    return ledger, ledger.open("k", 1), ended


def test_a_unit_ends_with_its_last_request() -> None:
    ledger, unit, ended = opened()
    unit.begin_request()
    unit.begin_request()
    unit.end_request()
    assert not ended
    unit.end_request()
    assert ended == [unit]
    assert unit.ended
    assert len(ledger) == 0
    assert ledger.get(1) is None


def test_a_unit_stays_open_while_it_is_held() -> None:
    _, unit, ended = opened()
    unit.hold()
    unit.begin_request()
    unit.end_request()
    assert not ended
    unit.release_hold()
    assert ended == [unit]


def test_a_unit_without_a_request_was_not_scheduled() -> None:
    _, unit, ended = opened()
    unit.hold()
    unit.release_hold()
    assert ended == [unit]
    assert unit.verdict() == Verdict(NOT_SCHEDULED, failed=True)


def through(unit: Unit) -> None:
    unit.begin_request()
    unit.end_request()


def test_a_unit_with_an_item_is_done_and_one_without_is_empty() -> None:
    _, unit, _ = opened()
    unit.begin_request()
    assert unit.verdict() == Verdict(EMPTY)
    assert unit.verdict(empty_fails=True) == Verdict(EMPTY, failed=True)
    unit.yielded = 1
    assert unit.verdict(empty_fails=True) == Verdict(DONE)


def test_the_first_failure_is_the_cause() -> None:
    _, unit, _ = opened()
    unit.begin_request()
    unit.yielded = 1
    unit.fail("http 404", permanent=True)
    unit.fail("spider: KeyError")
    assert unit.verdict() == Verdict("http 404", failed=True, permanent=True)


def test_an_interruption_is_neither_done_nor_failed() -> None:
    _, unit, _ = opened()
    unit.begin_request()
    unit.fail("spider: KeyError")
    unit.interrupted = True
    verdict = unit.verdict()
    assert verdict.interrupted
    assert not verdict.failed


def test_a_forgotten_unit_is_not_settled_and_never_ends() -> None:
    ledger, unit, ended = opened()
    unit.begin_request()
    assert ledger.forget(1) is unit
    assert ledger.forget(1) is None
    unit.end_request()
    assert unit.ended
    assert not ended


def test_an_overdue_unit_fails_with_deadline() -> None:
    ledger, unit, ended = opened()
    unit.begin_request()
    assert ledger.end_overdue({1}, now=0, timeout=10) == []
    assert ledger.end_overdue({1}, now=10, timeout=10) == []
    assert ledger.end_overdue({1}, now=10.1, timeout=10) == [unit]
    assert ended == [unit]
    assert unit.verdict() == Verdict(DEADLINE, failed=True)


def test_progress_and_waiting_start_the_clock_anew() -> None:
    ledger, unit, _ = opened()
    unit.begin_request()
    for now, active, moves in [
        (0, {1}, 0),
        (9, {1}, 1),
        (18, {1}, 0),
        (27, set(), 0),
        (36, {1}, 0),
    ]:
        if moves:
            unit.moved()
        assert ledger.end_overdue(active, now=now, timeout=10) == []
    assert ledger.end_overdue({1}, now=38, timeout=10) == [unit]


def test_an_earlier_failure_stays_the_cause_of_an_overdue_unit() -> None:
    ledger, unit, _ = opened()
    unit.begin_request()
    unit.fail("spider: KeyError")
    ledger.end_overdue({1}, now=0, timeout=1)
    ledger.end_overdue({1}, now=2, timeout=1)
    assert unit.verdict() == Verdict("spider: KeyError", failed=True)


@given(st.lists(st.sampled_from(["fail", "permanent", "item", "interrupt"])))
def test_failed_and_interrupted_exclude_each_other(happenings: list[str]) -> None:
    _, unit, _ = opened()
    unit.begin_request()
    for each in happenings:
        if each == "item":
            unit.yielded += 1
        elif each == "interrupt":
            unit.interrupted = True
        else:
            unit.fail(each, permanent=each == "permanent")
    verdict = unit.verdict()
    assert not (verdict.failed and verdict.interrupted)
    assert verdict.failed or not verdict.permanent
    assert verdict.interrupted == ("interrupt" in happenings)


class LedgerMachine(RuleBasedStateMachine):
    """Units beside a plain model: the open requests and holds of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[int] = []
        self.ledger = Ledger(lambda unit: self.ended.append(unit.token))
        self.model: dict[int, list[int]] = {}
        self.units: dict[int, Unit] = {}
        self.expected: list[int] = []

    @rule()
    def claim(self) -> None:
        token = len(self.units) + 1
        self.units[token] = self.ledger.open(f"k{token}", token)
        self.units[token].hold()
        self.model[token] = [0, 1]

    def change(self, data: st.DataObject, column: int, by: int) -> Unit | None:
        ready = [token for token, counts in self.model.items() if by > 0 or counts[column]]
        if not ready:
            return None
        token = data.draw(st.sampled_from(ready))
        self.model[token][column] += by
        if self.model[token] == [0, 0]:
            del self.model[token]
            self.expected.append(token)
        return self.units[token]

    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        if unit := self.change(data, 0, 1):
            unit.begin_request()

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if unit := self.change(data, 0, -1):
            unit.end_request()

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if unit := self.change(data, 1, -1):
            unit.release_hold()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.model)))
        del self.model[token]
        self.ledger.forget(token)

    @precondition(lambda self: set(self.units) - set(self.model))
    @rule(data=st.data())
    def late(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(set(self.units) - set(self.model))))
        through(self.units[token])

    @invariant()
    def each_unit_ends_once_and_only_when_nothing_of_it_is_open(self) -> None:
        assert self.ended == self.expected
        assert len(self.ledger) == len(self.model)
        for token, unit in self.units.items():
            assert unit.ended == (token not in self.model)
            assert (self.ledger.get(token) is unit) == (token in self.model)


TestLedger = LedgerMachine.TestCase
