"""Compares planning's figures with measured ones: one row for every figure of every case, and a summary by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from accuracy.cases import FIGURES, Figure, KnownMiss, PublishedFigures, StartCase, held_out
from accuracy.planner_answers import PlannedFigures, Planner, State
from accuracy.reading import Cases
from neuroscale.models.cache_bytes import bytes_per_token
from neuroscale.models.facts import Basis, Group, ModelFacts

Kind = Literal["total_params", "active_params", "checkpoint_bytes", "kv_bytes_per_token"] | Figure
KINDS: tuple[Kind, ...] = (
    *("total_params", "active_params", "checkpoint_bytes", "kv_bytes_per_token"),
    *FIGURES,
)

AIMS: dict[Kind, float] = {
    "total_params": 0.01,
    "active_params": 0.05,
    "checkpoint_bytes": 0.03,
    "kv_bytes_per_token": 0.0,
    "verdict": 0.0,
    "weights": 0.03,
    "kv_tokens": 0.05,
    "tokens_of_memory": 0.05,
}
"""The largest error that each kind may have, as a share; kinds without one are only shown. Weights: from a config."""

FROM_HEADERS: dict[Kind, float] = {"weights": 0.01}
"""The aims if a model's facts come from the headers of its files."""

Outcome = Literal["right", "wrong", "explained", "estimated", "shown", "not judged", "crashed"]


@dataclass(frozen=True)
class Said:
    """The answer of another planner: a figure, or the reason why it gives none."""

    value: float | str | None
    error: float | None
    words: str = ""


@dataclass(frozen=True)
class Row:
    """One figure of one case. `error`: (predicted - measured) / measured; None for a verdict and without a prediction.

    `outcome`: right or wrong by the aim; explained: wrong, for a `reason` in the case's file; estimated: outside the
    aim, but planning says that it only estimates the model; shown: the kind has no aim; not judged: planning says that
    it cannot judge the figure; crashed: planning failed with an error.
    `allowed`: planning may estimate the model, or not judge it (its case says why). `held_out`: the case belongs to the
    third of all cases that nothing is tuned on.
    """

    case: str
    kind: Kind
    measured: float | str
    predicted: float | str | None
    error: float | None
    outcome: Outcome
    allowed: bool
    held_out: bool
    words: str = ""
    others: dict[str, Said] = field(default_factory=dict)
    reason: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing needs a correction: within the aim, without an aim, explained, or rightly not judged."""
        return self.outcome in ("right", "shown", "explained") or (
            self.outcome in ("estimated", "not judged") and self.allowed
        )


def compare(cases: Cases, planner: Planner, only: Kind | None = None) -> tuple[Row, ...]:
    """Rows in the order of the kinds, then of the cases' files, for every judged figure."""
    rows = [*_models(cases, planner), *_starts(cases, planner)]
    wanted = [row for row in rows if only is None or row.kind == only]
    return tuple(sorted(wanted, key=lambda row: KINDS.index(row.kind)))


def _models(cases: Cases, planner: Planner) -> Iterable[Row]:
    for name, model in cases.models.items():
        if model.published is None and model.checkpoint is None and model.kv_cache is None:
            continue
        read = planner.model(name)
        asked: list[tuple[Kind, float | str, float]] = []  # kind, measured figure, error that rounding allows
        if (told := model.published) is not None:
            asked.append(("total_params", told.total, told.total_rounded_to / 2))
            if told.active is not None:
                asked.append(("active_params", told.active, (told.active_rounded_to or 0) / 2))
        if model.checkpoint is not None:
            asked.append(("checkpoint_bytes", model.checkpoint.bytes, 0))
        if model.kv_cache is not None:
            asked.append(("kv_bytes_per_token", model.kv_cache.bytes, 0))
        for kind, measured, rounding in asked:
            if read.facts is None:
                yield _open(name, kind, measured, read.state, cases.may_refuse(name) is not None, read.words)
                continue
            row = _judged(name, kind, measured, _of_model(kind, read.facts, told), read.facts.basis, rounding=rounding)
            yield replace(row, allowed=cases.may_refuse(name) is not None)


def _of_model(kind: Kind, facts: ModelFacts, told: PublishedFigures | None) -> float | str:
    if kind == "kv_bytes_per_token":
        return _cache(facts)
    if kind == "total_params":
        return facts.total_params + (0 if told and told.total_convention == "text" else facts.tower_params)
    if kind == "checkpoint_bytes":
        return sum(facts.weight_bytes.values())
    without, whole = facts.active_params_without_embedding, facts.active_params
    if told is None or told.active is None or told.active_convention == "without embedding":
        return without
    if told.active_convention == "without embedding and output":
        return whole - _of_groups(facts, "embedding", "lm_head")
    # Publishers seldom say which of the two counts they mean.
    return min(without, whole, key=lambda count: abs(count - (told.active or 0)))


