"""`neuroscale query` where no cluster is asked: an address and a key, and whatever a server may send to a terminal."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from broken_model_server import DONE, HEAD, KEY, BrokenServer, broken_server, delta, error, event, stream, usage
from cluster_lab import run
from command_line import Said
from examples import examples
from neuroscale.cli import query as query_command
from neuroscale.cli.app import app
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.key import KEY_FILE_VARIABLE, KEY_VARIABLE
from neuroscale.core.printable import TerminalStream
from neuroscale.request.service_request import Request
from plan_factory import make_request

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc 0.0012
"""
MODELS = '{"data": [{"id": "tiny"}]}'


class Server:
    """Answers each path: metrics and models soundly, and chats as a test wants."""

    def __init__(self, broken: BrokenServer) -> None:
        self.broken = broken
        self.chat: bytes = HEAD + stream(["Hel", "lo"])
        self.metrics = page(METRICS)
        broken.reply = self._reply

    def _reply(self, connection: socket.socket) -> None:
        line = self.broken.asked[-1].line
        connection.sendall(self.metrics if "/metrics" in line else page(MODELS) if "/v1/models" in line else self.chat)

    def asked(self) -> object:
        return next(one.body for one in self.broken.asked if one.body is not None)


def page(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.chdir(tmp_path)  # no repository is needed
    with broken_server() as (found, _):
        yield Server(found)


def query(server: Server, *arguments: object) -> Said:
    return run("query", "chat", *arguments, "--base-url", server.broken.url)


def test_the_answer_is_standard_output_and_the_figures_are_standard_error(server: Server) -> None:
    said = query(server, "hello", "--system", "Be brief.", "--max-tokens", 9, "--temperature", 0)
    assert (said.status, said.out) == (0, "Hello\n")
    assert server.asked() == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "max_tokens": 9,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    rows = {line[:19].strip(): line[19:].split() for line in said.err.splitlines() if line.startswith("  ")}
    assert rows["tokens"][:4] == ["5", "in,", "2", "out,"]
    assert rows["finished"][0] == "stop:"
    assert rows["meanwhile"] == ["start", "peak", "end"]
    assert rows["requests running"] == ["2", "2", "2"]
    assert rows["requests waiting"] == ["1", "1", "1"]
    assert rows["KV cache used"] == ["0.12%", "0.12%", "0.12%"]
    assert KEY not in said.out + said.err


def test_json_has_everything_and_nothing_else_is_printed(server: Server) -> None:
    said = query(server, "hello", "--json")
    found = said.json
    assert (said.status, said.err) == (0, "")
    assert (found["text"], found["prompt_tokens"], found["completion_tokens"]) == ("Hello", 5, 2)
    assert found["meanwhile"]["waiting"] == {"start": 1.0, "peak": 1.0, "end": 1.0}
    assert found["looks"] >= 2
    assert KEY not in said.out


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_metric_that_is_not_finite_is_not_known(server: Server, value: str) -> None:
    server.metrics = page(METRICS.replace("0.0012", value))
    course = json.loads(query(server, "hello", "--json").out, parse_constant=pytest.fail)["meanwhile"]
    assert course["kv_cache_usage"] == {"start": None, "peak": None, "end": None}
    assert course["running"]["peak"] == 2.0
    assert "nan" not in query(server, "hello").err.lower()


def test_a_temperature_is_a_number(server: Server) -> None:
    said = query(server, "hello", "--temperature", "nan")
    assert (said.status, "--temperature" in said.err) == (2, True)


def test_an_answer_of_tool_calls_alone_is_not_called_empty(server: Server) -> None:
    part = delta("", 1)
    part["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "function": {"name": "weather", "arguments": "{}"}}]}
    server.chat = HEAD + event(part) + event(delta("", 1, "tool_calls")) + event(usage(1)) + DONE
    said = query(server, "hello")
    assert "The model calls tools: weather." in said.err
    assert "empty" not in said.err
    assert query(server, "hello", "--json").json["tool_calls"] == ["weather"]


def test_what_the_model_thinks_stands_apart(server: Server) -> None:
    server.chat = HEAD + event(delta("hm", 1, field_name="reasoning")) + event(delta("yes", 2)) + event(usage(2)) + DONE
    assert query(server, "hello").out == "Thinking:\nhm\n\nAnswer:\nyes\n"


def test_the_form_bounds_an_answer_and_an_option_asks_for_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = query_command._endpoint

    @contextmanager
    def of_a_cluster(*given: Any) -> Iterator[tuple[Endpoint, Request]]:
        with whole(*given) as (endpoint, nothing):
            assert nothing is None, "without a cluster the form is not known"
            yield endpoint, make_request(longest_answer_tokens=256)

    monkeypatch.setattr(query_command, "_endpoint", of_a_cluster)
    server.chat = HEAD + event(delta("so long", 256, "length")) + event(usage(256)) + DONE
    said = query(server, "hello")
    assert '"max_tokens": 256' in json.dumps(server.asked())
    assert "reached the form's longest answer of 256 tokens; --max-tokens asks for more" in said.err
    server.broken.asked.clear()
    more = query(server, "hello", "--max-tokens", 1000)
    assert '"max_tokens": 1000' in json.dumps(server.asked())
    assert "--max-tokens" not in more.err


def test_the_prompt_may_come_from_standard_input(server: Server) -> None:
    arguments = ["query", "chat", "-", "--base-url", server.broken.url]
    done = CliRunner().invoke(app, arguments, input="what\nis this?\n")
    assert done.exit_code == 0
    assert server.asked()["messages"] == [{"role": "user", "content": "what\nis this?\n"}]  # type: ignore[index]
    done = CliRunner().invoke(app, arguments, input=b"\xff")
    assert "is not UTF-8" in str(done.exception)
    done = CliRunner().invoke(app, arguments, input=" \n")
    assert "is empty" in str(done.exception)


def test_an_answer_that_breaks_off_shows_what_came_and_fails(server: Server) -> None:
    server.chat = HEAD + event(delta("Hel", 1))
    said = query(server, "hello")
    assert (said.status, said.out) == (1, "Hel\n")
    assert "The answer is incomplete." in said.err


def test_a_refused_key_and_metrics_that_are_not_there_are_said(server: Server) -> None:
    server.metrics = error(404, b"{}")
    said = query(server, "hello")
    assert said.status == 0
    assert "not seen" in said.err
    server.chat = error(401, b'{"error":"Unauthorized"}')
    said = query(server, "hello")
    assert said.status == 1
    assert "refuses the key" in said.err


def test_a_key_in_a_file_that_others_may_read_is_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o640)
    monkeypatch.delenv(KEY_VARIABLE)
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(file))
    said = query(server, "hello")
    assert said.status == 2
    assert "0600" in said.err
    assert server.broken.asked == []


