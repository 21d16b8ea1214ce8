"""When the local node probes a container, and what it makes of the answers."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.kube.client import Object
from neuroscale.local.node.probes import Kind, Probe, Prober, Results, probes_of
from neuroscale.local.node.waiting import FIRST, LONGEST, BackOff, WaitingError

WITHIN: Final = 30.0  # seconds


def told(**kinds: dict[str, Any]) -> Object:
    get = {"httpGet": {"path": "/health", "port": 8080}}
    return {"name": "main", **{f"{kind}Probe": {**get, **changes} for kind, changes in kinds.items()}}


def results(**kinds: dict[str, Any]) -> Results:
    return Results(probes_of(told(**kinds)), 100.0)


def due(found: Results, now: float) -> set[str]:
    return {probe.kind for probe in found.due(now)}


def answer(found: Results, now: float, kind: Kind, *, ok: bool) -> None:
    assert kind in due(found, now)
    found.asked(kind, now)
    found.record(kind, ok=ok)


def test_without_probes_a_container_is_started_and_ready_at_once() -> None:
    found = results()
    assert found.started
    assert found.ready
    assert found.failed is None


def test_no_other_probe_is_made_until_the_startup_probe_has_succeeded() -> None:
    found = results(startup={"periodSeconds": 10}, readiness={}, liveness={})
    assert due(found, 100) == {"startup"}
    answer(found, 100, "startup", ok=False)
    assert due(found, 109) == set()
    assert not found.started
    answer(found, 110, "startup", ok=True)
    assert found.started
    assert not found.ready
    # Who has just started may be ready at once.
    assert due(found, 110) == {"readiness", "liveness"}
    answer(found, 110, "readiness", ok=True)
    assert found.ready


def test_what_was_shown_before_holds_until_it_fails_as_often_as_it_takes() -> None:
    probes = probes_of(told(startup={"periodSeconds": 10}, readiness={"failureThreshold": 2}, liveness={}))
    found = Results(probes, 100.0, {"startup", "readiness"})
    assert found.ready
    assert due(found, 100) == {"readiness", "liveness"}
    answer(found, 100, "readiness", ok=False)
    assert found.ready
    answer(found, 110, "readiness", ok=False)
    assert (found.started, found.ready) == (True, False)
    assert not Results(probes, 100.0, {"startup"}).ready
    assert not Results(probes, 100.0, {"readiness"}).ready


def test_a_startup_probe_that_fails_too_often_ends_the_container() -> None:
    found = results(startup={"periodSeconds": 1, "failureThreshold": 3})
    for second in range(3):
        assert found.failed is None
        answer(found, 100 + second, "startup", ok=False)
    assert found.failed is not None
    assert found.failed.kind == "startup"
    assert due(found, 200) == set()


def test_a_liveness_probe_must_fail_as_often_in_a_row_as_its_threshold_says() -> None:
    found = results(liveness={"periodSeconds": 1, "failureThreshold": 2})
    for second, ok in enumerate((True, False, True, False, True)):
        answer(found, 100 + second, "liveness", ok=ok)
        assert found.failed is None
    answer(found, 105, "liveness", ok=False)
    answer(found, 106, "liveness", ok=False)
    assert found.failed is not None


def test_readiness_comes_and_goes_by_its_two_thresholds_and_ends_nothing() -> None:
    found = results(readiness={"periodSeconds": 1, "failureThreshold": 2, "successThreshold": 2})
    seen = []
    for second, ok in enumerate((True, True, False, True, False, False, True, True)):
        answer(found, 100 + second, "readiness", ok=ok)
        seen.append(found.ready)
    assert seen == [False, True, True, True, True, False, False, True]
    assert found.failed is None


def test_a_probe_waits_for_its_initial_delay_and_for_its_own_answer() -> None:
    found = results(readiness={"initialDelaySeconds": 5, "periodSeconds": 1})
    assert due(found, 104.9) == set()
    assert due(found, 105) == {"readiness"}
    found.asked("readiness", 105)
    assert due(found, 200) == set()
    found.record("readiness", ok=True)
    assert due(found, 200) == {"readiness"}


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_liveness_gives_up_exactly_after_a_row_of_failures(answers: list[bool], threshold: int) -> None:
    found = results(liveness={"periodSeconds": 1, "failureThreshold": threshold})
    row = 0
    for second, ok in enumerate(answers):
        if found.failed is not None:
            break
        answer(found, 100 + second, "liveness", ok=ok)
        row = 0 if ok else row + 1
        assert (found.failed is not None) == (row >= threshold)


@pytest.mark.parametrize(
    "probe",
    [
        {"exec": {"command": ["true"]}},
        {"grpc": {"port": 1}},
        {"tcpSocket": {"port": 1}},
        {"httpGet": {"port": 1, "scheme": "HTTPS"}},
        {"httpGet": {"port": "unknown"}},
    ],
)
def test_a_probe_that_cannot_be_made_here_is_never_taken_for_a_success(probe: Object) -> None:
    with pytest.raises(WaitingError) as caught:
        probes_of({"name": "main", "readinessProbe": probe})
    assert caught.value.reason == "CreateContainerError"


def test_a_port_may_be_named() -> None:
    probe = {"httpGet": {"port": "http"}}
    (found,) = probes_of({"ports": [{"name": "http", "containerPort": 8081}], "readinessProbe": probe})
    assert found.url("127.127.1.1") == "http://127.127.1.1:8081/"


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the path names; `/slow` after a while."""

    release = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.release.wait(10)
        self.send_response(200 if self.path == "/slow" else int(self.path[1:]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    Answers.release.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        Answers.release.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "problem"), [("/200", ""), ("/302", ""), ("/404", "statuscode: 404"), ("/503", "statuscode: 503")]
)
def test_an_answer_from_200_to_399_is_a_success(port: int, path: str, problem: str) -> None:
    assert problem in _ask(port, path)
    assert bool(problem) == bool(_ask(port, path))


