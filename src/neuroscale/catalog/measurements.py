"""Defines the measurements of a model: how fast a replica answered under load, and what a good start showed.

A measurement holds for one key: the model's files, the accelerators of one replica, the version of vLLM, and the
arguments that decide about speed or memory. GiB is 2^30 bytes. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from neuroscale.core.frozen import Frozen, Label, Source
from neuroscale.core.money_and_time import duration
from neuroscale.core.releases import Release, release
from neuroscale.core.validation import wrong
from neuroscale.core.yaml_io import sha256_of

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Version = Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$")]

_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._/\[\]-]{0,127}$")]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Seconds = Annotated[float, Field(gt=0, le=3600)]
_Rate = Annotated[float, Field(gt=0, le=10_000_000)]
_Gib = Annotated[float, Field(ge=0, le=100_000)]
_Tokens = Annotated[int, Field(ge=1, le=100_000_000)]

MOST_MEASUREMENTS = 64
"""The most measurements of one model."""
_MOST_LOADS = 32
_LIMIT = 1.25
"""How far a total may be above what the time between tokens allows: figures of a report are rounded, and the time
between tokens is a mean over the answers, of which some end early."""


class ServedWith(Frozen):
    """The arguments of `vllm serve` that decide about speed or memory, named as in vllm/engine_arguments.py. The
    defaults below: the command did not set them. `speculative`: the method that guesses tokens, or its model."""

    tensor_parallel_size: _Count = 1
    pipeline_parallel_size: _Count = 1
    data_parallel_size: _Count = 1
    enable_expert_parallel: bool = False
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: _Word | None = None
    kv_cache_dtype: _Word = "auto"
    max_model_len: _Count | None = None
    max_num_seqs: _Count | None = None
    max_num_batched_tokens: _Count | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    cpu_offload_gib: _Gib = 0.0
    enforce_eager: bool = False
    enable_prefix_caching: bool | None = None
    enable_lora: bool = False
    language_model_only: bool = False
    speculative: _Word | None = None
    speculative_tokens: Annotated[int, Field(ge=0, le=64)] = 0

    @property
    def ranks(self) -> int:
        """The accelerators of a replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


class MeasuredSeconds(Frozen):
    """The times of all requests of a load: their mean, and the times within which 50 and 95 of 100 came (None: not
    measured)."""

    mean: _Seconds
    p50: _Seconds | None = None
    p95: _Seconds | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.p50 is not None and self.p95 is not None and self.p50 > self.p95:
            fault = f"the p50, {duration(self.p50)}, is above the p95, {duration(self.p95)}"
            raise wrong(fault, "Copy the report's own figures.")
        return self


class MeasuredRates(Frozen):
    """Tokens of answers a second. `user`: of one user's answer, once its first token is there. `total`: of all users
    together."""

    user: _Rate
    total: _Rate


