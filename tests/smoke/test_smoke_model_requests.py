"""How the smoke tests ask: prompts of an exact length that no cache knows, limits of time, and again where only the way
failed."""

from __future__ import annotations

import importlib.util
import itertools
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from broken_model_server import BrokenServer, broken_server, error, stream
from neuroscale.cluster.endpoint.chat import complete, models
from neuroscale.cluster.endpoint.connection import Endpoint, TookTooLongError, way_that_failed
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.smoke.model_requests import SLOWEST, AskAgain, Prompts, at_once, limits, percentile, status
from neuroscale.smoke.results import CannotTellError, FindingError
from roots import ROOT

_BLOCK = 16
"""Tokens by which vLLM's prefix cache compares."""


@pytest.mark.parametrize("tokens", [1, 3, 64, 1000, 8193])
def test_a_prompt_has_exactly_as_many_tokens_as_asked_for(tokens: int) -> None:
    prompts = Prompts(range(100, 170))
    assert [len(prompts.of(tokens)) for _ in range(5)] == [tokens] * 5


def test_no_two_prompts_begin_alike() -> None:
    """Else a cache would answer in the model's place, and latency would look better than it is."""
    prompts = Prompts(range(100, 170))
    beginnings = [tuple(prompts.of(500)[:_BLOCK]) for _ in range(4096)]
    assert len(set(beginnings)) == len(beginnings)


def test_a_prompt_holds_only_tokens_of_the_server() -> None:
    assert set(Prompts((7, 8, 9)).of(50)) <= {7, 8, 9}


def test_more_tokens_may_take_longer_and_silence_may_not() -> None:
    short, long = limits(60.0, 10), limits(60.0, 1000)
    assert long.seconds - short.seconds == pytest.approx(990 * SLOWEST)
    assert short.silence == long.silence == 60.0


def test_the_percentile_is_one_of_the_values() -> None:
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.95) == 5.0
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.5) == 3.0
    assert percentile([1.0], 0.95) == 1.0


# ------------------------------------------------------------ asking again

_PATIENCE = 0.6
_LISTED = error(200, b'{"data": [{"id": "tiny"}]}').replace(b" No", b" OK")
_UNAUTHORISED = error(401, b'{"error": "Unauthorized"}')
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_CUT = b""
_CUT_STREAM = _STREAM + _chunk(stream(["a", "b"])[:40])
_WHOLE_STREAM = _STREAM + _chunk(stream(["a", "b"])) + _chunk(b"")


@pytest.fixture
def asked() -> Iterator[tuple[BrokenServer, Endpoint, AskAgain]]:
    ask = AskAgain(_PATIENCE)
    with broken_server() as (server, endpoint):
        yield server, replace(endpoint, asking=ask), ask


def _replies(server: BrokenServer, *replies: bytes) -> None:
    """Send one reply a request, the last of them again and again."""
    left = itertools.chain(replies, itertools.repeat(replies[-1]))

    def reply(connection: socket.socket) -> None:
        connection.sendall(next(left))

    server.reply = reply


_GOOD: dict[str, tuple[tuple[bytes, ...], Callable[[Endpoint], object]]] = {
    "cut before the answer": ((_CUT, _LISTED), models),
    "cut within the answer": ((_LISTED[:-5], _LISTED), models),
    "a gateway without a pod": ((error(502, b""), error(502, b""), _LISTED), models),
    "a stream that is cut": (
        (_CUT_STREAM, _WHOLE_STREAM),
        lambda endpoint: complete(endpoint, "Hello", limits(5.0, 2)),
    ),
    "one of several at once": (
        (_CUT, _WHOLE_STREAM),
        lambda endpoint: at_once(endpoint, lambda: [[1], [2], [3]], limits(5.0, 2)),
    ),
}


@pytest.mark.parametrize(("replies", "ask"), _GOOD.values(), ids=_GOOD)
def test_where_only_the_way_failed_it_is_asked_again_and_said_so(
    asked: tuple[BrokenServer, Endpoint, AskAgain], replies: tuple[bytes, ...], ask: Callable[[Endpoint], object]
) -> None:
    server, endpoint, asking = asked
    _replies(server, *replies)
    ask(endpoint)
    (note,) = asking.take_notes()
    assert note.startswith(f"at the {'third' if len(replies) == 3 else 'second'} try; the first: ")
    assert asking.take_notes() == []


_WRONG: dict[str, tuple[bytes, Callable[[Endpoint], object]]] = {
    "an error of the server": (error(500, b"oops"), models),
    "another status": (error(404, b"{}"), models),
    "no JSON": (error(200, b"<html>"), models),
    "no HTTP": (b"\x00\x01 nonsense\r\n\r\n", models),
    "a stream with a clean end and no end mark": (
        _STREAM + _chunk(stream(["a"])[:40]) + _chunk(b""),
        lambda endpoint: complete(endpoint, "Hello", limits(5.0, 2)),
    ),
}


@pytest.mark.parametrize(("reply", "ask"), _WRONG.values(), ids=_WRONG)
def test_a_wrong_answer_is_never_asked_away(
    asked: tuple[BrokenServer, Endpoint, AskAgain], reply: bytes, ask: Callable[[Endpoint], object]
) -> None:
    server, endpoint, _ = asked
    _replies(server, reply, _LISTED)
    with pytest.raises(EndpointError) as failed:
        ask(endpoint)
    assert (failed.value.way, len(server.asked)) == ("", 1)


def test_a_status_of_a_pod_is_the_services_and_not_its_gateways(
    asked: tuple[BrokenServer, Endpoint, AskAgain],
) -> None:
    server, endpoint, _ = asked
    _replies(server, error(503, b""), _LISTED)
    assert status(replace(endpoint, how="port-forward"), "GET", "/health", None, 5.0, key=None) == 503
    assert len(server.asked) == 1


