"""Finds the catalog's measurement of a server, and lets it correct the estimates of its speed and its memory. Pure.

A measurement is of the same weights, on as many of the same accelerators, under the arguments that decide, and of a
near version of vLLM. It is not believed where it says that a server is far faster than servers like it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from neuroscale.catalog import Accelerator, ModelEntry
from neuroscale.catalog.contradictions import LIGHTEST
from neuroscale.catalog.measurements import MeasuredLoad, Measurement, ServedWith, is_near
from neuroscale.core.printable import plainly_counted
from neuroscale.core.releases import release
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device, device
from neuroscale.planning.fit.rank import assemble
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.planning.replica_memory import measured, served_facts
from neuroscale.planning.speed import Load, ReplicaSpeed
from neuroscale.planning.speed.limits import impossible
from neuroscale.planning.speed.load import MOST_USERS
from neuroscale.vllm.engine_arguments import EngineArguments

FACTOR = 3.0
"""A measured time is doubted if it is so many times shorter or longer than the estimate. Of the published measurements
in tests/ground_truth/speed, eight of ten lie within a third of it."""

MOST_HITS = 0.1
"""The largest share of prefix hits of a load that corrects an estimate: plans expect prompts that are not cached."""

_SAME = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "dtype"),
    *("quantization", "cpu_offload_gib", "enforce_eager", "enable_lora", "speculative", "speculative_tokens"),
    "language_model_only",
)
"""The arguments that must be the same. The estimate itself knows what the others change."""
_UNKEPT = {
    **dict.fromkeys(("decode_context_parallel_size", "prefill_context_parallel_size"), 1),
    **dict.fromkeys(("images", "videos", "audios")),
}


def unkept(arguments: EngineArguments) -> str:
    """An argument that decides and that a measurement does not keep, as the command writes it; "" if there is none."""
    named = [name for name, usual in _UNKEPT.items() if getattr(arguments, name) != usual]
    named += [part.dest for part in arguments.unplanned]
    return next((name if name.isupper() else f"--{name.replace('_', '-')}" for name in named), "")


def served_with(arguments: EngineArguments) -> ServedWith:
    """The arguments of a server, as a measurement keeps them. Raises ValueError for a value that it cannot hold."""
    values: dict[str, Any] = {name: getattr(arguments, name) for name in ServedWith.model_fields}
    if values["max_model_len"] == -1:
        values["max_model_len"] = None
    return ServedWith.model_validate(values)


def measurements_of(
    model: ModelEntry | None, device: Device, arguments: EngineArguments, version: str
) -> list[Measurement]:
    """The measurements of such a server, the nearest one first: by the type of its cache, version, number of batched
    tokens, and date."""
    if model is None or not model.measurements or unkept(arguments):
        return []
    wanted = _deciding(model, arguments)
    found = [
        one
        for one in model.measurements
        if (one.accelerator, one.count, one.weights) == (device.name, arguments.ranks, model.weights_digest)
        and is_near(one.release, release(version))
        and _deciding(model, one.arguments) == wanted
    ]
    batched = arguments.max_num_batched_tokens

    def distance(one: Measurement) -> tuple[bool, bool, bool, int]:
        other_batch = one.arguments.max_num_batched_tokens != batched
        other_version = one.release != release(version)
        return not same_cache(one, arguments), other_version, other_batch, -one.date.toordinal()

    return sorted(found, key=distance)


def same_cache(one: Measurement, arguments: EngineArguments) -> bool:
    """Whether the measured server kept its cache in the same type."""
    return _cache_type(one.arguments) == _cache_type(arguments)


def _cache_type(arguments: EngineArguments | ServedWith) -> str:
    return "fp8" if arguments.kv_cache_dtype == "fp8_e4m3" else arguments.kv_cache_dtype


def with_measured_speed(replica: ReplicaSpeed, model: ModelEntry | None, load: Load) -> ReplicaSpeed:
    """The replica, corrected by the measured load that is most like `load`, if there is one that is believed.

    A server with another type of cache was not measured. A measurement still shows where servers like it are slower
    than estimated: otherwise the estimate of what nobody measured would win over every slow measurement."""
    for one in measurements_of(model, replica.device, replica.arguments, replica.version):
        server = _server(replica, one)
        loads = [
            each for each in loads_of(one) if (each.prefix_hit_share or 0.0) <= MOST_HITS and _believed(server, each)
        ]
        if not loads:
            continue
        nearest = min(loads, key=lambda each: _distance(each, load))
        if same_cache(one, replica.arguments):
            figures = _figures(nearest)
            return replace(replica, measured=figures, like=replace(server, measured=figures))
        estimate = server.under(_asked(nearest))
        slower = estimate.inter_token_mean and nearest.inter_token_seconds.mean > estimate.inter_token_mean.value
        return replace(replica, like=replace(server, measured=_figures(nearest))) if slower else replica
    return replica


def as_measured(
    model: ModelEntry | None, facts: ModelFacts, where: Device, arguments: EngineArguments, version: str
) -> tuple[ModelFacts, Device]:
    """The model with the weights that a start of such a server measured, and the accelerator with what the start took
    beside them. The same objects where no start was measured.

    Beside the weights, the larger of estimate and measurement counts: how what lies there grows with requests and
    batches is an estimate, and a start with few of them took little. A plan with the measured arguments so never counts
    on more room for its cache than the start had. Far lighter weights than counted are not believed.
    """
    one = measured_memory(model, facts, where, arguments, version)
    if one is None or one.start is None or one.start.weights_gib is None:
        return facts, where
    said = _arguments(arguments, one)
    loaded = measured(facts, one.start.weights_gib, said)
    if one.start.kv_cache_gib is None:
        return loaded, where
    rank = assemble(loaded, where, said, one.vllm_version)
    more = (rank.usable - rank.taken) / GIB - one.start.kv_cache_gib
    return loaded, replace(where, beside_gib=more) if more > 0 else where


def measured_memory(
    model: ModelEntry | None, facts: ModelFacts, where: Device, arguments: EngineArguments, version: str
) -> Measurement | None:
    """The measured start whose memory counts for such a server; None if there is none that is believed."""
    if where.family == "cpu" or arguments.enable_lora or arguments.speculative or arguments.cpu_offload_gib:
        return None
    for one in measurements_of(model, where, arguments, version):
        if one.start is not None and one.start.weights_gib is not None:
            counted = rank_weights(facts, _arguments(arguments, one)).total / GIB
            if one.start.weights_gib >= LIGHTEST[facts.basis] * counted:
                return one
    return None


def measured_seconds(
    model: ModelEntry | None, where: Device, arguments: EngineArguments, version: str
) -> tuple[float, float]:
    """The slowest that starts of such a server measured: seconds of loading the weights, and of the engine's start
    after that. 0.0 where none tells."""
    found = [one.start for one in measurements_of(model, where, arguments, version) if one.start is not None]
    load = max((one.load_seconds or 0.0 for one in found), default=0.0)
    return load, max((one.engine_seconds or 0.0 for one in found), default=0.0)


def _arguments(like: EngineArguments, one: Measurement) -> EngineArguments:
    """The arguments of the server that was measured, as far as a measurement keeps them."""
    said = {name: getattr(one.arguments, name) for name in ServedWith.model_fields}
    said["max_model_len"] = one.arguments.max_model_len or like.max_model_len
    return replace(like, kv_cache_memory_bytes=None, num_gpu_blocks_override=None, **said)


def _server(replica: ReplicaSpeed, one: Measurement) -> ReplicaSpeed:
    """The server that was measured. How many requests its cache held is not known, beside its --max-num-seqs."""
    arguments = _arguments(replica.arguments, one)
    return replace(replica, arguments=arguments, version=one.vllm_version, held=None, measured={}, like=None)


def measured_server(model: ModelEntry, facts: ModelFacts, where: Device, one: Measurement) -> ReplicaSpeed:
    """The server of a measurement, without its figures."""
    return _server(ReplicaSpeed(facts, where, EngineArguments(model=model.name)), one)


def loads_of(one: Measurement) -> list[MeasuredLoad]:
    """The loads of a measurement, as everything that judges or corrects an estimate takes them: more than MOST_USERS
    users count as so many. With fewer users a server is no slower, so this makes no plan faster."""
    return [load.model_copy(update={"users": min(load.users, MOST_USERS)}) for load in one.loads]


def _asked(load: MeasuredLoad) -> Load:
    return Load(load.users, load.prompt_tokens, load.answer_tokens)


def doubted(server: ReplicaSpeed, load: MeasuredLoad) -> Iterator[tuple[str, float]]:
    """The measured times that are FACTOR times shorter or longer than the estimate: each by its name, and the measured
    time over the estimated one. Guessed tokens may shorten the time between tokens by their number. `server`: the one
    that was measured. Nothing is doubted where nothing like it was measured: there is no estimate."""
    estimate = server.under(_asked(load))
    pairs = (
        ("inter_token_seconds", load.inter_token_seconds, estimate.inter_token_mean),
        ("ttft_seconds", load.ttft_seconds, estimate.ttft_mean),
    )
    for name, found, expected in pairs:
        if found is not None and expected is not None:
            ratio = found.mean / expected.value
            guessed = 1 + server.arguments.speculative_tokens if name == "inter_token_seconds" else 1
            if not 1 / (FACTOR * guessed) <= ratio <= FACTOR:
                yield name, ratio


def remarks_on(model: ModelEntry, accelerators: Mapping[str, Accelerator]) -> Iterator[tuple[int, str]]:
    """What a reviewer of a model's measurements must know: the place of each in the entry, and a sentence on figures
    that plans do not use, that are far from the estimate, or that nothing can be compared with."""
    facts = served_facts(model)
    for place, one in enumerate(model.measurements):
        if one.weights != model.weights_digest:
            yield (
                place,
                f"The {one.title}: they are of other weights than the entry's config says. Plans do not use them.",
            )
            continue
        where = device(accelerators[one.accelerator])
        server = measured_server(model, facts, where, one)
        loads = loads_of(one)
        if loads and server.under(_asked(loads[0])).coverage == "unknown":
            yield place, f"The {one.title}: nothing like it was measured, so there is no estimate to compare it with."
        for load in loads:
            told = f"The {one.title}, with {plainly_counted(load.users, 'user')}:"
            if (load.prefix_hit_share or 0.0) > MOST_HITS:
                hits = f"{load.prefix_hit_share:.0%} of the prompts' tokens were cached"
                yield place, f"{told} {hits}. Plans do not use it, since they expect prompts that are not."
            for name, ratio in doubted(server, load):
                times = f"{ratio:.3g} times the estimate" if ratio > 1 else f"the estimate over {1 / ratio:.3g}"
                used = "Plans use it." if ratio > 1 else "Plans do not believe it, and keep the estimate."
                yield place, f"{told} {name} is {times}. {used}"
        if one.start is not None and one.start.weights_gib is not None and where.family != "cpu":
            counted = rank_weights(facts, server.arguments).total / GIB
            sizes = f"{one.start.weights_gib:g} GiB of weights, where {counted:.2f} GiB are counted"
            if one.start.weights_gib < LIGHTEST[facts.basis] * counted:
                yield place, f"The {one.title}: {sizes}. Plans do not believe it, and keep what they count."
            elif one.start.weights_gib * LIGHTEST[facts.basis] > counted:
                yield place, f"The {one.title}: {sizes}. Plans use it."


def faults_of(
    model: ModelEntry, accelerators: Mapping[str, Accelerator], today: date
) -> Iterator[tuple[int, str, str]]:
    """What cannot be in a model's measurements, figures faster than the accelerator and days of the future: the place
    of each in the entry, the field below it, and a sentence. Where it was measured, it may be tomorrow."""
    facts = served_facts(model)
    for place, one in enumerate(model.measurements):
        if one.date > today + timedelta(days=1):
            yield place, "date", f"The {one.title}: {one.date} is in the future (today is {today})."
        if one.weights != model.weights_digest:
            continue  # no plan uses it, and what was measured is not known
        server = measured_server(model, facts, device(accelerators[one.accelerator]), one)
        for nth, load in enumerate(one.loads):
            for field, told in impossible(server, load):
                users = plainly_counted(load.users, "user")
                yield place, f"loads[{nth}].{field}", f"The {one.title}, with {users}: {told}. That cannot be."


def _believed(server: ReplicaSpeed, load: MeasuredLoad) -> bool:
    """Whether a plan may rest on it. A server that is far slower than its like is believed: its plan asks for more."""
    return all(ratio > 1 for _, ratio in doubted(server, load))


def _figures(load: MeasuredLoad) -> dict[str, float]:
    """The load as `ReplicaSpeed` takes it."""
    figures: dict[str, float] = {
        "users": load.users,
        "prompt_tokens": load.prompt_tokens,
        "answer_tokens": load.answer_tokens,
        "inter_token_seconds": load.inter_token_seconds.mean,
    }
    if load.ttft_seconds is not None:
        figures["ttft_seconds"] = load.ttft_seconds.mean
        if load.ttft_seconds.p95 is not None:
            figures["ttft_p95_seconds"] = load.ttft_seconds.p95
    return figures


def _distance(load: MeasuredLoad, asked: Load) -> float:
    pairs = zip(load.key, (asked.users, asked.prompt_tokens, asked.answer_tokens), strict=True)
    return sum(abs(math.log(measured / max(wanted, 1))) for measured, wanted in pairs)


def _deciding(model: ModelEntry, arguments: EngineArguments | ServedWith) -> dict[str, Any]:
    """The values that decide about speed, where each has one name."""
    values = {name: getattr(arguments, name) for name in _SAME}
    if values["dtype"] == "auto":
        values["dtype"] = model.checkpoint.dtype
    if model.checkpoint.quantization != "none":
        values["quantization"] = None  # the files say it
    values["enable_expert_parallel"] = arguments.enable_expert_parallel and arguments.ranks > 1
    return values
