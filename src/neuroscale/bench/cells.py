"""Plans the cells of a benchmark: their requests, their time and price, and why a cell is not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from neuroscale.planning.speed import SpeedUnderLoad

START_SECONDS = 20.0
"""Seconds that guidellm takes to start and to write its report: 10 to 15 on two idle cores."""
_TOKEN_SECONDS = 60e-6
"""Seconds in which guidellm makes a token of a prompt, before the first request. 50 to 61 microseconds were measured,
with prompts of 256 to 32,768 tokens and the tokenizer of a tiny model on a busy core."""
_SHORTEST, _LONGEST, _UNKNOWN = 60.0, 1800.0, 300.0  # seconds of a cell
_ROUNDS = 4  # of requests that each user sends after the warm-up, at least
_CLOCK = 2.0  # how many times as long as expected a cell may take


@dataclass(frozen=True)
class Cell:
    """A closed load to measure: `users` who each send the next request once the last one is answered, with prompts and
    answers of these tokens. `run`: 1, or the number of a repetition."""

    users: int
    prompt_tokens: int
    answer_tokens: int
    run: int = 1

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"u{self.users}-p{self.prompt_tokens}-a{self.answer_tokens}" + (f"-r{self.run}" if self.run > 1 else "")

    def __str__(self) -> str:
        users = "1 user" if self.users == 1 else f"{self.users} users"
        repeated = f", run {self.run}" if self.run > 1 else ""
        return f"{users}, {self.prompt_tokens:,} + {self.answer_tokens:,} tokens{repeated}"


@dataclass(frozen=True)
class Limits:
    """`requests`: the fewest that a cell measures. `cell_seconds`: the most of a cell (None: by the prediction).
    `total_seconds`: after these, no further cell is begun."""

    requests: int = 40
    cell_seconds: float | None = None
    total_seconds: float = 3600.0


@dataclass(frozen=True)
class Room:
    """What the server takes of a cell: tokens of a request, and how many of its requests the KV cache holds at once,
    with `source`, who says so. None: unknown."""

    longest_request: int | None = None
    held: int | None = None
    source: str = ""


@dataclass(frozen=True)
class PlannedCell:
    """A cell with the requests of its warm-up and those that count, the seconds that it may take, the seconds that the
    prediction expects (None: unknown), and why it is not run ("": it is)."""

    cell: Cell
    warm_up: int
    requests: int
    seconds: float
    expected_seconds: float | None
    skipped: str = ""

    @property
    def prompts(self) -> int:
        """How many are made ahead: guidellm has more requests at hand than it sends."""
        return self.warm_up + self.requests + 2 * self.cell.users

    @property
    def preparing_seconds(self) -> float:
        """The seconds before the first request and after the last answer."""
        return START_SECONDS + self.prompts * self.cell.prompt_tokens * _TOKEN_SECONDS


def plan_cell(cell: Cell, limits: Limits, room: Room, speed: SpeedUnderLoad | None) -> PlannedCell:
    """How a cell is run. `speed`: the prediction for it (None: there is none)."""
    requests = max(limits.requests, _ROUNDS * cell.users)
    expected = _expected(cell, cell.users + requests, speed)
    seconds = limits.cell_seconds
    if seconds is None:
        seconds = _UNKNOWN if expected is None else min(max(_CLOCK * expected, _SHORTEST), _LONGEST)
    return PlannedCell(cell, cell.users, requests, seconds, expected, _why_skipped(cell, room))


def _expected(cell: Cell, requests: int, speed: SpeedUnderLoad | None) -> float | None:
    if speed is None or speed.ttft_mean is None or speed.inter_token_mean is None:
        return None
    each = speed.ttft_mean.value + (cell.answer_tokens - 1) * speed.inter_token_mean.value
    return math.ceil(requests / cell.users) * each


def _why_skipped(cell: Cell, room: Room) -> str:
    length = cell.prompt_tokens + cell.answer_tokens
    if room.longest_request is not None and length > room.longest_request:
        return f"a request may have {room.longest_request:,} tokens, and these have {length:,}"
    if room.held is not None and cell.users > room.held:
        return (
            f"the KV cache holds {room.held} requests of {length:,} tokens at once ({room.source}): "
            f"{cell.users - room.held} of {cell.users} users would wait for room"
        )
    return ""


@dataclass(frozen=True)
class Estimate:
    """The seconds of all cells: those that the prediction expects (None: unknown for a cell), and the most; and the
    price of each in US dollars (None: no price is known)."""

    expected_seconds: float | None
    most_seconds: float
    expected_usd: Decimal | None
    most_usd: Decimal | None


def estimate(planned: Sequence[PlannedCell], limits: Limits, hourly: Decimal | None) -> Estimate:
    """The time and the price of the cells that are run. `hourly`: US dollars per hour of the replica."""
    cells = [each for each in planned if not each.skipped]
    known = [each.expected_seconds for each in cells if each.expected_seconds is not None]
    preparing = sum(each.preparing_seconds for each in cells)
    expected = sum(known) + preparing if len(known) == len(cells) else None
    most = min(sum(each.seconds for each in cells) + preparing, limits.total_seconds)
    if expected is not None:
        expected = min(expected, most)
    return Estimate(expected, most, usd(hourly, expected), usd(hourly, most))


def usd(hourly: Decimal | None, seconds: float | None) -> Decimal | None:
    """US dollars of a replica for that time, to a cent."""
    if hourly is None or seconds is None:
        return None
    return (hourly * Decimal(repr(seconds)) / 3600).quantize(Decimal("0.01"), ROUND_HALF_UP)