def test_a_way_that_fails_again_and_again_for_one_reason_is_a_finding(
    asked: tuple[BrokenServer, Endpoint, AskAgain],
) -> None:
    server, endpoint, asking = asked
    _replies(server, _CUT)
    with pytest.raises(EndpointError) as failed:
        models(endpoint)
    assert (failed.value.way, len(server.asked)) == ("cut", 4)
    assert asking.take_notes()[0].startswith("asked 4 times in ")
    _replies(server, error(503, b""))
    assert status(endpoint, "GET", "/v1/models", None, 5.0, key=None) == 503


def test_a_way_that_fails_for_changing_reasons_decides_nothing(
    asked: tuple[BrokenServer, Endpoint, AskAgain],
) -> None:
    server, endpoint, _ = asked
    _replies(server, _CUT, error(502, b""), _CUT, error(502, b""))
    with pytest.raises(CannotTellError, match="changing reasons"):
        models(endpoint)


def test_a_gateway_without_a_pod_is_one_reason_whatever_its_status(
    asked: tuple[BrokenServer, Endpoint, AskAgain],
) -> None:
    server, endpoint, _ = asked
    _replies(server, error(502, b""), error(504, b""), error(502, b""), error(504, b""))
    with pytest.raises(EndpointError) as failed:
        models(endpoint)
    assert failed.value.way == "no pod"


@pytest.mark.parametrize(("every", "red"), [(5, True), (30, False)])
def test_a_way_that_loses_many_requests_is_told_though_each_was_answered(every: int, red: bool) -> None:
    asking, tries = AskAgain(0.0), itertools.count(1)

    def ask() -> None:
        if next(tries) % every == 0:
            raise EndpointError("It was cut.", way="cut")

    asking._left = 60.0
    for _ in range(60):
        asking(ask)
    assert bool(asking.loss) is red


def test_users_that_are_lost_at_once_count_each() -> None:
    asking, tries = AskAgain(0.0), itertools.count(1)
    asking._left = 60.0

    def burst(lost: int) -> None:
        if next(tries) % 2:
            raise EndpointError("Some were not answered.", way="cut", lost=lost, sent=100)

    asking(lambda: burst(3))
    assert asking.loss == ""
    asking(lambda: burst(30))
    assert asking.loss == "33 of 202 requests were lost on the way to the service"


def test_an_answer_that_takes_too_long_is_the_services_own() -> None:
    assert way_that_failed(TookTooLongError("slow")) == ""
    assert way_that_failed(httpx.ReadTimeout("nothing came")) == "timeout"


def test_a_service_that_hangs_does_not_use_up_the_time_of_the_run() -> None:
    asking = AskAgain(0.0)
    tries = itertools.count(1)

    def ask() -> None:
        next(tries)
        raise EndpointError("It does not answer in time.", way="timeout")

    for _ in range(2):
        with pytest.raises(EndpointError) as failed:
            asking(ask)
        assert failed.value.way == "timeout"  # a single try fails for one reason
    assert next(tries) == 3
    assert asking.is_over


def test_a_refusal_whose_head_arrived_is_a_refusal(asked: tuple[BrokenServer, Endpoint, AskAgain]) -> None:
    server, endpoint, _ = asked
    _replies(server, _UNAUTHORISED[:-24])
    assert status(endpoint, "POST", "/v1/completions", {}, 5.0, key="wrong") == 401
    assert len(server.asked) == 1


def test_nobody_who_listens_and_no_name_are_ways_that_failed(asked: tuple[BrokenServer, Endpoint, AskAgain]) -> None:
    _, endpoint, _ = asked
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for host, way in ((f"127.0.0.1:{port}", "refused"), ("nowhere.invalid", "dns")):
        endpoint.http.base_url = f"http://{host}"
        with pytest.raises(EndpointError) as failed:
            models(endpoint)
        assert failed.value.way == way


@pytest.fixture
def security(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The checks of who may ask."""
    pytestconfig.addinivalue_line("markers", "check(id): a smoke test")
    found = importlib.util.spec_from_file_location("checks_of_security", ROOT / "smoke-tests/test_security.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found.loader.exec_module(module)
    return module


_CASES: dict[str, tuple[tuple[bytes, ...], str, bool]] = {
    "an open path, and then no way": ((_LISTED, _CUT), "/v1/models answers 200", False),
    "a gateway without a pod": ((error(503, b""),), "/v1/models answers 503", True),
    "an open path, and then a gateway without a pod": ((_LISTED, error(503, b"")), "/v1/models answers 200", False),
}


@pytest.mark.parametrize(("replies", "seen", "way"), _CASES.values(), ids=_CASES)
def test_an_open_path_that_was_seen_counts_whatever_fails_after_it(
    asked: tuple[BrokenServer, Endpoint, AskAgain], security: Any, replies: tuple[bytes, ...], seen: str, way: bool
) -> None:
    server, endpoint, _ = asked
    _replies(server, *replies)
    with pytest.raises(FindingError) as failed:
        security._refused(endpoint, 5.0, None, "no key")
    assert (seen in failed.value.seen, bool(failed.value.way)) == (True, way)


def test_every_path_that_refuses_passes_also_where_its_refusals_are_cut(
    asked: tuple[BrokenServer, Endpoint, AskAgain], security: Any
) -> None:
    server, endpoint, asking = asked
    _replies(server, _UNAUTHORISED[:-24])
    assert security._refused(endpoint, 5.0, "wrong", "a wrong key").startswith("401 from /v1/models, ")
    assert asking.take_notes() == []
