"""Reads the published measurements of speed under load: `speed/*.yaml` of the ground truth, one file for a publisher.

Times are seconds. `tokens_per_second` counts the tokens of answers, of the whole replica. Every row is one measurement.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from accuracy.cases import Count, Positive, Source, VersionByDate, Words, held_out
from accuracy.reading import files_of, read_file
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import suggest, wrong
from neuroscale.repo.layout import ACCELERATORS, MODELS

Column = Literal[
    "prompt",
    "answer",
    "users",
    "requests_per_second",
    "ttft_s",
    "ttft_p95_s",
    "ttft_p99_s",
    "inter_token_s",
    "inter_token_p95_s",
    "tokens_per_second",
    "user_tokens_per_second",
]
COLUMNS: tuple[Column, ...] = get_args(Column)

_ASKED: tuple[Column, ...] = ("prompt", "answer", "users", "requests_per_second")
FIGURES: tuple[Column, ...] = tuple(column for column in COLUMNS if column not in _ASKED)
"""The columns that were measured; the others describe the load."""

_PLAUSIBLE: dict[Column, tuple[float, float, str]] = {
    "prompt": (1, 1_000_000, "tokens"),
    "answer": (1, 200_000, "tokens"),
    "users": (1, 16_384, "users at once"),
    "requests_per_second": (0.001, 2_000, "requests a second"),
    "ttft_s": (0.003, 1_800, "seconds"),
    "ttft_p95_s": (0.003, 3_600, "seconds"),
    "ttft_p99_s": (0.003, 3_600, "seconds"),
    "inter_token_s": (0.0005, 3, "seconds"),
    "inter_token_p95_s": (0.0005, 20, "seconds"),
    "tokens_per_second": (0.3, 200_000, "tokens a second"),
    "user_tokens_per_second": (0.1, 2_000, "tokens a second"),
}
"""The least and the most that is plausible: a value outside is most likely in another unit."""

_MODELS = f"tests/ground_truth/models and {MODELS}"

_MOST_OVER = 1.3
"""How much more tokens a second than all users' inter-token times allow may be measured (means of unlike requests)."""


class DescribedAccelerator(Frozen):
    """An accelerator that the catalog does not have. `tflops`: dense, by the type of the factors."""

    title: Annotated[str, Field(min_length=3, max_length=80)]
    memory_gib: Positive
    bandwidth_gb_s: Positive
    tflops: dict[Literal["bf16", "fp16", "fp8", "fp4", "int8"], Positive]
    source: Source


