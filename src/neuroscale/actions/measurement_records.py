"""Puts measurements into their model's file, here or by a pull request: of `bench.json`, and of a server's start."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from neuroscale.catalog import Catalog, ModelEntry, load_catalog
from neuroscale.catalog.loading import MEASUREMENTS, entry_of
from neuroscale.catalog.measurements import MeasuredStart, Measurement, with_measurement
from neuroscale.catalog.model_lookup import load_model
from neuroscale.catalog.new_entry import entry_path, measured_text
from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded, sha256
from neuroscale.core.json_text import read_object
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import plainly_counted
from neuroscale.core.units import MIB
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import decode, dotted
from neuroscale.forge.file_changes import FilesChange
from neuroscale.planning.fit_question import Question, asked
from neuroscale.planning.measured import FACTOR, faults_of, remarks_on, served_with, unkept
from neuroscale.repo.layout import CATALOG, MODELS
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot
from neuroscale.vllm.argument_values import words_of

if TYPE_CHECKING:
    from neuroscale.explain.explanation import Explanation

_MOST_BYTES = 16 * MIB
_REPORT = "guidellm.json"
_KEY = "prompt_tokens", "answer_tokens", "users"
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")


@dataclass(frozen=True)
class Measured:
    """A measurement of a model of the catalog."""

    model: str
    measurement: Measurement


@dataclass(frozen=True)
class Made:
    """The model's file with a measurement, and sentences for its reviewer. `measurement`: the one that stands in the
    file, which is an earlier one if that has the same figures."""

    path: str
    text: str
    measurement: Measurement
    remarks: tuple[str, ...]


def of_bench(path: Path, catalog: Catalog) -> Measured:
    """The measurement in the `bench.json` of a run. Raises InputError for a run that proves nothing: one with failed
    requests, or of a server that is not known."""
    where = str(path)
    result = _json(path)
    for cell in _mappings(result.get("cells")):
        if cell.get("state") == "failed":
            named = f"{cell.get('users')} users, {cell.get('prompt_tokens')} + {cell.get('answer_tokens')} tokens"
            raise InputError.at(where, "cells", f"a load failed ({named}): {cell.get('reason')}", "Measure again.")
    loads = _mappings(result.get("loads"))
    if not loads:
        raise InputError.at(where, "loads", "holds no measured load", "Run `neuroscale bench` to its end.")
    lacking = {
        "model": "--model with a model of the catalog",
        "accelerator": "--accelerator with an accelerator of the catalog",
        "count": "--count with the accelerators of the replica",
        "vllm_version": "the address of the server itself, which tells its version",
        "vllm_args": "--vllm-args with the arguments of its command",
        "report": "no folder of an earlier run that was broken off",
    }
    for name, option in lacking.items():
        if result.get(name) in (None, "", 0):
            fix = f"Measure again: give `neuroscale bench` {option}."
            raise InputError.at(where, name, "is not known, so nobody could tell what was measured", fix)
    _check_report(path, str(result["report"]))
    words = result["vllm_args"]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError.at(where, "vllm_args", "is not a list of words", "Measure again with `neuroscale bench`.")
    of = str(result.get("service") or "an endpoint")
    source = f"neuroscale bench of {of} with guidellm {result.get('guidellm_version') or '(no version)'}"
    loads = sorted(loads, key=lambda load: [str(load.get(name)).zfill(12) for name in _KEY])
    values = {"loads": loads, "date": result.get("date"), "report": result["report"], "source": source}
    question = _question(
        str(result["model"]), str(result["accelerator"]), result["count"], words, str(result["vllm_version"]), where
    )
    return _measured(question, catalog, values, result.get("revision"), where)


def of_start(explained: Explanation, catalog: Catalog) -> Measured:
    """The measurement of a good start, by its log. Raises InputError where it ended, or the log tells too little."""
    where, facts, planned = explained.service or "the log", explained.facts, explained.planned
    if explained.diagnosis.verdict != "healthy":
        fault = "is no log of a good start, so nothing is recorded"
        raise InputError.at(where, "", fault, "Mend what `neuroscale explain` names, and record the start after that.")
    if planned is None:
        fault = f"does not tell what ran: {explained.no_next or 'the plan cannot judge it'}"
        raise InputError.at(where, "", fault, "Name --model, --accelerator and --vllm-args.")
    if not facts.version or not facts.model:
        fault = "lacks the begin of the start, which tells the version and the arguments"
        raise InputError.at(where, "", fault, "Explain the log of a start from its first line on.")
    figures = facts.measured
    if "weights_gib" not in figures and "start_seconds" not in figures:
        fault = "tells neither what the weights take ('Model loading took') nor how long the engine's start took"
        raise InputError.at(where, "", fault, "Explain the log of a start from its first line on.")
    start = MeasuredStart(
        weights_gib=figures.get("weights_gib"),
        kv_cache_gib=figures.get("available_kv_cache_gib"),
        kv_cache_tokens=round(figures["kv_cache_tokens"]) if figures.get("kv_cache_tokens") else None,
        graphs_gib=max(figures["graphs_gib"], 0.0) if "graphs_gib" in figures else None,
        load_seconds=figures.get("load_seconds") or None,
        engine_seconds=figures.get("start_seconds") or None,
    )
    today = datetime.now(UTC).date().isoformat()
    of = f"the log of a start of {explained.service}" if explained.service else "the log of a start"
    values = {
        "start": start.model_dump(mode="json", exclude_none=True),
        "date": today,
        "report": explained.log_digest,
        "source": f"neuroscale explain, {of}",
    }
    version = match[0] if (match := _VERSION.match(facts.version)) and match[0] == facts.version else ""
    if not version:
        fault = f"is of vLLM {facts.version}, which is no release"
        raise InputError.at(where, "", fault, "Record the start of a released version.")
    words = words_of(facts.arguments, version)
    question = _question(planned.model, planned.accelerator, planned.count, words, version, where)
    return _measured(question, catalog, values, None, where)


def proposal(measured: Measured, base: Snapshot, newest: Snapshot) -> FilesChange[Made]:
    """The change of the catalog for the files of main, and those of the open pull request. Raises InputError."""
    change = _make(measured, base, newest)
    title = f"Record a measurement of {measured.model}"
    return FilesChange({change.path: change.text}, title, _sentences(change), change)


def _make(measured: Measured, base: Snapshot, newest: Snapshot) -> Made:
    """The model's file, checked as a part of the base's catalog. Raises InputError."""
    path, added = entry_path(measured.model), measured.measurement
    data = newest.read(path)
    if data is None:
        fix = f"Add the model first: neuroscale catalog add {measured.model}"
        raise InputError.at(path, "", "is not there, so the measurement has no place", fix)
    text = decode(data, path)
    entry = entry_of("models", text, path)
    if not isinstance(entry, ModelEntry) or entry.name != measured.model:
        raise InputError.at(path, "name", f"is not {measured.model!r}", "Rename one of the two models.")
    if added.weights != entry.weights_digest:
        fault = f"describes other weights than those of {added.report[:19]}... that were measured"
        raise InputError.at(path, "config", fault, "Bring this clone up to date, and measure what the entry describes.")
    recorded = next((known for known in entry.measurements if known.key == added.key), None)
    if recorded is not None and (recorded.loads, recorded.start) == (added.loads, added.start):
        return _change_of(path, text, entry, recorded, base)
    measurements = with_measurement(entry.measurements, added)
    return _change_of(path, measured_text(text, path, measurements), entry, added, base)


def _change_of(path: str, text: str, entry: ModelEntry, measurement: Measurement, base: Snapshot) -> Made:
    files = {each.path: base.read(each.path) or b"" for each in base.entries(CATALOG)}
    catalog = load_catalog(MemorySnapshot({**files, path: text.encode()}))
    model = catalog.models[entry.name]
    place = model.measurements.index(measurement)
    for at, field, fault in faults_of(model, catalog.accelerators, datetime.now(UTC).date()):
        if at == place:
            raise InputError.at(path, f"{MEASUREMENTS}[{place}].{field}", fault.rstrip("."), "Measure again.")
    remarks = tuple(sentence for at, sentence in remarks_on(model, catalog.accelerators) if at == place)
    return Made(path, text, measurement, remarks)


def _measured(question: Question, catalog: Catalog, values: Mapping[str, Any], revision: Any, where: str) -> Measured:
    entry = catalog.models.get(question.model)
    if entry is None:
        fix = f"{suggest(question.model, catalog.models, MODELS)} Or add it: neuroscale catalog add {question.model}"
        raise InputError.at(where, "model", f"{question.model!r} is not a model of the catalog", fix)
    subject = asked(replace(question, look_up=partial(load_model, catalog=catalog)), catalog)
    if subject.problems:
        fault = f"is no command of that version: {subject.problems[0]}".rstrip(".")
        raise InputError.at(where, "vllm_args", fault, "Measure again.")
    if lost := unkept(subject.arguments):
        fault = f"has {lost}, which decides about speed or memory, and a measurement does not keep it"
        raise InputError.at(where, "vllm_args", fault, "Measure a server without it.")
    if values.get("start") and (subject.arguments.kv_cache_memory_bytes or subject.arguments.num_gpu_blocks_override):
        # The size of the cache was set: it says nothing about the room beside the weights.
        start = {name: value for name, value in values["start"].items() if not name.startswith("kv_cache")}
        values = {**values, "start": start}
    record = {
        "accelerator": question.accelerator,
        "count": subject.arguments.ranks,
        "vllm_version": question.vllm_version,
        "revision": revision or entry.weights.revision,
        "weights": entry.weights_digest,
        **values,
    }
    try:
        record["arguments"] = served_with(subject.arguments).model_dump(mode="json")
        return Measured(entry.name, Measurement.model_validate_json(json.dumps(record)))
    except ValidationError as error:
        first = error.errors()[0]
        fix = str(first.get("ctx", {}).get("fix") or "Measure again: this is no measurement.")
        raise InputError.at(where, dotted(first["loc"]), first["msg"].rstrip("."), fix) from error


def _question(model: str, accelerator: str, count: Any, words: Sequence[str], version: str, where: str) -> Question:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError.at(where, "count", f"{count!r} is not a number of accelerators", "Measure again.")
    return Question(model, accelerator, count, tuple(words), version)


def _check_report(path: Path, digest: str) -> None:
    """Raises InputError if guidellm's report beside the file is not the one whose digest it names."""
    report = path.with_name(_REPORT)
    if not report.is_file():
        return
    measured_digest = sha256(report.read_bytes())
    if measured_digest != digest:
        fault = f"names {digest[:19]}..., and {_REPORT} beside it has {measured_digest[:19]}..."
        raise InputError.at(str(path), "report", fault, "Measure again: one of the two was changed.")