def test_an_answer_that_takes_longer_than_the_timeout_is_a_failure(port: int) -> None:
    assert "context deadline exceeded" in _ask(port, "/slow")


def test_nobody_listening_is_a_failure() -> None:
    assert "refused" in _ask(1, "/200")


def test_a_header_that_cannot_be_sent_is_a_failure() -> None:
    assert _ask(1, "/200", httpHeaders=[{"name": "X-A", "value": "\u4e2d"}])


class Drips(http.server.BaseHTTPRequestHandler):
    """Begins to answer and never ends its headers: a byte each 50 ms, as long as somebody reads."""

    reading: ClassVar[set[int]] = set()

    def do_GET(self) -> None:
        me = threading.get_ident()
        self.reading.add(me)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        try:
            while not self.server.ended.wait(0.05):  # type: ignore[attr-defined]
                self.wfile.write(b"a")
        except OSError:
            self.close_connection = True
        finally:
            self.reading.discard(me)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def dripping() -> Iterator[int]:
    Drips.reading.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Drips) as server:
        ended = server.ended = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        ended.set()
        server.shutdown()
        thread.join()


def test_an_answer_that_drips_in_is_a_failure_after_the_timeout_and_its_connection_ends(dripping: int) -> None:
    with prober() as made:
        began = time.monotonic()
        problem = made.start(probe_of(dripping), "127.0.0.1").result(WITHIN)
        took = time.monotonic() - began
        assert "context deadline exceeded" in problem
        # The server would go on; a busy machine may be late.
        assert 1 <= took < 5
        while Drips.reading:
            assert time.monotonic() - began < WITHIN, "the connection is still open"
            time.sleep(0.02)


def test_a_container_whose_health_only_drips_is_no_longer_ready(dripping: int) -> None:
    (probe,) = probes_of(told(readiness={"httpGet": {"port": dripping}, "timeoutSeconds": 1, "failureThreshold": 1}))
    found = Results([probe], 100.0)
    answer(found, 100, "readiness", ok=True)
    assert found.ready
    with prober() as made:
        found.asked("readiness", 110)
        found.record("readiness", ok=not made.start(probe, "127.0.0.1").result(WITHIN))
    assert not found.ready
    assert due(found, 120) == {"readiness"}


def test_many_servers_that_do_not_answer_hold_up_no_probe_of_another(port: int) -> None:
    with prober() as made:
        slow = [made.start(probe_of(port, "/slow", timeout=60), "127.0.0.1") for _ in range(40)]
        assert made.start(probe_of(port, "/200", timeout=20), "127.0.0.1").result(WITHIN) == ""
        assert not any(one.done() for one in slow)


@contextmanager
def prober() -> Iterator[Prober]:
    made = Prober()
    try:
        yield made
    finally:
        made.close()


def probe_of(port: int, path: str = "/", *, timeout: int = 1, **get: Any) -> Probe:
    request = {"port": port, "path": path, **get}
    (probe,) = probes_of({"readinessProbe": {"httpGet": request, "timeoutSeconds": timeout}})
    return probe


def _ask(port: int, path: str, **get: Any) -> str:
    with prober() as made:
        return made.start(probe_of(port, path, **get), "127.0.0.1").result(WITHIN)


def test_the_first_failure_is_tried_again_at_once_and_the_pauses_double_up_to_five_minutes() -> None:
    waits, now = BackOff(), 1000.0
    seen = []
    for _ in range(8):
        waits.failed(now)
        seen.append(waits.left(now))
        now += waits.left(now) + 1
    assert seen == [0, 10, 20, 40, 80, 160, 300, 300]
    assert (seen[1], seen[-1]) == (FIRST, LONGEST)


def test_what_went_well_for_ten_minutes_begins_anew() -> None:
    waits = BackOff()
    for now in (1000.0, 1001.0, 1002.0):
        waits.failed(now)
    assert waits.left(1002.0) == 20
    waits.failed(1002.0 + 2 * LONGEST + 1)
    assert waits.left(1002.0 + 2 * LONGEST + 1) == 0
