"""The store thread by itself, when its store cannot be opened."""

from __future__ import annotations

import queue
import time

import pytest

from scrapy_hexshard.components import store_thread
from scrapy_hexshard.errors import StoreError


def refuse():
    raise StoreError("There is no store.")


def test_without_a_store_each_call_is_refused_and_the_thread_is_idle_between_them(monkeypatch):
    posted = queue.SimpleQueue()
    monkeypatch.setattr(store_thread, "from_thread", lambda: lambda *call: posted.put(call))
    thread = store_thread.StoreThread(
        refuse,
        lease_seconds=0.03,
        patience=60,
        on_lost=lambda tokens: None,
        on_condemned=lambda keys: None,
        before_completing=lambda durable: None,
    )
    errors = []
    thread.start()
    for ask in (
        lambda: thread.call(lambda store: store.counts()),
        lambda: thread.close("shutdown"),
    ):
        ask().addErrback(lambda failure: errors.append(str(failure.value)))
        function, answers = posted.get(timeout=60)
        function(answers)
        used = time.process_time()
        with pytest.raises(queue.Empty):
            posted.get(timeout=0.3)  # ten renewals would have been due
        assert time.process_time() - used < 0.1
    assert errors == ["There is no store."] * 2
    thread.join(60)
    assert not thread.is_alive()