class MeasuredLoad(Frozen):
    """A closed load on one replica: `users` who each send the next request once the last one is answered.

    `prompt_tokens`, `answer_tokens`: means of the requests. `ttft_seconds`: from the client's sending to the first
    token (None: not measured). `requests`: that were answered in full, without the warm-up. `prefix_hit_share`: the
    share of the prompts' tokens that the server's prefix cache had (None: not known).
    """

    users: Annotated[int, Field(ge=1, le=4096)]
    prompt_tokens: _Tokens
    answer_tokens: Annotated[int, Field(ge=2, le=10_000_000)]
    ttft_seconds: MeasuredSeconds | None
    inter_token_seconds: MeasuredSeconds
    tokens_per_second: MeasuredRates
    requests: Annotated[int, Field(ge=1)]
    failed_requests: Annotated[int, Field(ge=0)]
    prefix_hit_share: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Users, and tokens of a prompt and of an answer."""
        return self.users, self.prompt_tokens, self.answer_tokens

    @model_validator(mode="after")
    def _possible(self) -> Self:
        rates, each = self.tokens_per_second, 1 / self.inter_token_seconds.mean
        if self.failed_requests:
            failed = f"{self.failed_requests} of its {self.requests + self.failed_requests} requests failed"
            raise wrong(failed, "Measure again: the figures of such a run prove nothing.")
        if rates.total > _LIMIT * self.users * each:
            told = f"{rates.total:g} tokens/s in all are more than {self.users} users get with {each:g} each"
            raise wrong(told, "Copy `total` and `inter_token_seconds` from the same report.")
        if not each / _LIMIT**2 <= rates.user <= each * _LIMIT**2:
            told = f"{rates.user:g} tokens/s of a user are not what the time between tokens says ({each:g})"
            raise wrong(told, "Count `user` from the first token on.")
        return self


class MeasuredStart(Frozen):
    """What the log of a good start showed of one accelerator. None: the log does not tell.

    `weights_gib`: vLLM's 'Model loading took' (a CPU's log lacks it). `kv_cache_gib`, `kv_cache_tokens`: the room for
    the KV cache. `graphs_gib`: what the capture of CUDA graphs took. `load_seconds`: of loading the weights.
    `engine_seconds`: of what follows it, profiling, compilation, graphs and warm-up ('init engine ... took').
    """

    weights_gib: Annotated[float, Field(gt=0, le=100_000)] | None = None
    kv_cache_gib: _Gib | None = None
    kv_cache_tokens: _Tokens | None = None
    graphs_gib: _Gib | None = None
    load_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    engine_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None

    @model_validator(mode="after")
    def _tells(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise wrong("the start has no figure", "Copy what the log tells, or remove the measurement.")
        return self


class Measurement(Frozen):
    """What was measured of one replica: either `loads`, from a benchmark, or its `start`, from its log.

    `count`: the accelerators of the replica. `revision`: of the model's files (None: not known). `weights`: what they
    were, by `weights_digest`. `report`: the digest of the raw report or log. `arguments`: those of the server.
    """

    accelerator: Label
    count: Annotated[int, Field(ge=1, le=64)] = 1
    vllm_version: Version
    revision: Revision | None
    weights: Digest
    arguments: ServedWith = Field(default_factory=ServedWith)
    date: date
    report: Digest
    source: Source
    loads: Annotated[tuple[MeasuredLoad, ...], Field(max_length=_MOST_LOADS)] = ()
    start: MeasuredStart | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What it is a measurement of: a later one of the same takes its place."""
        kind = "start" if self.start else "loads"
        served = self.vllm_version, self.weights, self.arguments.model_dump_json()
        return (self.accelerator, self.count, kind, *served)

    @property
    def release(self) -> Release:
        """The version of vLLM as numbers."""
        return release(self.vllm_version)

    @property
    def title(self) -> str:
        """What it is of, for a person. No two of a model have the same title."""
        arguments = self.arguments.model_dump(exclude_defaults=True).items()
        with_arguments = "".join(f", {name}={value}" for name, value in arguments)
        what = "start" if self.start else "loads"
        weights = self.weights.removeprefix("sha256:")[:12]
        where = f"{self.count} x {self.accelerator}"
        return f"{what} on {where}, vLLM {self.vllm_version}{with_arguments}, weights {weights}"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.loads) == (self.start is not None):
            fault = "has loads and a start" if self.loads else "has neither loads nor a start"
            raise wrong(fault, "Write one of the two: a benchmark gives loads, and a server's log its start.")
        if self.arguments.ranks != self.count:
            fault = f"{self.count} accelerators are not the {self.arguments.ranks} of its parallel sizes"
            raise wrong(fault, "Write the accelerators of one replica, and its arguments.")
        keys = [load.key for load in self.loads]
        if len(set(keys)) != len(keys):
            raise wrong("has the same load twice", "Keep one of the two.")
        return self


NEAR_MINOR = 1
"""How many minor versions of vLLM a measurement may be away: speed and memory change with most of them, by little."""


def is_near(version: Release, other: Release) -> bool:
    """Whether a measurement of one release of vLLM holds for another one."""
    return version[0] == other[0] and abs(version[1] - other[1]) <= NEAR_MINOR


def with_measurement(known: tuple[Measurement, ...], added: Measurement) -> tuple[Measurement, ...]:
    """The measurements with another one, in a fixed order: it takes the place of an earlier one of the same."""
    kept = [measurement for measurement in known if measurement.key != added.key]
    return tuple(sorted((*kept, added), key=lambda measurement: measurement.key))


def measurement_values(measurement: Measurement) -> dict[str, Any]:
    """The values of a measurement as they stand in a model's file: without those that are the defaults."""
    values: dict[str, Any] = measurement.model_dump(mode="json", exclude_defaults=True)
    key = {"accelerator": measurement.accelerator, "count": measurement.count}
    return {**key, "vllm_version": measurement.vllm_version, "revision": measurement.revision, **values}


def weights_digest(config: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> str:
    """The digest of what speed and memory depend on in a model's files: its config, and how its weights are stored. A
    commit that changes neither, as of a README, leaves measurements valid."""
    stored = {name: checkpoint.get(name) for name in ("dtype", "quantization", "quantization_group_size")}
    return sha256_of({"config": config, **stored})
