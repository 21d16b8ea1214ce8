"""Defines the files of the ground truth: a model's config and published figures, or one start-up of vLLM.

Every figure stands with its source. GiB is 2^30 bytes, and of one rank, as vLLM prints it. A figure that cannot be
judged has a reason; a case that cannot be judged at all stays in the files, with its reason.

Answers of other planners to the same cases are in a file that `scripts/compare_planners.py` writes.
"""

from __future__ import annotations

import hashlib
from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from neuroscale.core.frozen import Frozen
from neuroscale.core.releases import release
from neuroscale.core.validation import wrong

Figure = Literal[
    "verdict",
    "weights",
    "kv_gib",
    "kv_tokens",
    "tokens_of_memory",
    "concurrency",
    "request_gib",
    "max_context",
    "cudagraph",
]
"""The figures of a start-up that are judged. `weights`: 'Model loading took'. `kv_gib`: 'Available KV cache memory'.
`kv_tokens`: 'GPU KV cache size'. `tokens_of_memory`: the same, but planning gets the measured KV memory, so that only
the bytes of a token are judged. `concurrency`: 'Maximum concurrency'. `request_gib` and `max_context`: the error's 'KV
cache is needed' and 'estimated maximum model length'. `cudagraph`: 'Graph capturing finished'."""

FIGURES: tuple[Figure, ...] = get_args(Figure)

