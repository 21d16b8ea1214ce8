"""Sets the measured or predicted speed of services and models side by side, and names what is not comparable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from neuroscale.actions.open_repository import OpenedInputs, Repository
from neuroscale.actions.planned_help import question_of
from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.catalog.measurements import MeasuredLoad, Measurement, ServedWith
from neuroscale.catalog.model_lookup import load_model
from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import duration, pace
from neuroscale.core.validation import suggest
from neuroscale.planning.fit import PINNED, device
from neuroscale.planning.fit_question import Question, asked
from neuroscale.planning.measured import (
    MOST_HITS,
    measured_server,
    measurements_of,
    remarks_on,
    same_cache,
    served_with,
    with_measured_speed,
)
from neuroscale.planning.plan import read_plan
from neuroscale.planning.replica_memory import served_facts
from neuroscale.planning.speed import Load, SpeedUnderLoad
from neuroscale.planning.speed_question import answer
from neuroscale.repo.layout import ACCELERATORS, MODELS, PLAN_FILE
from neuroscale.repo.services import find_service, services_of
from neuroscale.repo.snapshot import FolderSnapshot

_ALIKE = 0.1
"""How far the measured mean of the tokens may be from those that are asked for."""
_AT = re.compile(r"(?P<model>.+)@(?:(?P<count>[1-9][0-9]?)x)?(?P<accelerator>[a-z0-9-]+)")
_USUAL = (8, 1024, 256)
_NO_SERVICES = "A service is known in its platform repository alone: run this there, or name that with --repository."
FIGURES = (
    ("ttft_mean", "TTFT mean", duration),
    ("ttft_p95", "TTFT p95", duration),
    ("inter_token_mean", "inter-token mean", duration),
    ("inter_token_p95", "inter-token p95", duration),
    ("user_rate", "tokens/s of a user", pace),
    ("total_rate", "tokens/s in all", pace),
)


@dataclass(frozen=True)
class Subject:
    """One replica to compare. `loads`: what was measured of it, each with its measurement; `predict`: the speed under a
    load that was not."""

    title: str
    model: ModelEntry | None
    accelerator: str
    count: int
    vllm_version: str
    arguments: ServedWith
    loads: tuple[tuple[Measurement, MeasuredLoad], ...]
    predict: Callable[[Load], SpeedUnderLoad]


@dataclass(frozen=True)
class Column:
    """A subject's figures: seconds, and tokens of answers a second (None: not known). `basis`: `measured`, or the
    coverage of a prediction. `load`: users, and tokens of a prompt and of an answer."""

    subject: Subject
    basis: str
    load: tuple[int, int, int]
    figures: dict[str, float | None]
    measurement: Measurement | None = None
    prefix_hit_share: float | None = None

    @property
    def basis_in_words(self) -> str:
        """What the figures rest on, in words."""
        if self.measurement is not None:
            return f"measured on {self.measurement.date}"
        if self.basis == "measured":
            return "predicted from another load that was measured"
        return "not known" if self.basis == "unknown" else f"predicted ({self.basis})"

    @property
    def vllm_version(self) -> str:
        return self.measurement.vllm_version if self.measurement else self.subject.vllm_version

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the command set."""
        served = self.measurement.arguments if self.measurement else self.subject.arguments
        return served.model_dump(exclude_defaults=True)


def usual_load(subjects: Sequence[Subject]) -> tuple[int, int, int]:
    """The load that most subjects have measured, of several the one with the most users."""
    keys = Counter(key for subject in subjects for key in {load.key for _, load in subject.loads})
    return max(keys, key=lambda key: (keys[key], key)) if keys else _USUAL


