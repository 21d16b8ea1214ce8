"""Asks a served model by the API that vLLM shares with OpenAI: chats and completions, streamed or at once.

Tokens are counted by the server (its `usage`), never by parts of a stream: a part may hold several tokens, or none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from httpx_sse import EventSource, SSEError

from neuroscale.cluster.endpoint.connection import (
    Endpoint,
    TookTooLongError,
    bounded,
    refused,
    server_words,
    unreachable,
    way_that_failed,
)
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.core.printable import counted, one_line
from neuroscale.core.validation import items, part

_DONE = "[DONE]"


@dataclass(frozen=True)
class Options:
    """The options of a request. None: the server's default.

    `seconds`: the limit for the whole answer. `silence`: the most seconds between two parts, and until the first.
    `extra`: other fields of the request, such as vLLM's `ignore_eos` or `min_tokens`.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    seconds: float = 600.0
    silence: float = 120.0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One event of a stream.

    `seconds`: since the request was sent. `completion_tokens`: of the whole answer so far (None: not reported).
    `reasoning`: whether the text belongs to the model's reasoning before its answer.
    """

    text: str
    seconds: float
    completion_tokens: int | None = None
    reasoning: bool = False


@dataclass(frozen=True)
class Completion:
    """A whole answer.

    `prompt_tokens` and `completion_tokens`: as the server counts them. `ttft_seconds`: from sending the request to the
    first part with text or a tool call (None: not streamed, or none came). `seconds`: until the end of the answer.
    `tokens_per_second`: of decoding, tokens after the first part by the time they took (None: not streamed, or all
    came in one part). `finish_reason`: `stop`, `length`, ... `reasoning`: the model's reasoning before its answer.
    `tool_calls`: the names of the functions that the answer calls; such an answer may have no text. `parts`: the events
    of a stream that had text.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    finish_reason: str
    ttft_seconds: float | None = None
    tokens_per_second: float | None = None
    reasoning: str = ""
    tool_calls: tuple[str, ...] = ()
    parts: int = 0


@dataclass(frozen=True)
class Model:
    """A model that the server lists. `max_model_len`: tokens of prompt and answer together (None: not reported).
    `root`: what the server was started with, a folder or a repository of the Hub ("": not reported)."""

    id: str
    max_model_len: int | None = None
    root: str = ""


OnPart = Callable[[Part], None]


def chat(
    endpoint: Endpoint,
    messages: str | Sequence[Mapping[str, Any]],
    options: Options | None = None,
    *,
    stream: bool = True,
    on_part: OnPart | None = None,
) -> Completion:
    """Ask by `/v1/chat/completions`; a text becomes one message of a user. Raises EndpointError.

    `on_part` is called with each part of a stream as it comes. An exception that it raises ends the request.
    """
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(one) for one in messages]
    return _ask(endpoint, "/v1/chat/completions", {"messages": said}, options or Options(), stream, on_part)


def complete(
    endpoint: Endpoint,
    prompt: str | Sequence[int],
    options: Options | None = None,
    *,
    stream: bool = True,
    on_part: OnPart | None = None,
) -> Completion:
    """Ask by `/v1/completions`, with a text or with token ids. Raises EndpointError."""
    given = prompt if isinstance(prompt, str) else list(prompt)
    return _ask(endpoint, "/v1/completions", {"prompt": given}, options or Options(), stream, on_part)


def models(endpoint: Endpoint) -> tuple[Model, ...]:
    """The models that `/v1/models` lists. Raises EndpointError."""
    found = get_json(endpoint, "/v1/models")
    rows = found.get("data") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise EndpointError(f"{endpoint.url}/v1/models does not list models.", 200)
    return tuple(Model(row["id"], _count(row, "max_model_len"), _text(row, "root")) for row in rows)


def get_json(endpoint: Endpoint, path: str) -> Any:
    """The JSON value that a path answers to GET, with the endpoint's key. Raises EndpointError."""
    return endpoint.asking(lambda: _json(endpoint, "GET", path, None, 30.0)[0])