Source = Annotated[str, Field(min_length=8, max_length=600)]
Words = Annotated[str, Field(min_length=3, max_length=600)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class PublishedFigures(Frozen):
    """The publisher's numbers of parameters, and the value of one unit of their last digit.

    `total_convention`: whether towers for images and sound count. `active_convention`: whether the input embedding and
    the matrix of the output count (either: the publisher does not say).
    """

    total: Count
    total_rounded_to: Count
    total_convention: Literal["all", "text"] = "all"
    active: Count | None = None
    active_rounded_to: Count | None = None
    active_convention: Literal["without embedding", "without embedding and output", "either"] | None = None
    source: Source

    @model_validator(mode="after")
    def _whole(self) -> PublishedFigures:
        known = [value is not None for value in (self.active, self.active_rounded_to, self.active_convention)]
        if any(known) and not all(known):
            raise wrong(
                "active parameters are incomplete", "Write active, active_rounded_to and active_convention, or none."
            )
        return self


class Files(Frozen):
    """Bytes of a checkpoint's tensors, from the headers of its files."""

    bytes: Count
    source: Source


class CacheOfToken(Frozen):
    """Bytes of one token in the KV cache at 16 bits a value: in layers that see the whole context, in layers that see a
    window or a chunk, and the length of that."""

    bytes: Annotated[str, Field(pattern=r"^[0-9]+(\+[0-9]+\([0-9]+( chunk)?\))?$")]
    source: Source


class ModelCase(Frozen):
    """A model: the keys of its config.json that decide about memory, by their own names.

    `form`: the form of the source. `same_as`: another model with the same config but for `changes`. `may_refuse`: why
    planning may say that it cannot judge this model, or may estimate it and say so; a wrong figure is wrong even then.
    """

    name: Annotated[str, Field(min_length=3, max_length=120)]
    source: Source
    form: Literal[
        "as published", "a copy of it", "keywords for the class", "class defaults", "the shape alone", "adapted"
    ]
    note: Words | None = None
    may_refuse: Words | None = None
    published: PublishedFigures | None = None
    checkpoint: Files | None = None
    kv_cache: CacheOfToken | None = None
    same_as: str | None = None
    changes: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_config(self) -> ModelCase:
        if (self.config is None) == (self.same_as is None):
            raise wrong(
                "a model needs either its own config or the name of a model that has the same",
                "Write `config` or `same_as`.",
            )
        if self.changes and self.same_as is None:
            raise wrong("changes without a model that they change", "Write `same_as`, or put them into `config`.")
        return self


class CaseAccelerator(Frozen):
    """An accelerator. `memory_gib`: the total memory that the runtime reports. `used_gib`: the memory that other
    programs held. `basis`: how that is known."""

    name: str | None
    count: Count | None
    memory_gib: Positive | None
    bandwidth_gb_s: Positive | None = None
    used_gib: Positive | None = None
    basis: Words | None = None


class Concurrency(Frozen):
    """So many `times` a request of so many `tokens`."""

    tokens: Count
    times: Annotated[float, Field(ge=0)]


class Measured(Frozen):
    """Figures of one start-up, as far as its source tells them. Times in seconds."""

    weights_gib: Positive | None = None
    kv_gib: float | None = None
    kv_tokens: Count | None = None
    concurrency: Concurrency | None = None
    request_gib: Positive | None = None
    max_context: Count | None = None
    activation_gib: Positive | None = None
    non_torch_gib: Positive | None = None
    cudagraph_gib: float | None = None
    cudagraph_estimated_gib: float | None = None
    load_seconds: Positive | None = None
    compile_seconds: Positive | None = None
    init_engine_seconds: Positive | None = None
    ttft_seconds: Positive | None = None
    decode_tokens_per_second: Positive | None = None


_MEASURED: dict[Figure, tuple[str, ...]] = {
    "weights": ("weights_gib",),
    "kv_gib": ("kv_gib",),
    "kv_tokens": ("kv_tokens",),
    "tokens_of_memory": ("kv_tokens", "kv_gib"),
    "concurrency": ("concurrency",),
    "request_gib": ("request_gib",),
    "max_context": ("max_context",),
    "cudagraph": ("cudagraph_gib",),
}
"""The measurements that each judged figure needs."""


class KnownMiss(Frozen):
    """A figure that planning misses for a known reason, by at most `up_to`, a share of the measured figure. A larger
    miss is wrong; a figure that planning no longer misses must lose its reason. A verdict has no `up_to`: only a
    verdict that planning calls close may be wrong for a reason."""

    up_to: Annotated[float, Field(gt=0)] | None = None
    why: Words


class VersionByDate(Frozen):
    """The release at the date of the source, if the source names none; only the verdict is judged by it."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    basis: Words


class StartCase(Frozen):
    """One start of vLLM: the model (`model` of the ground truth, or `catalog`), the accelerators, and the arguments.

    `misses`: figures of `judged` that are off for a known reason.
    `arguments`: the arguments that decide about memory, as the command gave them or, if the source lists none, as the
    log resolves them. `judged`: the figures that are judged; `not_judged`: the reasons for the others; `left_out`: the
    reason if no figure is judged.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{2,80}$")]
    source: Source
    vllm_version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\S*$")] | None
    version_by_date: VersionByDate | None = None
    model: str | None = None
    catalog: str | None = None
    accelerator: CaseAccelerator
    arguments: tuple[Annotated[str, Field(pattern=r"^--[a-z]")], ...]
    outcome: Literal["started", "refused", "other"]
    cause: Literal["out_of_memory", "no_kv_space", "context_too_long", "invalid_arguments"] | None = None
    detail: Words | None = None
    note: Words | None = None
    measured: Measured
    judged: tuple[Figure, ...]
    not_judged: dict[Figure, Words] = Field(default_factory=dict)
    misses: dict[Figure, KnownMiss] = Field(default_factory=dict)
    left_out: Words | None = None

    @model_validator(mode="after")
    def _consistent(self) -> StartCase:
        if (self.model is None) == (self.catalog is None):
            raise wrong(
                "the case names no model, or two",
                "Write either `model`, or `catalog` with a model of the platform's catalog.",
            )
        if (self.outcome == "refused") != (self.cause is not None):
            raise wrong(
                "`cause` says why vLLM did not start, so it belongs to `outcome: refused` alone",
                "Write `cause` where `outcome` is refused, and nowhere else.",
            )
        if self.left_out is not None:
            if self.judged:
                raise wrong(
                    "`left_out` leaves the whole case out, and `judged` names figures", "Remove one of the two."
                )
            return self
        if not self.judged:
            raise wrong("`judged` names no figure", "Name figures in `judged`, or give the reason in `left_out`.")
        self._check_judged()
        return self

    def _check_judged(self) -> None:
        if both := sorted(set(self.judged) & set(self.not_judged)):
            raise wrong(f"{both[0]} stands in `judged` and in `not_judged`", "Keep it in one of the two.")
        for figure in self.misses:
            if figure not in self.judged:
                raise wrong(
                    f"`misses` excuses {figure}, which `judged` does not name",
                    f"Add {figure} to `judged`, or remove it from `misses`.",
                )
            if (self.misses[figure].up_to is None) != (figure == "verdict"):
                raise wrong(
                    "`up_to` does not apply to a verdict"
                    if figure == "verdict"
                    else f"`misses.{figure}` has no `up_to`",
                    "Remove `up_to`."
                    if figure == "verdict"
                    else "Write the largest error that is excused, as a share of the measured figure: 0.1 is a tenth.",
                )
        for figure in self.judged:
            missing = [name for name in _MEASURED.get(figure, ()) if getattr(self.measured, name) is None]
            if missing:
                raise wrong(
                    f"`judged` names {figure}, and `measured` has no {missing[0]}",
                    f"Add {missing[0]} to `measured`, or remove {figure} from `judged`.",
                )
        for figure, names in _MEASURED.items():
            told = figure in self.judged or figure in self.not_judged or figure == "tokens_of_memory"
            if getattr(self.measured, names[0]) is not None and not told:
                raise wrong(
                    f"`measured` has {names[0]}, and neither `judged` nor `not_judged` names {figure}",
                    f"Add {figure} to `judged`, or give the reason in `not_judged`.",
                )
        if "verdict" in self.judged and self.outcome == "other":
            raise wrong(
                "`outcome: other` says neither that vLLM started nor that it refused, so it has no verdict",
                "Move verdict from `judged` to `not_judged`.",
            )
        if "verdict" not in self.judged and "verdict" not in self.not_judged:
            raise wrong(
                "neither `judged` nor `not_judged` names the verdict",
                "Add verdict to `judged`, or give the reason in `not_judged`.",
            )
        needs_memory = {"verdict", "kv_gib", "kv_tokens"} & set(self.judged)
        if needs_memory and (self.accelerator.memory_gib is None or self.accelerator.count is None):
            first = sorted(needs_memory)[0]
            raise wrong(
                f"{first} cannot be judged: the accelerator's memory or its count is not known",
                f"Write `memory_gib` and `count`, or give this as the reason for {first} in `not_judged`.",
            )
        if self.vllm_version is None and {"kv_gib", "kv_tokens"} & set(self.judged):
            raise wrong(
                "the KV cache cannot be judged: the version is not known",
                "Write `vllm_version`, or give this as the reason for kv_gib and kv_tokens in `not_judged`.",
            )
        if self.version is None and ({"verdict", "tokens_of_memory"} & set(self.judged)):
            raise wrong(
                "the verdict and the tokens cannot be judged: the version is not known, not even by date",
                "Write `vllm_version` or `version_by_date`, or judge the weights alone.",
            )
        if self.version is not None:
            release(self.version)

    @property
    def version(self) -> str | None:
        """The version of vLLM in the source, else the version of the source's date."""
        return self.vllm_version or (self.version_by_date.version if self.version_by_date else None)


def held_out(case: str) -> bool:
    """Whether a case belongs to the third that nothing was tuned on: by a hash of its id alone."""
    return hashlib.sha256(case.encode()).digest()[0] % 3 == 0


class Tool(Frozen):
    """Another planner, and how it was run. `answers`: the figures of a start-up that it can give."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,40}$")]
    version: Annotated[str, Field(min_length=1, max_length=40)]
    asked: date
    how: Annotated[str, Field(min_length=8, max_length=1000)]
    answers: Annotated[tuple[Figure, ...], Field(min_length=1)]


class OtherPlannersFigures(Frozen):
    """One tool's answer to one case: figures, or the reason in words why it gives none."""

    figures: dict[Figure, float | str] = Field(default_factory=dict)
    problem: Words | None = None

    @model_validator(mode="after")
    def _something(self) -> OtherPlannersFigures:
        if not self.figures and self.problem is None:
            raise wrong("an answer says nothing", "Write `figures`, or in `problem` why there are none.")
        return self


class Others(Frozen):
    """Answers by tool and by case."""

    tools: tuple[Tool, ...] = ()
    answers: dict[str, dict[str, OtherPlannersFigures]] = Field(default_factory=dict)