def column_of(subject: Subject, load: tuple[int, int, int]) -> Column:
    """The figures of a subject under a load: measured with as many users and about as many tokens, else predicted."""
    for record, measured in subject.loads:
        near = all(abs(count / wanted - 1) <= _ALIKE for count, wanted in zip(measured.key[1:], load[1:], strict=True))
        if measured.users == load[0] and near:
            return Column(subject, "measured", measured.key, _measured(measured), record, measured.prefix_hit_share)
    speed = subject.predict(Load(*load))
    values = (
        *(speed.ttft_mean, speed.ttft_p95, speed.inter_token_mean, speed.inter_token_p95),
        *(speed.tokens_per_second_user, speed.tokens_per_second_total),
    )
    figures = {name: each.value if each else None for (name, _, _), each in zip(FIGURES, values, strict=True)}
    return Column(subject, speed.coverage, load, figures)


def _measured(load: MeasuredLoad) -> dict[str, float | None]:
    first, token, rates = load.ttft_seconds, load.inter_token_seconds, load.tokens_per_second
    firsts = (first.mean, first.p95) if first else (None, None)
    values = (*firsts, token.mean, token.p95, rates.user, rates.total)
    return {name: value for (name, _, _), value in zip(FIGURES, values, strict=True)}


def differences(columns: Sequence[Column]) -> Iterator[str]:
    """What is not the same for all, as sentences: figures that differ may differ for that reason."""

    def apart(what: str, values: Sequence[str]) -> Iterator[str]:
        if len(set(values)) > 1:
            pairs = zip(columns, values, strict=True)
            yield f"{what}: {'; '.join(f'{column.subject.title} {value}' for column, value in pairs)}."

    subjects = [column.subject for column in columns]
    yield from apart("Some figures are predictions", [column.basis_in_words for column in columns])
    yield from apart("The loads differ", ["{:,} users, {:,} + {:,} tokens".format(*column.load) for column in columns])
    yield from apart("The accelerators differ", [f"{each.count} x {each.accelerator}" for each in subjects])
    yield from apart("The versions of vLLM differ", [column.vllm_version for column in columns])
    cached = ["had" if (column.prefix_hit_share or 0.0) > MOST_HITS else "had no" for column in columns]
    yield from apart("Prefix caching differs", [f"{each} prompts in its cache" for each in cached])
    names = sorted({name for column in columns for name in column.arguments})
    parallel = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    for name in names:
        if name not in parallel:
            option = f"--{name.replace('_', '-')}"
            yield from apart(f"{option} differs", [str(column.arguments.get(name, "by default")) for column in columns])
    roots = [(each.model.variant_of or each.model.name) if each.model else "" for each in subjects]
    if len(set(roots)) > 1:
        yield "The models differ: each counts tokens by its own tokenizer, so as many tokens are not as much text."


def doubts_of(columns: Sequence[Column], catalog: Catalog) -> Iterator[str]:
    """What a reviewer of the measurements that are shown must know."""
    for column in columns:
        model, measurement = column.subject.model, column.measurement
        if model is not None and measurement is not None:
            place = model.measurements.index(measurement)
            yield from (remark for at, remark in remarks_on(model, catalog.accelerators) if at == place)


def as_mapping(load: tuple[int, int, int], columns: Sequence[Column], apart: Sequence[str]) -> dict[str, Any]:
    """The comparison for programs: seconds, and tokens a second; null where nothing is known."""
    return {
        "schema_version": 1,
        "load": dict(zip(("users", "prompt_tokens", "answer_tokens"), load, strict=True)),
        "subjects": [
            {
                "name": column.subject.title,
                "model": column.subject.model.name if column.subject.model else None,
                "accelerator": column.subject.accelerator,
                "count": column.subject.count,
                "vllm_version": column.vllm_version,
                "arguments": column.arguments,
                "is_measured": column.measurement is not None,
                "basis": column.basis_in_words,
                "date": str(column.measurement.date) if column.measurement else None,
                "report": column.measurement.report if column.measurement else None,
                "load": dict(zip(("users", "prompt_tokens", "answer_tokens"), column.load, strict=True)),
                "prefix_hit_share": column.prefix_hit_share,
                **{name: None if value is None else float(f"{value:.4g}") for name, value in column.figures.items()},
            }
            for column in columns
        ],
        "not_comparable": list(apart),
    }