def post_json(endpoint: Endpoint, path: str, body: Mapping[str, Any], *, seconds: float = 30.0) -> Any:
    """The JSON value that a path answers to POST, such as `/tokenize`. Raises EndpointError."""
    return endpoint.asking(lambda: _json(endpoint, "POST", path, body, seconds)[0])


# ------------------------------------------------------------ one request


def _json(
    endpoint: Endpoint, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
) -> tuple[Any, float]:
    """The answer, and the seconds until its end."""
    began = time.monotonic()
    try:
        with endpoint.http.stream(
            method, path, json=body, headers=endpoint.headers(), timeout=httpx.Timeout(seconds, connect=10.0)
        ) as response:
            bounded(response, time.monotonic() + seconds)
            if not response.is_success:
                raise refused(endpoint, response)
            response.read()
    except httpx.HTTPError as error:
        raise unreachable(endpoint, path, error) from error
    took = time.monotonic() - began
    try:
        return response.json(), took
    except ValueError as error:
        shown = one_line(response.text, 200)
        raise EndpointError(f"{endpoint.url}{path} answers something else than JSON: {shown}", 200, shown) from error


def _ask(
    endpoint: Endpoint, path: str, question: Mapping[str, Any], options: Options, stream: bool, on_part: OnPart | None
) -> Completion:
    body: dict[str, Any] = {"model": endpoint.model, **question, **options.extra}
    wanted = {"max_tokens": options.max_tokens, "temperature": options.temperature, "seed": options.seed}
    body |= {name: value for name, value in wanted.items() if value is not None}
    if not stream:
        return _whole(endpoint, path, *endpoint.asking(lambda: _json(endpoint, "POST", path, body, options.seconds)))
    body |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return endpoint.asking(lambda: _streamed(endpoint, path, body, options, on_part))


def _streamed(
    endpoint: Endpoint, path: str, body: Mapping[str, Any], options: Options, on_part: OnPart | None
) -> Completion:
    reading = _Reading(endpoint, path, on_part)
    timeout = httpx.Timeout(min(options.silence, options.seconds), connect=10.0)
    headers = {**endpoint.headers(), "Accept": "text/event-stream", "Cache-Control": "no-store"}
    try:
        with endpoint.http.stream("POST", path, json=body, headers=headers, timeout=timeout) as response:
            bounded(response, time.monotonic() + options.seconds)
            if not response.is_success:
                raise refused(endpoint, response)
            # JSON is UTF-8, whatever the header says.
            response.encoding = "utf-8"
            reading.take(event.data for event in EventSource(response).iter_sse())
    except SSEError as error:
        raise EndpointError(f"{endpoint.url}{path} answers something else than a stream of events.", 200) from error
    except httpx.HTTPError as error:
        if reading.began is None:
            raise unreachable(endpoint, path, error) from error
        raise reading.broken(f"broke off ({_why(error)})", way=way_that_failed(error)) from error
    return reading.answer()


def _why(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, TookTooLongError):
        return "nothing came for too long"
    return one_line(str(error), 200) or type(error).__name__


def _whole(endpoint: Endpoint, path: str, found: Any, seconds: float) -> Completion:
    choice = _choice(found)
    usage = found.get("usage") if isinstance(found, dict) else None
    if choice is None or not isinstance(usage, dict):
        raise EndpointError(f"{endpoint.url}{path} answers JSON that is not a completion with its usage.", 200)
    message = choice.get("message") if isinstance(choice.get("message"), dict) else choice
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None or completion is None:
        raise EndpointError(f"{endpoint.url}{path} does not report how many tokens it counted.", 200)
    return Completion(
        text=_text(message, "content") or _text(message, "text"),
        prompt_tokens=prompt,
        completion_tokens=completion,
        seconds=seconds,
        finish_reason=_text(choice, "finish_reason"),
        reasoning=_text(message, "reasoning") or _text(message, "reasoning_content"),
        tool_calls=tuple(_called(message)),
    )