def _cache(facts: ModelFacts) -> str:
    """The bytes of a token as a text, in the form of `CacheOfToken`."""
    whole = sum(layers.layers * bytes_per_token(layers) for layers in facts.cache if layers.window is None)
    windowed = [layers for layers in facts.cache if layers.window is not None]
    if not windowed:
        return str(whole)
    size = sum(layers.layers * bytes_per_token(layers) for layers in windowed)
    lengths = "/".join(str(window) for window in sorted({layers.window or 0 for layers in windowed}))
    return f"{whole}+{size}({lengths}{' chunk' if any(layers.kind == 'chunked' for layers in windowed) else ''})"


def _of_groups(facts: ModelFacts, *groups: Group) -> int:
    return sum(tensor.params for tensor in facts.tensors if tensor.group in groups)


def _starts(cases: Cases, planner: Planner) -> Iterable[Row]:
    for case in cases.starts:
        if case.left_out is not None:
            continue
        allowed = case.model is not None and cases.may_refuse(case.model) is not None
        answer = planner.start(case)
        for figure in case.judged:
            measured = _measured(case, figure)
            predicted = answer.figures.get(figure)
            others = _others(cases, case.id, figure, measured)
            if answer.state != "answered":
                yield _open(case.id, figure, measured, answer.state, allowed, answer.words, others)
            elif predicted is None:
                words = answer.words or "planning says that vLLM does not start, so it gives no such figure"
                yield Row(case.id, figure, measured, None, None, "wrong", False, held_out(case.id), words, others)
            else:
                row = _judged(case.id, figure, measured, predicted, answer.basis, answer.words, others)
                yield replace(_explained(row, case.misses.get(figure), answer.unsure), allowed=allowed)


def _explained(row: Row, miss: KnownMiss | None, unsure: bool) -> Row:
    """The row, with the case's reason for its miss if the miss is no larger than the reason allows.

    A reason for a figure that planning reaches makes the row wrong: it must go from the file.
    """
    if miss is None:
        return row
    if row.outcome == "right":
        told = f"{row.words} Planning reaches this figure, which `misses` of the case excuses: remove it there.".strip()
        return replace(row, outcome="wrong", words=told)
    small = unsure if miss.up_to is None else row.error is not None and abs(row.error) <= miss.up_to
    if row.outcome == "wrong" and small:
        return replace(row, outcome="explained", reason=miss.why)
    return row


def _measured(case: StartCase, figure: Figure) -> float | str:
    measured = case.measured
    values: dict[Figure, float | str | None] = {
        "verdict": case.outcome,
        "weights": measured.weights_gib,
        "kv_gib": measured.kv_gib,
        "kv_tokens": measured.kv_tokens,
        "tokens_of_memory": measured.kv_tokens,
        "concurrency": measured.concurrency.times if measured.concurrency else None,
        "request_gib": measured.request_gib,
        "max_context": measured.max_context,
        "cudagraph": measured.cudagraph_gib,
    }
    value = values[figure]
    if value is None:
        raise AssertionError(f"{case.id}: {figure} is judged and was not measured")  # reading has refused it
    return value


def _judged(
    case: str,
    kind: Kind,
    measured: float | str,
    predicted: float | str,
    basis: Basis | None,
    words: str = "",
    others: dict[str, Said] | None = None,
    *,
    rounding: float = 0.0,
) -> Row:
    aim = FROM_HEADERS.get(kind, AIMS.get(kind)) if basis == "headers" else AIMS.get(kind)
    error: float | None = None
    if isinstance(measured, str) or isinstance(predicted, str):
        right = predicted == measured
    else:
        error = _error(predicted, measured)
        right = abs(predicted - measured) <= max((aim or 0.0) * abs(measured), rounding)
    outcome: Outcome = "wrong"
    if aim is None:
        outcome = "shown"
    elif right:
        outcome = "right"
    elif basis == "estimate":
        outcome = "estimated"
    return Row(case, kind, measured, predicted, error, outcome, False, held_out(case), words, others or {})


def _open(
    case: str,
    kind: Kind,
    measured: float | str,
    state: State,
    allowed: bool,
    words: str,
    others: dict[str, Said] | None = None,
) -> Row:
    outcome: Outcome = "crashed" if state == "crashed" else "not judged"
    return Row(case, kind, measured, None, None, outcome, allowed, held_out(case), words, others or {})


def _others(cases: Cases, case: str, figure: Figure, measured: float | str) -> dict[str, Said]:
    said: dict[str, Said] = {}
    for tool in cases.others.tools:
        if figure not in tool.answers:
            continue
        answer = cases.others.answers.get(case, {}).get(tool.name)
        if answer is None:
            said[tool.name] = Said(None, None, "was not asked")
        elif (value := answer.figures.get(figure)) is None:
            said[tool.name] = Said(None, None, answer.problem or "has no such figure")
        elif isinstance(value, str) or isinstance(measured, str):
            said[tool.name] = Said(value, None)
        else:
            said[tool.name] = Said(value, _error(value, measured))
    return said