def subjects_of(named: str, opened: OpenedInputs) -> Iterator[Subject]:
    """The replicas that a word of the command line names. Raises InputError."""
    catalog = opened.catalog
    at = _AT.fullmatch(named)
    if at is not None and at["model"] in catalog.models:
        yield from _on(named, catalog.models[at["model"]], at["accelerator"], int(at["count"] or 1), catalog)
    elif named in catalog.models:
        entry = catalog.models[named]
        measurements = [each for each in entry.measurements if each.loads and each.weights == entry.weights_digest]
        if not measurements:
            message = f"{named} has no measured load in the catalog"
            fix = f"Name an accelerator for a prediction, such as {named}@nvidia-l4; or measure: neuroscale bench."
            raise InputError.at("the command line", "A B...", message, fix)
        titles = [f"{named}@{measurement.count}x{measurement.accelerator}" for measurement in measurements]
        for title, measurement in zip(titles, measurements, strict=True):
            served = measurement.arguments.model_dump(exclude_defaults=True)
            words = (f"vLLM {measurement.vllm_version}", *(f"{name}={value}" for name, value in served.items()))
            more = f" ({', '.join(words)})" if titles.count(title) > 1 else ""
            yield _of_measurement(f"{title}{more}", entry, measurement, catalog)
    elif isinstance(opened, Repository):
        yield _of_service(named, opened)
    else:
        fix = f"{suggest((at['model'] if at else named), catalog.models, MODELS)} {_NO_SERVICES}"
        raise InputError.at("the command line", "A B...", f"{named!r} is not a model of the catalog", fix)


def _on(named: str, entry: ModelEntry, accelerator: str, count: int, catalog: Catalog) -> Iterator[Subject]:
    if accelerator not in catalog.accelerators:
        fix = suggest(accelerator, catalog.accelerators, ACCELERATORS)
        raise InputError.at("the command line", named, f"{accelerator!r} is not an accelerator of the catalog", fix)
    place = (accelerator, count)
    alike = [each for each in entry.measurements if (each.accelerator, each.count) == place and each.loads]
    for measurement in alike:
        if measurement.weights == entry.weights_digest:
            yield _of_measurement(named, entry, measurement, catalog)
            return
    question = Question(entry.name, accelerator, count, vllm_version=PINNED)
    yield _of_question(named, question, catalog)


def _of_measurement(title: str, entry: ModelEntry, measurement: Measurement, catalog: Catalog) -> Subject:
    where = device(catalog.accelerators[measurement.accelerator])
    server = measured_server(entry, served_facts(entry), where, measurement)
    return Subject(
        title,
        entry,
        measurement.accelerator,
        measurement.count,
        measurement.vllm_version,
        measurement.arguments,
        tuple((measurement, load) for load in measurement.loads),
        lambda load: with_measured_speed(server, entry, load).under(load),
    )


def _of_service(named: str, opened: Repository) -> Subject:
    snapshot = FolderSnapshot(opened.root)
    fix = "Or name a model of the catalog, such as `neuroscale model` shows it."
    path = find_service(named, services_of(snapshot), opened.root, fix=fix)
    plan = read_plan(snapshot, path.folder)
    if plan is None:
        raise InputError.at(f"{path.folder}/{PLAN_FILE}", "", "is missing", f"Run: neuroscale replan {path.folder}")
    return _of_question(f"{path.environment}/{path.service}", question_of(plan), opened.catalog)


def _of_question(title: str, question: Question, catalog: Catalog) -> Subject:
    question = replace(question, look_up=partial(load_model, catalog=catalog))
    subject = asked(question, catalog)
    entry = catalog.models.get(question.model)
    alike = measurements_of(entry, subject.where, subject.arguments, question.vllm_version)
    return Subject(
        title,
        entry,
        str(question.accelerator),
        subject.arguments.ranks,
        question.vllm_version,
        served_with(subject.arguments),
        tuple((each, load) for each in alike if same_cache(each, subject.arguments) for load in each.loads),
        lambda load: answer(question, load, None, catalog).speed,
    )
