"""Answers how fast a replica is under a load, with the catalog's measurements where they fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.core.errors import InputError
from neuroscale.planning.fit import Fit
from neuroscale.planning.fit_question import Question, asked, fitted
from neuroscale.planning.measured import with_measured_speed
from neuroscale.planning.speed import Load, ReplicaSpeed, SpeedUnderLoad


@dataclass(frozen=True)
class Answer:
    """The speed of a replica under a load, and the most users that keep a TTFT (None: not asked for, or unknown).
    `replica`: without what the catalog's `entry` of the model measured (None: the catalog lacks it)."""

    fit: Fit
    replica: ReplicaSpeed
    entry: ModelEntry | None
    speed: SpeedUnderLoad
    largest_users: int | None

    @property
    def starts(self) -> bool:
        return self.fit.verdict != "refused"

    def under(self, users: int) -> SpeedUnderLoad:
        """The speed under the same load with another number of users."""
        load = replace(self.speed.load, users=users, requests_per_second=None)
        return under(with_measured_speed(self.replica, self.entry, load), self.fit, load)


def answer(question: Question, load: Load, p95_ttft: float | None, catalog: Catalog) -> Answer:
    """The answer. Without --max-model-len in the arguments, requests may be as long as fits. Raises InputError."""
    said = asked(question, catalog)
    if said.arguments.max_model_len is None:
        said = replace(said, arguments=replace(said.arguments, max_model_len=-1))
    result = fitted(question, said)
    length = load.prompt_tokens + load.answer_tokens
    if result.verdict != "refused" and length > result.max_model_len:
        raise InputError.at(
            "the command line",
            "--prompt-tokens",
            f"prompt and answer have {length:,} tokens, and a request may have {result.max_model_len:,} here",
            f"Write at most {result.max_model_len} together, or raise --max-model-len in --vllm-args.",
        )
    arguments = replace(said.arguments, max_model_len=result.max_model_len)
    held = max(result.held(length), 1) * arguments.data_parallel_size
    # Other figures than the catalog's make another accelerator, which nobody measured.
    same = question.bandwidth_gbs is None and question.tflops is None
    entry = catalog.models.get(question.model) if same else None
    replica = ReplicaSpeed(said.facts, said.where, arguments, question.vllm_version, held)
    corrected = with_measured_speed(replica, entry, load)
    speed = under(corrected, result, load)
    largest = None
    if p95_ttft is not None and speed.coverage != "unknown":
        largest = corrected.largest_users(load.prompt_tokens, load.answer_tokens, p95_ttft_seconds=p95_ttft)
    return Answer(result, replica, entry, speed, largest)


def under(replica: ReplicaSpeed, result: Fit, load: Load) -> SpeedUnderLoad:
    """The speed under a load; unknown for a model that does not start."""
    if result.verdict == "refused":
        return SpeedUnderLoad(load, "unknown", (f"The model does not start there: {result.reasons[0]}",))
    return replica.under(load)