def test_a_key_goes_to_no_address_that_others_could_listen_to(server: Server) -> None:
    said = run("query", "chat", "hello", "--base-url", "http://models.example.com")
    assert said.status == 2
    assert "not encrypted" in said.err


# What a model may write to a terminal ---------------------------------------------------------------------------------


def test_no_control_sequence_of_a_model_reaches_the_terminal(server: Server) -> None:
    texts = ["\x1b", "]0;evil\x07", "a\r", "b\r", "\nc", ":", ":error:", ":x", "\u202e", "LONE"]
    server.chat = HEAD + stream(texts).replace(b"LONE", rb"\ud83d")
    said = query(server, "hello")
    assert said.out == "\\x1b]0;evil\\x07a\\x0db\nc:\\x3aerror:\\x3ax\\u202e\\ud83d\n"


@settings(max_examples=examples(300))
@given(st.lists(st.text(st.characters(categories=("L", "P", "S", "Z", "Cc", "Cf", "Cs")), max_size=5), max_size=8))
@example([":", ":"])
@example([":", ":", ":"])
def test_a_stream_in_parts_is_shown_as_the_whole_would_be_and_harmless(parts: list[str]) -> None:
    stream, whole = TerminalStream(), TerminalStream()
    shown = "".join([*(stream.add(part) for part in parts), stream.end()])
    assert shown == whole.add("".join(parts)) + whole.end()
    assert "::" not in shown
    assert "##[" not in shown
    shown.encode()
    assert all(character.isprintable() or character in "\n\t\u200c\u200d" for character in shown)