def _error(predicted: float, measured: float) -> float | None:
    return (predicted - measured) / abs(measured) if measured else None


@dataclass(frozen=True)
class Promise:
    """What planning says without reserve about a start: that it starts, that it does not, or that the memory for its
    cache lies within the printed margin."""

    case: str
    kind: Literal["sure fit", "sure refusal", "margin"]
    held_out: bool
    kept: bool
    off_gib: float = 0.0  # planned minus measured memory for the cache


def promises(cases: Cases, planner: Planner) -> tuple[Promise, ...]:
    """The promises about all starts whose verdict or cache is judged."""
    found: list[Promise] = []
    for case in cases.starts:
        answer = planner.start(case) if case.left_out is None else None
        if answer is None or answer.state != "answered":
            continue
        verdict, held = answer.figures.get("verdict"), held_out(case.id)
        if "verdict" in case.judged and not answer.unsure:
            kind: Literal["sure fit", "sure refusal"] = "sure fit" if verdict == "started" else "sure refusal"
            found.append(Promise(case.id, kind, held, verdict == case.outcome))
        off = _off_gib(case, answer)
        if off is not None and answer.margin_gib is not None:
            found.append(Promise(case.id, "margin", held, abs(off) <= answer.margin_gib, off))
    return tuple(found)


def _off_gib(case: StartCase, answer: PlannedFigures) -> float | None:
    """GiB of the cache, planned minus measured; tokens count by the planned bytes of a token."""
    planned, tokens = answer.figures.get("kv_gib"), answer.figures.get("kv_tokens")
    if not isinstance(planned, float) or not {"kv_gib", "kv_tokens"} & set(case.judged):
        return None
    measured = case.measured.kv_gib
    if measured is None and case.measured.kv_tokens and isinstance(tokens, int) and tokens:
        measured = planned * case.measured.kv_tokens / tokens
    return None if measured is None else planned - measured


@dataclass(frozen=True)
class Tally:
    """Errors of one planner in one kind. `median` and `worst` are shares without sign; None without predictions.

    `right`: within the aim, or the right verdict; None for a kind without an aim.
    """

    answered: int
    right: int | None
    median: float | None
    worst: float | None
    worst_case: str


@dataclass(frozen=True)
class Summary:
    """One kind: `outcomes` of planning's rows; the tallies of all rows, of the held-out third, and of the rest."""

    kind: Kind
    aim: float | None
    rows: int
    outcomes: Counter[Outcome]
    all: Tally
    held_out: Tally
    rest: Tally
    others: dict[str, Tally]
    good: bool


def summarize(rows: Sequence[Row]) -> tuple[Summary, ...]:
    """One summary for each kind that has rows."""
    return tuple(_summary(kind, [row for row in rows if row.kind == kind]) for kind in KINDS if _any(rows, kind))


def holds(rows: Iterable[Row]) -> bool:
    """Whether all aims hold; false if nothing is predicted."""
    found = list(rows)
    return all(row.good for row in found) and any(row.predicted is not None for row in found)


def _any(rows: Iterable[Row], kind: Kind) -> bool:
    return any(row.kind == kind for row in rows)


def _summary(kind: Kind, rows: list[Row]) -> Summary:
    tools = sorted({tool for row in rows for tool in row.others})
    return Summary(
        kind=kind,
        aim=AIMS.get(kind),
        rows=len(rows),
        outcomes=Counter(row.outcome for row in rows),
        all=_tally(kind, _own(rows)),
        held_out=_tally(kind, _own(row for row in rows if row.held_out)),
        rest=_tally(kind, _own(row for row in rows if not row.held_out)),
        others={tool: _tally(kind, _of_tool(tool, kind, rows)) for tool in tools},
        good=all(row.good for row in rows),
    )


_Told = tuple[str, float | None, bool]
"""A case, the error of its prediction (None: a verdict), and whether the prediction is right."""


def _own(rows: Iterable[Row]) -> list[_Told]:
    return [(row.case, row.error, row.outcome == "right") for row in rows if row.predicted is not None]


def _of_tool(tool: str, kind: Kind, rows: Iterable[Row]) -> list[_Told]:
    told = [(row, row.others[tool]) for row in rows if tool in row.others and row.others[tool].value is not None]
    aim = AIMS.get(kind, 0.0)
    return [
        (row.case, said.error, said.value == row.measured if said.error is None else abs(said.error) <= aim)
        for row, said in told
    ]


def _tally(kind: Kind, told: list[_Told]) -> Tally:
    errors = [(abs(error), case) for case, error, _ in told if error is not None]
    worst = max(errors, default=None)
    return Tally(
        answered=len(told),
        right=sum(right for _, _, right in told) if kind in AIMS else None,
        median=median(error for error, _ in errors) if errors else None,
        worst=worst[0] if worst else None,
        worst_case=worst[1] if worst else "",
    )