def _json(path: Path) -> Mapping[str, Any]:
    text = decode(read_bounded(path, _MOST_BYTES, "Name the bench.json of a run."), str(path))
    try:
        result = read_object(text) or {}
    except ValueError as error:
        raise InputError.at(str(path), "", "is not JSON", "Name the bench.json of a run.") from error
    if result.get("schema_version") != 1 or "loads" not in result:
        raise InputError.at(str(path), "", "is no result of `neuroscale bench`", "Name the bench.json of a run.")
    return result


def _mappings(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _sentences(record_change: Made) -> tuple[str, ...]:
    """The text of the pull request, for a reviewer of the measurement."""
    measurement = record_change.measurement
    return (
        f"Measured: {measurement.title}, on {measurement.date}, {measurement.source}.",
        *figures(measurement),
        f"The digest of the raw report or log: {measurement.report}.",
        *(record_change.remarks or (f"Nothing doubts it: it is within a factor of {FACTOR:g} of the estimate.",)),
    )


def figures(measurement: Measurement) -> list[str]:
    if measurement.start is not None:
        parts: list[str] = []
        for words, value, unit in (
            ("weights", measurement.start.weights_gib, "GiB"),
            ("room for the KV cache", measurement.start.kv_cache_gib, "GiB"),
            ("KV cache", measurement.start.kv_cache_tokens, "tokens"),
            ("CUDA graphs", measurement.start.graphs_gib, "GiB"),
            ("loading of the weights", measurement.start.load_seconds, "s"),
            ("start of the engine", measurement.start.engine_seconds, "s"),
        ):
            if value is not None:
                parts.append(f"{words} {duration(value) if unit == 's' else f'{value:,} {unit}'}")
        return [f"Start: {', '.join(parts)}."]
    rows = []
    for load in measurement.loads:
        first = load.ttft_seconds
        first_tokens = (
            "not measured"
            if first is None
            else duration(first.mean) + (f", p95 {duration(first.p95)}" if first.p95 else "")
        )
        load_words = f"{plainly_counted(load.users, 'user')}, {load.prompt_tokens:,} + {load.answer_tokens:,} tokens"
        rows.append(
            f"{load_words}: TTFT {first_tokens}; inter-token {duration(load.inter_token_seconds.mean)}; "
            f"{load.tokens_per_second.user:,.4g} tokens/s of a user, {load.tokens_per_second.total:,.4g} in all; "
            f"{load.requests} requests."
        )
    return rows
