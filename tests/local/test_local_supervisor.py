"""The supervisor with small processes: their order, their restarts, their logs and their end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from neuroscale.local import supervisor as supervising
from neuroscale.local.process import Process, belonging, end, is_same
from neuroscale.local.state import LocalError, State, is_free, locked
from neuroscale.local.supervisor import Supervisor, in_order, shorten
from waiting import wait_for


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    folder = tmp_path / "state"
    with locked(folder, print):
        state = State.open(folder)
    state.logs.mkdir()
    yield state
    state.delete()


@contextmanager
def supervised(state: State, *processes: Process) -> Iterator[Supervisor]:
    supervisor = Supervisor(state, processes)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(60)
        assert not thread.is_alive()
        assert list(belonging(state.instance.id)) == []


def sleeping(name: str, folder: Path, script: str = "", needs: tuple[str, ...] = ()) -> Process:
    """A process that writes when it starts and when it ends, and is ready once its file is there."""
    ready, order = folder / f"{name}.ready", folder / "order"
    code = f"""
import pathlib, signal, sys, time
order = open({str(order)!r}, "a")
def say(what):
    order.write(what + " {name}\\n")
    order.flush()
def finish(*_):
    say("end")
    sys.exit(0)
signal.signal(signal.SIGTERM, finish)
say("start")
{script or f"time.sleep(0.3); pathlib.Path({str(ready)!r}).touch()"}
print("{name} runs", flush=True)
while True:
    time.sleep(0.1)
"""
    return Process(
        name=name,
        argv=(sys.executable, "-I", "-c", code),
        environment={"PATH": os.defpath},
        folder=folder,
        user=None,
        ready=lambda: None if ready.exists() else "its file is missing",
        needs=needs,
        ready_within=20.0,
        stops_within=5.0,
    )


def healthy(supervisor: Supervisor, *names: str) -> Callable[[], bool]:
    return lambda: all(supervisor.records[name].health == "healthy" for name in names or supervisor.records)


def test_processes_start_after_what_they_need_and_end_before_it(state: State, tmp_path: Path) -> None:
    first = sleeping("first", tmp_path)
    second = sleeping("second", tmp_path, needs=("first",))
    third = sleeping("third", tmp_path, needs=("second",))
    with supervised(state, third, second, first) as supervisor:
        wait_for(healthy(supervisor))
    said = (tmp_path / "order").read_text().splitlines()
    assert said == ["start first", "start second", "start third", "end third", "end second", "end first"]
    assert "first runs" in state.log("first").read_text()


def test_needs_that_cannot_be_met_are_refused_before_anything_starts(tmp_path: Path) -> None:
    first, second = sleeping("first", tmp_path, needs=("second",)), sleeping("second", tmp_path, needs=("first",))
    for processes in ([first, second], [sleeping("alone", tmp_path, needs=("missing",))]):
        with pytest.raises(LocalError, match="need each other, or one that does not exist"):
            in_order(processes)


def test_what_never_becomes_ready_is_ended_and_told_of_and_nothing_that_needs_it_starts(
    state: State, tmp_path: Path
) -> None:
    stuck = replace(sleeping("stuck", tmp_path, "pass"), ready_within=1.0)
    waiting = sleeping("waiting", tmp_path, needs=("stuck",))
    with supervised(state, stuck, waiting) as supervisor:
        wait_for(lambda: supervisor.records["stuck"].failures >= 2)
        assert supervisor.records["waiting"].health == "waiting"
        detail = supervisor.records["stuck"].detail
    assert "start waiting" not in (tmp_path / "order").read_text()
    assert "its file is missing" in detail or detail == ""


def test_a_failing_preparation_is_tried_again(state: State, tmp_path: Path) -> None:
    tries: list[int] = []

    def prepare() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise LocalError("not yet")

    with supervised(state, replace(sleeping("late", tmp_path), prepare=prepare)) as supervisor:
        wait_for(healthy(supervisor))
        assert supervisor.records["late"].restarts == 2


def test_what_dies_is_restarted_without_what_it_left_and_what_needs_it_goes_on(state: State, tmp_path: Path) -> None:
    child = 'import subprocess; print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)'
    first = sleeping("first", tmp_path, f"{child}; pathlib.Path({str(tmp_path / 'first.ready')!r}).touch()")
    second = sleeping("second", tmp_path, needs=("first",))
    with supervised(state, first, second) as supervisor:
        wait_for(healthy(supervisor))
        pids = {name: record.pid for name, record in supervisor.records.items()}
        left = psutil.Process(int(state.log("first").read_text().split()[0]))
        assert pids["first"] is not None
        os.kill(pids["first"], signal.SIGKILL)
        wait_for(lambda: supervisor.records["first"].restarts == 1 and healthy(supervisor)())
        assert supervisor.records["second"].pid == pids["second"]
        assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_what_stops_answering_is_ended_and_started_again(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "_PROBE_EVERY", 0.1)
    with supervised(state, sleeping("one", tmp_path)) as supervisor:
        wait_for(healthy(supervisor))
        (tmp_path / "one.ready").unlink()
        wait_for(lambda: supervisor.records["one"].health == "ill")
        wait_for(lambda: supervisor.records["one"].restarts == 1 and healthy(supervisor)())


def test_a_process_that_does_not_end_when_asked_is_killed(state: State, tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path({!r}).touch()"
    process = sleeping("deaf", tmp_path, deaf.format(str(tmp_path / "deaf.ready")))
    with supervised(state, replace(process, stops_within=0.5)) as supervisor:
        wait_for(healthy(supervisor))


def test_only_marked_processes_are_ended(state: State, tmp_path: Path) -> None:
    other = psutil.Popen(["sleep", "600"])
    try:
        with supervised(state, sleeping("one", tmp_path)) as supervisor:
            wait_for(healthy(supervisor))
            end(lambda: belonging(state.instance.id), patience=1.0)
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_number_that_another_process_has_now_is_not_the_same_process() -> None:
    me = psutil.Process()
    assert is_same(me.pid, me.create_time())
    assert not is_same(me.pid, me.create_time() - 60)
    assert not is_same(2**22 + 1, me.create_time())


def test_a_log_that_grows_too_large_moves_aside_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "_LARGEST_LOG", 100)
    log = tmp_path / "one.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 50)
        shorten(log)
        writer.write(b"new\n")
    assert log.read_text() == "new\n"
    assert (tmp_path / "one.old.log").read_text() == "old\n" * 50


def test_ports_are_kept_and_one_that_was_taken_is_replaced(state: State) -> None:
    import socket

    told: list[str] = []
    state.choose_ports(("a", "b"), told.append)
    before = dict(state.instance.ports)
    state.choose_ports(("a", "b"), told.append)
    assert state.instance.ports == before
    assert told == []
    with socket.create_server(("127.0.0.1", before["a"])):
        assert not is_free(before["a"])
        state.choose_ports(("a", "b"), told.append)
    assert state.instance.ports["a"] != before["a"]
    assert state.instance.ports["b"] == before["b"]
    assert f"Port {before['a']} of a is taken" in told[0]
    again = State.read(state.folder)
    assert again is not None
    assert again.instance == state.instance
