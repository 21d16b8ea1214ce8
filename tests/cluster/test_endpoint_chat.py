"""Asking a model: what a stream's bytes mean, however they are cut, and what is said where they are broken."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broken_model_server import (
    DONE,
    HEAD,
    KEY,
    BrokenServer,
    broken_server,
    delta,
    error,
    event,
    stream,
    usage,
)
from examples import examples
from neuroscale.cluster.endpoint import chat
from neuroscale.cluster.endpoint.chat import Options, Part
from neuroscale.cluster.endpoint.connection import Endpoint, client
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.core.errors import ExitStatus

SHORT = Options(seconds=5.0, silence=2.0)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[BrokenServer, Endpoint]]:
    with broken_server() as found:
        yield found


@pytest.fixture
def server(pair: tuple[BrokenServer, Endpoint]) -> BrokenServer:
    pair[0].asked.clear()
    return pair[0]


@pytest.fixture
def endpoint(pair: tuple[BrokenServer, Endpoint]) -> Endpoint:
    return pair[1]


def failure(endpoint: Endpoint, options: Options = SHORT, *, streamed: bool = True) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        chat.chat(endpoint, "hello", options, stream=streamed)
    assert caught.value.exit_status == ExitStatus.FINDINGS
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


# Sound streams --------------------------------------------------------------------------------------------------------


def test_an_answer_has_the_servers_counts_and_its_parts_in_order(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(HEAD, stream(["Hel", "lo", " 🌍"]))
    parts: list[Part] = []
    answer = chat.chat(endpoint, "hello", SHORT, on_part=parts.append)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("Hello 🌍", 5, 3)
    assert answer.finish_reason == "stop"
    assert [(part.text, part.completion_tokens) for part in parts] == [("Hel", 1), ("lo", 2), (" 🌍", 3)]
    assert answer.ttft_seconds is not None
    assert parts[0].seconds == answer.ttft_seconds <= answer.seconds


def test_the_key_goes_into_a_header_and_the_counts_are_asked_for(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(HEAD, stream(["x"]))
    chat.chat(endpoint, "hello", Options(max_tokens=7, temperature=0, seed=3, extra={"ignore_eos": True}))
    (asked,) = server.asked
    assert asked.line == "POST /v1/chat/completions HTTP/1.1"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 7,
        "temperature": 0,
        "seed": 3,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_nothing_is_shown_where_there_is_no_key(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(HEAD, stream(["x"]))
    chat.chat(dataclasses.replace(endpoint, key=None), "hello", SHORT)
    assert "authorization" not in server.asked[0].headers
    assert KEY not in repr(endpoint)


def test_an_answer_of_tool_calls_alone_is_not_empty(server: BrokenServer, endpoint: Endpoint) -> None:
    def calls(tokens: int, **function: str) -> bytes:
        part = delta("", tokens)
        part["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "function": function}]}
        return event(part)

    parts = (calls(1, name="get_weather", arguments=""), calls(2, arguments='{"city": '), calls(3, arguments='"Bonn"}'))
    server.says(HEAD, *parts, event(delta("", 3, "tool_calls")), event(usage(3)), DONE)
    answer = chat.chat(endpoint, "hello", SHORT)
    assert (answer.text, answer.tool_calls, answer.finish_reason) == ("", ("get_weather",), "tool_calls")
    assert answer.ttft_seconds is not None


def test_the_first_token_is_the_first_with_text_and_the_rate_counts_tokens_after_it(
    server: BrokenServer, endpoint: Endpoint
) -> None:
    """The role comes first and is no token; a part may bring several tokens."""

    def reply(connection: socket.socket) -> None:
        connection.sendall(HEAD + event(delta("", 0, field_name="role")))
        time.sleep(0.2)
        connection.sendall(event(delta("a", 2)))
        time.sleep(0.2)
        connection.sendall(event(delta("bcd", 6)) + event(delta("", 6, "length")) + event(usage(6)))
        time.sleep(0.2)
        connection.sendall(DONE)

    server.reply = reply
    answer = chat.chat(endpoint, "hello", SHORT)
    assert answer.ttft_seconds is not None
    assert 0.2 <= answer.ttft_seconds < 0.4
    assert answer.tokens_per_second is not None
    assert 4 / 0.4 < answer.tokens_per_second <= 4 / 0.19
    assert answer.seconds >= 0.6


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_what_a_model_thinks_is_a_first_token_and_told_apart(
    server: BrokenServer, endpoint: Endpoint, name: str
) -> None:
    server.says(HEAD, event(delta("hm", 1, field_name=name)), event(delta("yes", 2)), event(usage(2)), DONE)
    parts: list[Part] = []
    answer = chat.chat(endpoint, "hello", SHORT, on_part=parts.append)
    assert (answer.reasoning, answer.text) == ("hm", "yes")
    assert [(part.text, part.reasoning) for part in parts] == [("hm", True), ("yes", False)]
    assert answer.ttft_seconds == parts[0].seconds


def test_one_token_has_no_rate_and_no_token_has_no_first(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(HEAD, stream(["x"]))
    assert chat.chat(endpoint, "hello", SHORT).tokens_per_second is None
    server.says(HEAD, stream([]))
    answer = chat.chat(endpoint, "hello", SHORT)
    assert (answer.text, answer.completion_tokens, answer.ttft_seconds) == ("", 0, None)


def test_a_completion_takes_numbers_of_tokens_and_reads_text(server: BrokenServer, endpoint: Endpoint) -> None:
    found = {"choices": [{"text": "ab", "finish_reason": None}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    server.says(HEAD, event(found), DONE)
    answer = chat.complete(endpoint, [1, 2, 3], SHORT)
    assert (answer.text, answer.prompt_tokens) == ("ab", 3)
    assert server.asked[0].line.startswith("POST /v1/completions ")
    assert server.asked[0].body["prompt"] == [1, 2, 3]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5),
    st.lists(st.integers(0, 2000), max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_an_answer_is_the_same_wherever_its_bytes_are_cut_and_however_lines_end(
    pair: tuple[BrokenServer, Endpoint], texts: list[str], cuts: list[int], line_end: bytes
) -> None:
    server, endpoint = pair
    data = (b": a comment\n\n" + stream(texts)).replace(b"\n", line_end)
    places = sorted({min(cut, len(data)) for cut in cuts})
    parts = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    server.says(HEAD, *parts)
    answer = chat.chat(endpoint, "hello", SHORT)
    assert (answer.text, answer.completion_tokens) == ("".join(texts), len(texts))


# Broken ones ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10_000))
def test_a_stream_that_ends_early_is_never_taken_for_a_whole_answer(
    pair: tuple[BrokenServer, Endpoint], place: int
) -> None:
    server, endpoint = pair
    data = stream(["one ", "two ", "three"])
    server.says(HEAD, data[: place % (len(data) - 1)])
    found = failure(endpoint)
    assert found.arrived in ("", "one ", "one two ", "one two three")


def test_a_server_that_dies_says_what_had_arrived(server: BrokenServer, endpoint: Endpoint) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = event(delta("one ", 1)) + event(delta("two", 2))
    server.says(head, b"%x\r\n%s\r\n" % (len(data), data))
    found = failure(endpoint)
    assert found.arrived == "one two"
    assert "after 2 tokens had arrived" in str(found)
    assert "kubectl logs" in str(found)


def test_a_connection_that_is_reset_says_what_had_arrived(server: BrokenServer, endpoint: Endpoint) -> None:
    def reply(connection: socket.socket) -> None:
        connection.sendall(HEAD + event(delta("one", 1)))
        time.sleep(0.1)  # until it was read, which a reset would prevent
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    server.reply = reply
    assert failure(endpoint).arrived == "one"


def test_an_error_in_the_middle_of_a_stream_is_handed_on(server: BrokenServer, endpoint: Endpoint) -> None:
    broken = {"error": {"message": "EngineCore died\nagain", "type": "InternalServerError", "code": 500}}
    server.says(HEAD, event(delta("one", 1)), event(broken), DONE)
    found = failure(endpoint)
    assert (found.said, found.arrived) == ("EngineCore died again", "one")


@pytest.mark.parametrize("words", ["EngineCore died. Restart it.", "EngineCore died. Restart it"])
def test_the_words_of_a_server_stand_behind_our_own_sentence(
    server: BrokenServer, endpoint: Endpoint, words: str
) -> None:
    server.says(HEAD, event(delta("one", 1)), event({"error": {"message": words}}), DONE)
    told = str(failure(endpoint))
    assert "ended with an error after 1 token had arrived: EngineCore died. Restart it. The answer is" in told


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: [1]\n\n", b'data: "x"\n\n', b"data: \xff\xfe\n\n"])
def test_an_event_that_is_no_completion_ends_the_answer(server: BrokenServer, endpoint: Endpoint, data: bytes) -> None:
    server.says(HEAD, event(delta("one", 1)), data, stream(["two"]))
    assert failure(endpoint).arrived == "one"


def test_bytes_that_are_not_utf_8_are_shown_as_such_and_break_nothing(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(HEAD, stream(["a", "XX", "b"]).replace(b"XX", b"\xff\xc3"))
    assert chat.chat(endpoint, "hello", SHORT).text == "a��b"


def test_an_answer_without_counts_is_refused(server: BrokenServer, endpoint: Endpoint) -> None:
    without = {**delta("one", 1), "usage": None}
    server.says(HEAD, event(without), DONE)
    found = failure(endpoint)
    assert "how many tokens" in str(found)
    assert found.arrived == "one"


def test_a_page_instead_of_a_stream_is_refused(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>")
    assert "stream of events" in str(failure(endpoint))


def test_a_server_that_never_answers_is_left_in_time(server: BrokenServer, endpoint: Endpoint) -> None:
    over = threading.Event()

    def reply(_: socket.socket) -> None:
        over.wait(60)

    server.reply = reply
    began = time.monotonic()
    found = failure(endpoint, Options(seconds=60.0, silence=0.3))
    over.set()
    assert time.monotonic() - began < 30
    assert found.status is None
    assert "in time" in str(found)


def test_a_server_that_falls_silent_is_left_in_time(server: BrokenServer, endpoint: Endpoint) -> None:
    over = threading.Event()

    def reply(connection: socket.socket) -> None:
        connection.sendall(HEAD + event(delta("one", 1)))
        over.wait(20)

    server.reply = reply
    found = failure(endpoint, Options(seconds=5.0, silence=0.3))
    over.set()
    assert found.arrived == "one"
    assert "nothing came for too long" in str(found)


def test_a_server_that_drips_for_ever_is_left_in_time(server: BrokenServer, endpoint: Endpoint) -> None:
    over = threading.Event()

    def reply(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        while not over.wait(0.05):
            connection.sendall(b": still there\n\n")

    server.reply = reply
    began = time.monotonic()
    found = failure(endpoint, Options(seconds=0.5, silence=0.3))
    over.set()
    assert time.monotonic() - began < 30
    assert "longer than its time limit" in str(found)


def test_a_line_without_an_end_fills_no_memory(
    server: BrokenServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuroscale.cluster.endpoint.connection._LARGEST_ANSWER", 100_000)
    server.says(HEAD, *[b"x" * 60_000] * 3)
    assert "more than 100,000 bytes" in str(failure(endpoint))


def test_a_compressed_answer_is_refused(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), b"x")
    assert "compressed" in str(failure(endpoint))


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("status", "body", "said", "advice"),
    [
        (401, b'{"error":"Unauthorized"}', "Unauthorized", "neuroscale key chat --print"),
        (
            400,
            b'{"error":{"message":"This model\'s maximum context length is 10 tokens.\\nNo."}}',
            "This model's maximum context length is 10 tokens. No.",
            "Shorten the prompt",
        ),
        (404, b'{"error":{"message":"The model `x` does not exist."}}', "The model `x` does not exist.", "/v1/models"),
        (429, b'{"detail":"slow down"}', "slow down", "wait"),
        (500, b"Internal Server Error", "Internal Server Error", "kubectl logs"),
        (503, b"", "", "neuroscale status chat"),
        (307, b"", "", "address"),
        (502, b"<html>\n<b>bad\x1b[31m</b>", r"<html> <b>bad\x1b[31m</b>", "neuroscale status chat"),
    ],
)
def test_a_refusal_says_the_servers_words_and_what_to_do(
    server: BrokenServer, endpoint: Endpoint, status: int, body: bytes, said: str, advice: str, streamed: bool
) -> None:
    server.says(error(status, body))
    found = failure(endpoint, streamed=streamed)
    assert (found.status, found.said) == (status, said)
    assert advice in str(found)


def test_a_refusal_that_quotes_the_key_or_never_ends_is_made_harmless(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(error(400, json.dumps({"error": {"message": f"not {KEY}! {'x' * 5000}"}}).encode()))
    found = failure(endpoint)
    assert found.said.startswith("not ***! x")
    assert len(found.said) <= 500
    server.says(error(400, b"y" * 1_000_000))
    assert len(failure(endpoint).said) <= 500


def test_nobody_at_the_address_says_so(endpoint: Endpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with client(nobody, direct=True) as http:
        found = failure(dataclasses.replace(endpoint, url=nobody, http=http))
    assert found.status is None
    assert "refuses the connection to port" in str(found)


# Not streamed ---------------------------------------------------------------------------------------------------------


def whole(body: object) -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


def test_an_answer_at_once_has_the_same_fields_and_no_times_of_tokens(server: BrokenServer, endpoint: Endpoint) -> None:
    message = {"role": "assistant", "content": "yes", "reasoning": "hm"}
    counts = {"prompt_tokens": 5, "completion_tokens": 2}
    server.says(whole({"choices": [{"message": message, "finish_reason": "stop"}], "usage": counts}))
    answer = chat.chat(endpoint, "hello", SHORT, stream=False)
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("yes", "hm", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (5, 2)
    assert (answer.ttft_seconds, answer.tokens_per_second) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"choices": []},
        {"choices": [{"message": {"content": "x"}}]},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "5", "completion_tokens": True}},
    ],
)
def test_json_that_is_no_answer_is_refused(server: BrokenServer, endpoint: Endpoint, body: object) -> None:
    server.says(whole(body))
    failure(endpoint, streamed=False)


def test_models_are_listed_with_their_lengths(server: BrokenServer, endpoint: Endpoint) -> None:
    server.says(whole({"data": [{"id": "a", "max_model_len": 10}, {"id": "b"}]}))
    assert chat.models(endpoint) == (chat.Model("a", 10), chat.Model("b", None))
    server.says(whole({"data": [{}]}))
    with pytest.raises(EndpointError, match="does not list models"):
        chat.models(endpoint)
