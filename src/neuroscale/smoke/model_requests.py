"""Asks a model for the checks, again where the way to it failed, and judges whether an answer is garbage.

It does not judge the meaning of an answer. It finds those of servers with broken weights, cache or numbers: nothing,
the same token again and again (NaN logits give text like `!!!!`), a short cycle, or bytes that are not text.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import math
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import httpx

from neuroscale.cluster.endpoint.chat import Completion, Options, complete, post_json
from neuroscale.cluster.endpoint.connection import Endpoint, once, unreachable
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted, one_line
from neuroscale.core.waiting import repeatedly
from neuroscale.smoke.results import CannotTellError

MOST_UNTEXT: Final = 0.05
"""The largest allowed share of control, replacement, unassigned or private characters."""
FEWEST_REPEATS: Final = 4
LEAST_SHARE: Final = 0.5
"""A part that repeats at least so often, over at least this share of the answer, is a cycle."""
_LONGEST_CYCLE: Final = {"words": 16, "characters": 48}
_SHORTEST: Final = {"words": 8, "characters": 16}
_UNTEXT: Final = ("Cc", "Cn", "Co", "Cs")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def garbage(text: str) -> str | None:
    """The fault of an answer, in words; None if it is text."""
    # A character of several tokens may be cut in two if the answer reaches its longest length.
    text = text.removesuffix(_REPLACEMENT)
    if not text.strip():
        return "it is empty"
    if (share := _untext(text)) > MOST_UNTEXT:
        return f"it is not text: {share:.0%} of its characters are control, replacement or unassigned characters"
    for kind, units in (("words", text.split()), ("characters", list(text.strip()))):
        if found := _cycle(units, _LONGEST_CYCLE[kind], _SHORTEST[kind]):
            length, times = found
            part = "the same one" if length == 1 else f"the same {length}"
            return f"it repeats itself: {part} of its {kind} {times} times"
    return None


def _untext(text: str) -> float:
    wrong = sum(
        character == _REPLACEMENT or (unicodedata.category(character) in _UNTEXT and character not in "\t\n\r")
        for character in text
    )
    return wrong / len(text)


def _cycle(units: Sequence[str], longest: int, shortest: int) -> tuple[int, int] | None:
    """Length and count of a part whose repetition fills most of the units."""
    for length in range(1, min(longest, len(units) // FEWEST_REPEATS) + 1):
        run = best = 0
        for before, now in zip(units, units[length:], strict=False):
            run = run + 1 if before == now else 0
            best = max(best, run)
        filled = best + length
        if best and filled >= max(shortest, LEAST_SHARE * len(units)) and filled // length >= FEWEST_REPEATS:
            return length, filled // length
    return None


SLOWEST: Final = 0.25
"""Seconds for each token. A server that decodes more slowly counts as hanging."""
FASTEST: Final = 2000.0
"""Tokens per second for one user, about twice vLLM's speed. A faster stream was held back on its way."""
_WORDS: Final = (
    "Write about a river that leaves the mountains in spring, passes three towns and a mill, and reaches the sea. "
    "Tell what grows on its banks, who fishes there, which bridges cross it, and how people speak of its floods."
)
_LARGEST_REPLY: Final = 64 * 1024
_STACK: Final = 512 * 1024  # bytes of the stack of a user's thread


def limits(patience: float, tokens: int, *, sampled: bool = False, whole: bool = False) -> Options:
    """The options that ask for at most so many tokens. `sampled`: at temperature 1 with a seed. `whole`: exactly so
    many, even if the model would end earlier."""
    return Options(
        max_tokens=tokens,
        temperature=1.0 if sampled else 0.0,
        seed=7 if sampled else None,
        seconds=patience + SLOWEST * tokens,
        silence=patience,
        extra={"ignore_eos": True} if whole else {},
    )


class Prompts:
    """Prompts as token ids: each has an exact length, and no two have the same beginning."""

    def __init__(self, ids: Sequence[int]) -> None:
        """`ids`: at least three different tokens."""
        self._ids = tuple(ids)
        self._next = itertools.count(1)

    @classmethod
    def of_server(cls, endpoint: Endpoint, patience: float) -> Prompts:
        """Prompts of tokens that the server knows. Raises CannotTellError if it does not list them, and
        EndpointError.
        """
        return cls(_token_ids(endpoint, patience))

    def of(self, tokens: int) -> list[int]:
        """A prompt of exactly so many tokens. Its beginning is unique, so that a prefix cache cannot shorten the
        work.
        """
        size, turn = len(self._ids), next(self._next)
        step = 1 + turn // size % (size - 1)
        return [self._ids[(turn + place * step) % size] for place in range(tokens)]


def _token_ids(endpoint: Endpoint, patience: float) -> list[int]:
    """The token ids of some words, as the server itself tokenizes them."""
    asked = {"model": endpoint.model, "prompt": _WORDS, "max_tokens": 1, "return_token_ids": True}
    found = post_json(endpoint, "/v1/completions", asked, seconds=patience)
    choices = found.get("choices") if isinstance(found, dict) else None
    ids = choices[0].get("prompt_token_ids") if isinstance(choices, list) and choices else None
    # The first token may be the one that begins every text.
    words = list(dict.fromkeys(ids[1:])) if isinstance(ids, list) else []
    if len(words) < 3 or not all(isinstance(one, int) for one in words):
        raise CannotTellError(
            "the server does not return a prompt's token ids (return_token_ids), so no prompt of an exact length "
            "can be made",
            "Is it a vLLM of at least 0.10.2? See the runtime's image.",
        )
    return words


_Answer = TypeVar("_Answer")
_TRIES: Final = 4
MOST_LOST: Final = 0.05
FEWEST_LOST: Final = 4
"""A way that loses a larger share of the requests, and at least so many, is no way for clients."""
_ORDINALS: Final = ("first", "second", "third", "fourth")


