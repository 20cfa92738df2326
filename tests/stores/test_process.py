"""Which processes are surely dead."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from scrapy_hexshard.store import process
from scrapy_hexshard.store.process import ProcessIdentity

HERE = ProcessIdentity.of_this()


@pytest.fixture
def child():
    """A live child process and its identity."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child, replace(HERE, pid=child.pid, born=process._born(child.pid))
        child.kill()


def test_this_process_lives_and_is_known_in_full():
    assert not HERE.is_dead(HERE)
    assert HERE.pid == os.getpid()
    assert None not in (HERE.boot, HERE.namespace, HERE.born)


def test_a_process_lives_until_it_is_gone(child):
    running, identity = child
    assert not identity.is_dead(HERE)
    running.kill()
    running.wait()
    assert identity.is_dead(HERE)


def test_a_zombie_is_dead(child):
    running, identity = child
    running.kill()
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    assert identity.is_dead(HERE)


def test_a_pid_that_another_process_has_now_is_dead(child):
    _, identity = child
    assert replace(identity, born=identity.born - 1).is_dead(HERE)


def test_another_boot_of_the_same_machine_is_dead():
    here = replace(HERE, machine="m")
    assert replace(here, boot="earlier").is_dead(here)
    assert not replace(here, boot="earlier", machine="other").is_dead(here)
    nameless = replace(HERE, machine=None)
    assert not replace(nameless, boot="earlier").is_dead(nameless)


@pytest.mark.parametrize("unknown", ["boot", "namespace", "born"])
def test_in_doubt_a_process_is_not_dead(child, unknown):
    running, identity = child
    running.kill()
    running.wait()
    assert not replace(identity, **{unknown: None}).is_dead(HERE)


def test_a_process_of_another_namespace_cannot_be_looked_at(child):
    running, identity = child
    running.kill()
    running.wait()
    assert not replace(identity, namespace="pid:[1]").is_dead(HERE)


def test_a_process_that_may_not_be_looked_at_is_not_dead(child, monkeypatch):
    _, identity = child

    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(process, "_stat_fields", lambda pid: None)
    assert not identity.is_dead(HERE)


def test_a_name_with_spaces_and_parentheses_does_not_matter(tmp_path):
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as child:
        try:
            assert process._state(child.pid) in ("S", "R", "D")
            assert process._born(child.pid) >= HERE.born
        finally:
            child.kill()