class Series(Frozen):
    """Measurements of one model on one kind of accelerator with the same arguments.

    `mean`: TTFT and inter-token time are means (false: medians). `repeated_prompts`: prompts were identical, so that
    vLLM's cache of prefixes hides most of the prefill; `cached_share`: the share of their tokens that the source shows
    to be in it. `range_ratio`: the least and the largest length of prompts and answers as a share of the columns'
    lengths, drawn evenly between them (null: all have the columns' lengths). `prompt_spread`: the median and the 95th
    percentile of prompts' lengths as shares of their mean (null: those of `range_ratio`). `requests_per_user`: requests
    of a measurement for each user, all users starting at once, or `starts_per_second` of them (null: unknown).
    `in_step`: all requests have the same lengths and all users start at once, so they stay together. `burstiness` of an
    open load, as `vllm bench serve` has it.
    `not_judged`: the reasons for columns that cannot be judged; `left_out`: the reason if no column can be.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{2,120}$")]
    model: Annotated[str, Field(min_length=3, max_length=120)]
    accelerator: Annotated[str, Field(min_length=3, max_length=60)]
    tensor_parallel: Count = 1
    pipeline_parallel: Count = 1
    data_parallel: Count = 1
    expert_parallel: bool = False
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\S*$")] | None
    version_by_date: VersionByDate | None = None
    arguments: str = ""
    mean: bool
    repeated_prompts: bool = False
    cached_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    range_ratio: tuple[Positive, Positive] | None = None
    requests_per_user: Positive | None = None
    prompt_spread: tuple[Positive, Positive] | None = None
    in_step: bool = False
    starts_per_second: Positive | None = None
    burstiness: Positive = 1.0
    source: Source | None = None
    note: Words | None = None
    not_judged: dict[Column, Words] = Field(default_factory=dict)
    left_out: Words | None = None
    columns: Annotated[tuple[Column, ...], Field(min_length=2)]
    rows: Annotated[tuple[tuple[float | None, ...], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Series:
        if len(set(self.columns)) < len(self.columns):
            raise wrong("`columns` names a column twice", "Name each column once.")
        if not {"prompt", "answer"} <= set(self.columns) or not {"users", "requests_per_second"} & set(self.columns):
            raise wrong("the columns do not describe the load", "Add prompt, answer, and users or requests_per_second.")
        if not set(FIGURES) & set(self.columns):
            raise wrong("no column was measured", f"Add one of {', '.join(FIGURES)}.")
        for column in self.not_judged:
            if column not in FIGURES:
                raise wrong(f"`not_judged` names {column}, which was not measured", "Name a measured column.")
        if self.range_ratio is not None and not self.range_ratio[0] <= 1 <= self.range_ratio[1] + 1e-9:
            raise wrong(
                "`range_ratio` does not include the lengths of the columns",
                "Write the least and the largest length as shares of them, such as [0.8, 1.0].",
            )
        if self.version is not None and self.version_by_date is not None:
            raise wrong("`version` and `version_by_date` are both set", "Keep `version`, which the source names.")
        if "tensor-parallel" in self.arguments or "data-parallel" in self.arguments:
            raise wrong("`arguments` sets parallelism", "Write tensor_parallel, data_parallel or the like instead.")
        cells: set[tuple[float | None, ...]] = set()
        for number, row in enumerate(self.rows):
            self._check_row(number, row)
            load = tuple(value for column, value in zip(self.columns, row, strict=True) if column in _ASKED)
            if load in cells:
                raise wrong(
                    f"rows[{number}] has the load of an earlier row",
                    "Keep one of them; a measurement of another day belongs to a series of its own.",
                )
            cells.add(load)
        return self

    def _check_row(self, number: int, row: tuple[float | None, ...]) -> None:
        if len(row) != len(self.columns):
            raise wrong(
                f"rows[{number}] has {len(row)} values for {len(self.columns)} columns",
                "Write one value for each column; null for what was not measured.",
            )
        values = dict(zip(self.columns, row, strict=True))
        if values["prompt"] is None or values["answer"] is None:
            raise wrong(f"rows[{number}] has no lengths", "Write the tokens of prompt and answer.")
        if values.get("users") is None and values.get("requests_per_second") is None:
            raise wrong(f"rows[{number}] has no load", "Write users, or requests_per_second.")
        if all(values.get(figure) is None for figure in FIGURES):
            raise wrong(f"rows[{number}] has no measured value", "Remove the row.")
        for column, value in values.items():
            least, most, unit = _PLAUSIBLE[column]
            if value is not None and not least <= value <= most:
                raise wrong(
                    f"rows[{number}] has {column} {value:g}, which is not plausible",
                    f"Write {unit}: {least:g} to {most:,g}.",
                )
        for higher, lower in (("ttft_p99_s", "ttft_p95_s"), ("inter_token_p95_s", "inter_token_s")):
            above, below = values.get(higher), values.get(lower)  # type: ignore[call-overload]
            if above is not None and below is not None and above < 0.7 * below:
                raise wrong(f"rows[{number}] has a {higher} below {lower}", "Look the columns' order up in the source.")
        users, step, total = values.get("users"), values.get("inter_token_s"), values.get("tokens_per_second")
        if users and step and total and total > _MOST_OVER * users / step:
            raise wrong(
                f"rows[{number}] has {total:g} tokens_per_second, more than {users:g} users' inter-token times allow",
                "Count the tokens of answers alone, of the whole replica.",
            )

    @property
    def accelerators(self) -> int:
        """How many accelerators the replica has."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def configuration(self) -> tuple[object, ...]:
        """The accelerator, and how ranks share the work."""
        ranks = (self.tensor_parallel, self.pipeline_parallel, self.data_parallel, self.expert_parallel)
        return (self.accelerator, *ranks)

    @property
    def spread(self) -> tuple[float, float]:
        """The median and the 95th percentile of prompts' lengths as shares of their mean."""
        if self.prompt_spread is not None or self.range_ratio is None:
            return self.prompt_spread or (1.0, 1.0)
        least, largest = self.range_ratio
        return 1.0, (least + 0.95 * (largest - least)) / ((least + largest) / 2)

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the third that nothing may be fitted on: by a hash of model and accelerator alone."""
        return held_out(f"{self.model} {self.accelerator}")

    @property
    def known_version(self) -> str | None:
        """The version of vLLM in the source, else the version of the source's date."""
        return self.version or (self.version_by_date.version if self.version_by_date else None)

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of `vllm serve`, with those that set parallelism."""
        words = shlex.split(self.arguments)
        for name, value in (
            ("tensor", self.tensor_parallel),
            ("pipeline", self.pipeline_parallel),
            ("data", self.data_parallel),
        ):
            words += [f"--{name}-parallel-size={value}"] if value > 1 else []
        return (*words, *(["--enable-expert-parallel"] if self.expert_parallel else []))


class SpeedFile(Frozen):
    """The measurements of one publisher. `read`: the day on which they were read."""

    source: Source
    read: Annotated[str, Field(pattern=r"^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")]
    accelerators: dict[str, DescribedAccelerator] = Field(default_factory=dict)
    series: Annotated[tuple[Series, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Measurement:
    """One row. `prompt` and `answer`: the mean lengths in tokens. `figures`: what was measured and can be judged.
    `file`: the name of its file, one for each publisher."""

    file: str
    series: Series
    row: int
    prompt: float
    answer: float
    users: int | None
    requests_per_second: float | None
    figures: Mapping[Column, float]

    @property
    def name(self) -> str:
        """The series, the nominal lengths and the load."""
        values = dict(zip(self.series.columns, self.series.rows[self.row], strict=True))
        load = f"{self.users} users" if self.users else f"{self.requests_per_second:g} requests a second"
        return f"{self.series.id} {values['prompt']:.0f}/{values['answer']:.0f} {load}"


@dataclass(frozen=True)
class SpeedCases:
    """All series, the names of their files by their ids, and the accelerators that the files describe."""

    series: tuple[Series, ...]
    files: Mapping[str, str]
    accelerators: Mapping[str, DescribedAccelerator]

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """One for each row of a series that is not left out, with at least one figure that can be judged."""
        rows = [
            measured(series, row, self.files[series.id])
            for series in self.series
            if series.left_out is None
            for row in range(len(series.rows))
        ]
        return tuple(row for row in rows if row.figures)


def measured(series: Series, row: int, file: str = "") -> Measurement:
    """One row of a series."""
    values = dict(zip(series.columns, series.rows[row], strict=True))
    share = sum(series.range_ratio) / 2 if series.range_ratio else 1.0
    users = values.get("users")
    hidden = {"ttft_s", "ttft_p95_s", "ttft_p99_s"} if series.repeated_prompts else set()
    return Measurement(
        file=file,
        series=series,
        row=row,
        prompt=share * (values["prompt"] or 0.0),
        answer=max(share * (values["answer"] or 0.0), 1.0),
        users=None if users is None else round(users),
        requests_per_second=values.get("requests_per_second"),
        figures={
            column: value
            for column, value in values.items()
            if column in FIGURES and value is not None and column not in series.not_judged and column not in hidden
        },
    )


def read_speed_cases(folder: Path, models: Collection[str], accelerators: Collection[str]) -> SpeedCases:
    """All series of `folder`/speed. `models` and `accelerators`: the names that ground truth and catalog know.

    Raises InputError with every problem in the files.
    """
    problems: list[Problem] = []
    series: dict[str, Series] = {}
    files: dict[str, str] = {}
    described: dict[str, DescribedAccelerator] = {}
    seen: dict[tuple[object, ...], str] = {}
    for path in files_of(folder / "speed"):
        read = read_file(SpeedFile, path, problems)
        if read is None:
            continue
        problems += _described_anew(path, read, described, accelerators)
        described.update(read.accelerators)
        known = [*accelerators, *described]
        for number, each in enumerate(read.series):
            where = f"series[{number}]"
            if each.id in series:
                problems.append(Problem(str(path), f"{where}.id", f"{each.id!r} stands twice", "Keep one of the two."))
            series[each.id] = each
            files[each.id] = path.stem
            if each.model not in models:
                message = f"{each.model!r} is neither a model of the ground truth nor of the catalog"
                problems.append(Problem(str(path), f"{where}.model", message, suggest(each.model, models, _MODELS)))
            if each.accelerator not in known:
                message = f"{each.accelerator!r} is not an accelerator of the catalog"
                fix = f"{suggest(each.accelerator, known, ACCELERATORS)} Or describe it in `accelerators` of this file."
                problems.append(Problem(str(path), f"{where}.accelerator", message, fix))
            problems += _counted_twice(path, where, each, seen)
    if problems:
        raise InputError(problems)
    return SpeedCases(tuple(series.values()), files, described)


def _described_anew(
    path: Path, read: SpeedFile, described: Mapping[str, DescribedAccelerator], accelerators: Collection[str]
) -> list[Problem]:
    return [
        Problem(str(path), f"accelerators.{name}", "is described twice", "Keep the catalog's entry, or the first one.")
        for name, new in read.accelerators.items()
        if name in accelerators or (name in described and described[name] != new)
    ]


def _counted_twice(path: Path, where: str, series: Series, seen: dict[tuple[object, ...], str]) -> Sequence[Problem]:
    """Rows whose measured values another series has already: one measurement that was published twice."""
    problems = []
    columns = [column for column in series.columns if column in FIGURES]
    for number in range(len(series.rows)):
        row = measured(series, number)
        values = dict(zip(series.columns, series.rows[number], strict=True))
        if sum(values[column] is not None for column in columns) < 2:
            continue
        key = (
            re.sub(r"^[^/]*/", "", series.model).lower(),
            series.accelerator,
            series.accelerators,
            (values["prompt"], values["answer"], row.users, row.requests_per_second),
            tuple((column, values[column]) for column in FIGURES if values.get(column) is not None),
        )
        if key in seen:
            message = f"is a measurement of {seen[key]}, too"
            problems.append(Problem(str(path), f"{where}.rows[{number}]", message, "Remove one of the two."))
        seen[key] = series.id
    return problems
