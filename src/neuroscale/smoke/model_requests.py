"""Asks a model for the checks, and judges whether an answer is garbage.

It does not judge the meaning. It finds the answers of servers with broken weights, cache or numbers: nothing, the same
token again and again (NaN logits give text like `!!!!`), a short cycle, or bytes that are not text.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import math
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from neuroscale.cluster.endpoint.chat import Completion, Options, complete, post_json
from neuroscale.cluster.endpoint.connection import Endpoint, unreachable
from neuroscale.cluster.endpoint.errors import EndpointError
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


def at_once(
    endpoint: Endpoint, prompts: Sequence[Sequence[int]], options: Options
) -> tuple[list[Completion], list[EndpointError]]:
    """Send all prompts at the same moment, each streamed. Returns the answers and the errors."""
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
    """The HTTP status that a path answers to a request with this key (None: without a key). Raises EndpointError."""
    return reply(endpoint, method, path, body, patience, key=key)[0]


def reply(
    endpoint: Endpoint, method: str, path: str, body: Mapping[str, Any] | None, patience: float, *, key: str | None
) -> tuple[int, str]:
    """The HTTP status and the beginning of the text that a path answers to a request with this key (None: without one).
    Raises EndpointError."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with endpoint.http.stream(method, path, json=body, headers=headers, timeout=patience) as response:
            data = b""
            for part in response.iter_bytes():
                data += part
                if len(data) > _LARGEST_REPLY:
                    break
            return response.status_code, data.decode(errors="replace")
    except httpx.HTTPError as error:
        raise unreachable(endpoint, path, error) from error