class _Reading:
    """Joins a stream's events to an answer."""

    def __init__(self, endpoint: Endpoint, path: str, on_part: OnPart | None) -> None:
        self._place = f"{endpoint.url}{path}"
        self._endpoint = endpoint
        self._on_part = on_part
        self._sent = time.monotonic()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tools: list[str] = []
        self._parts = 0
        self._finish = ""
        self._done = False
        self._prompt: int | None = None
        self._completion: int | None = None
        self._first: tuple[float, int] | None = None  # pairs of seconds and the tokens until then
        self._last: tuple[float, int] | None = None
        self.began: float | None = None

    def take(self, events: Iterator[str]) -> None:
        """Read until the server marks the end of the stream."""
        self.began = time.monotonic()
        for data in events:
            if data.strip() == _DONE:
                self._done = True
                return
            if data:
                self._event(data, time.monotonic() - self._sent)

    def _event(self, data: str, seconds: float) -> None:
        try:
            found = json.loads(data)
        except ValueError:
            raise self.broken(f"sent an event that is not JSON ({one_line(data, 100)})") from None
        if not isinstance(found, dict):
            raise self.broken(f"sent an event that is not a completion ({one_line(data, 100)})")
        if found.get("error"):
            said = server_words(found)
            raise self.broken("ended with an error", said)
        usage = found.get("usage")
        tokens = None
        if isinstance(usage, dict):
            prompt, tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
            self._prompt = self._prompt if prompt is None else prompt
        grown = tokens is not None and tokens > (self._completion or 0)
        self._completion = tokens if tokens is not None else self._completion
        choice = _choice(found)
        if choice is None:
            return
        self._finish = _text(choice, "finish_reason") or self._finish
        delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else choice
        thought = _text(delta, "reasoning") or _text(delta, "reasoning_content")
        text = _text(delta, "content") or _text(delta, "text")
        calls = bool(isinstance(delta, dict) and delta.get("tool_calls"))
        self._tools.extend(_called(delta))
        if (thought or text or calls) and self._first is None:
            self._first = (seconds, max(1, tokens or 1))
        if thought or text or calls or grown:
            self._last = (seconds, tokens or 0)
        for words, kept, reasoning in ((thought, self._reasoning, True), (text, self._text, False)):
            if words:
                self._parts += 1
                kept.append(words)
                if self._on_part is not None:
                    self._on_part(Part(words, seconds, tokens, reasoning))

    def broken(self, what: str, said: str = "", way: str = "") -> EndpointError:
        """The error of a stream that broke off, with the tokens that had arrived."""
        arrived = "".join(self._text) or "".join(self._reasoning)
        amount = counted(self._completion, "token") if self._completion else counted(len(arrived), "character")
        came = f"after {amount} had arrived" if arrived else "before any text had arrived"
        words = f": {said.rstrip('.')}" if said else ""
        look = f"The answer is incomplete. Read the server's log: {self._endpoint.look}."
        told = f"{self._place} {what} {came}{words}. {look}"
        return EndpointError(told, 200, said, arrived, way)

    def answer(self) -> Completion:
        """The whole answer. Raises EndpointError if the stream ended too early, or lacks its token counts."""
        if not self._done:
            raise self.broken("ended the stream without its end mark")
        if self._prompt is None or self._completion is None:
            raise EndpointError(
                f"{self._place} does not report how many tokens it counted (usage). Is it vLLM?",
                200,
                arrived="".join(self._text),
            )
        rate = None
        if self._first is not None and self._last is not None:
            tokens, seconds = self._completion - self._first[1], self._last[0] - self._first[0]
            rate = tokens / seconds if tokens > 0 and seconds > 0 else None
        return Completion(
            text="".join(self._text),
            prompt_tokens=self._prompt,
            completion_tokens=self._completion,
            seconds=time.monotonic() - self._sent,
            finish_reason=self._finish,
            ttft_seconds=None if self._first is None else self._first[0],
            tokens_per_second=rate,
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._tools),
            parts=self._parts,
        )


def _choice(found: Any) -> dict[str, Any] | None:
    return next(iter(items(found, "choices")), None)


def _called(found: Any) -> Iterator[str]:
    """The names of the functions that a message, or a part of one, calls. A stream names each in its first part."""
    for call in items(found, "tool_calls"):
        if name := _text(part(call, "function"), "name"):
            yield name


def _text(found: Any, name: str) -> str:
    value = part(found).get(name)
    return value if isinstance(value, str) else ""


def _count(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