class AskAgain:
    """Asks a service again where the way to it failed (`EndpointError.way`): one cut connection fails no check.

    An answer of the service, right or wrong, ends the tries: no wrong answer is ever asked away. After the last try its
    error counts unless the try before it failed for another reason: then it is not known what is wrong. The pauses
    double.
    `patience`: seconds that a first answer may take. Nothing is asked again once the tries that failed, and the pauses,
    have taken twice that together: a service that hangs must not use up the time of the run.

    Requests that were lost count also where they were answered at a later try: see `loss`.
    """

    def __init__(self, patience: float) -> None:
        self._left = 2.0 * patience  # seconds
        self._first_pause = patience / 60
        self._sent = self._lost = 0
        self._notes: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether tries that failed have used up the time for asking again."""
        return self._left <= 0

    @property
    def loss(self) -> str:
        """How many requests were lost on the way, in words; "" if they are few."""
        few = self._lost < FEWEST_LOST or self._lost <= MOST_LOST * self._sent
        return "" if few else f"{self._lost} of {self._sent} requests were lost on the way to the service"

    def __call__(self, ask: Callable[[], _Answer]) -> _Answer:
        """Raises EndpointError, or CannotTellError where the last two tries failed for different reasons."""
        began = time.monotonic()
        failures: list[EndpointError] = []

        def again(error: Exception) -> bool:
            if not isinstance(error, EndpointError) or not error.way:
                return False
            failures.append(error)
            return self._left > time.monotonic() - began

        try:
            answer = repeatedly(ask, attempts=_TRIES, again=again, first_pause=self._first_pause)
        except EndpointError as error:
            if not error.way:
                raise
            failures += [] if error in failures else [error]
            self._notes.append(f"asked {counted(len(failures), 'time')} in {duration(time.monotonic() - began)}")
            if len(failures) > 1 and failures[-2].way != error.way:
                told = f"the way to the service fails for changing reasons, so the service cannot be judged: {error}"
                raise CannotTellError(told, "Look at the gateway and the network before the service.") from error
            raise
        finally:
            self._left -= time.monotonic() - began if failures else 0.0
            self._sent += sum(error.sent for error in failures)
            self._lost += sum(error.lost for error in failures)
        self._sent += 1
        if failures:
            self._notes.append(f"at the {_ORDINALS[len(failures)]} try; the first: {one_line(str(failures[0]), 200)}")
        return answer

    def take_notes(self) -> list[str]:
        """What was asked again since the last call of this, in words."""
        notes, self._notes = self._notes, []
        return notes


def at_once(
    endpoint: Endpoint, prompts: Callable[[], Sequence[Sequence[int]]], options: Options
) -> tuple[list[Completion], list[EndpointError]]:
    """Send all prompts at the same moment, each streamed. Returns the answers and the errors.

    Where nothing but the way failed, all are sent again, with new prompts: one alone would meet less load. Raises
    EndpointError if only the way fails again.
    """

    def ask() -> tuple[list[Completion], list[EndpointError]]:
        answers, errors = _at_once(replace(endpoint, asking=once), prompts(), options)
        whole = all(answer.completion_tokens == options.max_tokens for answer in answers)
        if errors and whole and all(error.way for error in errors):
            told = f"{len(errors)} of {len(errors) + len(answers)} at once were not answered; the first: {errors[0]}"
            sent = len(errors) + len(answers)
            raise EndpointError(told, errors[0].status, way=errors[0].way, lost=len(errors), sent=sent)
        return answers, errors

    return endpoint.asking(ask)


def _at_once(
    endpoint: Endpoint, prompts: Sequence[Sequence[int]], options: Options
) -> tuple[list[Completion], list[EndpointError]]:
    gate = threading.Barrier(len(prompts))

    def one(prompt: Sequence[int]) -> Completion | EndpointError:
        gate.wait(30.0)
        try:
            return complete(endpoint, prompt, options)
        except EndpointError as error:
            return error

    before = threading.stack_size(_STACK)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            found = list(pool.map(one, prompts))
    finally:
        threading.stack_size(before)
    answers = [answer for answer in found if isinstance(answer, Completion)]
    return answers, [error for error in found if isinstance(error, EndpointError)]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of at least one value; `share` 0..1."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def status(
    endpoint: Endpoint, method: str, path: str, body: Mapping[str, Any] | None, patience: float, *, key: str | None
) -> int:
    """The HTTP status that a path answers to a request with this key (None: without a key). It needs no more than the
    head of the answer. Raises EndpointError."""
    return reply(endpoint, method, path, body, patience, key=key, most=0)[0]


def reply(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: Mapping[str, Any] | None,
    patience: float,
    *,
    key: str | None,
    most: int = _LARGEST_REPLY,
) -> tuple[int, str]:
    """The HTTP status, and the first `most` bytes or so of an answer below 400, for a request with this key (None:
    without one). Raises EndpointError."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def ask() -> tuple[int, str]:
        try:
            with endpoint.http.stream(method, path, json=body, headers=headers, timeout=patience) as response:
                found = response.status_code
                if way := endpoint.way_of(found):
                    raise EndpointError(f"{endpoint.url}{path} answers {found}", found, way=way)
                data = b""
                for part in response.iter_bytes() if most and found < 400 else ():
                    data += part
                    if len(data) > most:
                        break
                return found, data.decode(errors="replace")
        except httpx.HTTPError as error:
            raise unreachable(endpoint, path, error) from error

    try:
        return endpoint.asking(ask)
    except EndpointError as error:
        if error.status is None:
            raise
        return error.status, ""  # of a gateway without a pod, for good
