"""Asks planning about published measurements of speed: what it expects under the same load, and in which band."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from accuracy.reading import Cases
from accuracy.speed_cases import Column, DescribedAccelerator, Measurement, Series, SpeedCases
from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import PINNED, Device, device, fit
from neuroscale.planning.fit.device import family_of
from neuroscale.planning.speed.load import MOST_USERS, Coverage, Estimate, Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.vllm.arguments import parse_arguments

_ROOM = 256
"""Tokens beyond prompt and answer that the longest request of a measured server may have; the sources seldom say it."""


@dataclass(frozen=True)
class SpeedAnswer:
    """What planning says about a measurement. `words`: why it gives no figure."""

    coverage: Coverage
    figures: Mapping[Column, Estimate] = field(default_factory=dict)
    words: str = ""


class SpeedPlanner:
    """Asks planning; reads each model once."""

    def __init__(self, cases: Cases, speed: SpeedCases, catalog: Catalog) -> None:
        self._cases = cases
        self._catalog = catalog
        self._described = speed.accelerators
        self._facts: dict[str, ModelFacts] = {}
        self._replicas: dict[str, ReplicaSpeed] = {}
        self._held: dict[tuple[str, int], int | None] = {}

    def answer(self, asked: Measurement) -> SpeedAnswer:
        """The figures for one measurement."""
        series = asked.series
        prompt, answer = math.ceil(asked.prompt), math.ceil(asked.answer)
        try:
            replica = replace(self.replica(series), held=self.held(series, prompt + answer))
            return SpeedAnswer(*_figures(replica.under(load(asked)), mean=series.mean))
        except InputError as error:
            return SpeedAnswer("unknown", words="; ".join(problem.message for problem in error.problems))

    def facts(self, series: Series) -> ModelFacts:
        """The facts of the model. Raises InputError if planning cannot read its config."""
        name = series.model
        if name not in self._facts:
            of_catalog = name not in self._cases.models
            self._facts[name] = (
                self._catalog.models[name].facts
                if of_catalog
                else read_config(self._cases.config(name), name, f"config of {name}")
            )
        return self._facts[name]

    def device(self, series: Series) -> Device:
        """The accelerator, from the catalog or as the measurements' file describes it."""
        if series.accelerator in self._described:
            return _described(series.accelerator, self._described[series.accelerator])
        return device(self._catalog.accelerators[series.accelerator])

    def replica(self, series: Series) -> ReplicaSpeed:
        """The replica of a series, whose KV cache holds any number of requests."""
        if series.id not in self._replicas:
            version = series.known_version or PINNED
            arguments = parse_arguments(series.words, version).arguments
            self._replicas[series.id] = ReplicaSpeed(self.facts(series), self.device(series), arguments, version)
        return self._replicas[series.id]

    def held(self, series: Series, tokens: int) -> int | None:
        """How many requests of so many tokens the KV cache of the replica holds; None if planning cannot say it."""
        key = series.id, tokens
        if key not in self._held:
            replica = self.replica(series)
            length = replica.arguments.max_model_len
            if not isinstance(length, int) or length <= 0:
                length = tokens + _ROOM
            arguments = replace(replica.arguments, max_model_len=length)
            found = fit(replica.facts, replica.device, arguments, version=replica.version)
            started = found.verdict != "refused"
            self._held[key] = max(found.held(tokens), 1) * series.data_parallel if started else None
        return self._held[key]


def load(asked: Measurement) -> Load:
    """The load of a measurement."""
    prompt, answer, rate = math.ceil(asked.prompt), math.ceil(asked.answer), asked.requests_per_second
    if asked.users is not None:
        rate = None  # as many users as that ask again at once
    series = asked.series
    # vLLM's cache of prefixes keeps full blocks of 16 tokens, and computes the last token anew.
    cached = 16 * (int(series.cached_share * (prompt - 1)) // 16)
    return Load(
        asked.users or MOST_USERS,
        prompt,
        answer,
        rate,
        series.requests_per_user,
        prompt_spread=series.spread,
        cached_tokens=cached,
        in_step=series.in_step,
        starts_per_second=series.starts_per_second,
        burstiness=series.burstiness,
    )


def _figures(speed: SpeedUnderLoad, *, mean: bool) -> tuple[Coverage, dict[Column, Estimate], str]:
    typical = {
        "ttft_s": speed.ttft_mean if mean else speed.ttft_p50,
        "inter_token_s": speed.inter_token_mean if mean else speed.inter_token_p50,
    }
    told: dict[Column, Estimate | None] = {
        "ttft_s": typical["ttft_s"],
        "ttft_p95_s": speed.ttft_p95,
        "inter_token_s": typical["inter_token_s"],
        "inter_token_p95_s": speed.inter_token_p95,
        "tokens_per_second": speed.tokens_per_second_total,
        "user_tokens_per_second": speed.tokens_per_second_user,
    }
    return speed.coverage, {name: value for name, value in told.items() if value is not None}, " ".join(speed.reasons)


def _described(name: str, accelerator: DescribedAccelerator) -> Device:
    peaks = accelerator.tflops
    return Device(
        name=name,
        title=accelerator.title,
        family=family_of(name),
        memory_gib=accelerator.memory_gib,
        bandwidth_gb_s=accelerator.bandwidth_gb_s,
        interconnect_gb_s=_LINKS.get(name),
        bf16_tflops=peaks.get("bf16") or peaks.get("fp16"),
        fp8_tflops=peaks.get("fp8"),
        int8_tflops=peaks.get("int8"),
        fp4_tflops=peaks.get("fp4"),
    )


_LINKS = {"nvidia-b300": 900.0, "nvidia-h200-nvl": 450.0, "amd-mi355x": 538.0}
"""Links of described accelerators, in 10^9 bytes a second and direction, as aiconfigurator's b300_sxm.yaml and the data
sheets of the cards say; the others are taken to communicate over PCIe."""
