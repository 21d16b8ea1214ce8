"""Judges candidates, each an accelerator, a count and a KV cache type, and ranks them: the cheapest wins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from neuroscale.catalog import Accelerator, ModelEntry, RuntimeEntry
from neuroscale.core.printable import plainly_counted
from neuroscale.models.facts import COMPRESSED
from neuroscale.planning import replica_memory
from neuroscale.planning.case import Case, Failure, never_runs
from neuroscale.planning.fit.confidence import Doubt, doubts
from neuroscale.planning.fit.device import device
from neuroscale.planning.fit.engine import band_gib, too_much
from neuroscale.planning.fit.support import unsupported
from neuroscale.planning.measured import as_measured
from neuroscale.planning.plan import Memory, Replicas, Resources
from neuroscale.planning.price import PodPrice, pod_price
from neuroscale.planning.replica_memory import Server, WeightsBasis
from neuroscale.planning.speed import SpeedUnderLoad
from neuroscale.vllm.engine_arguments import EngineArguments


def batched_tokens(model: ModelEntry, accelerator: Accelerator) -> int:
    """The number that a plan writes: 8192 from 70 GiB on; below, 2048, or 2560 for a model that takes more than text.
    Gemma 4 computes an image or a video in one step, and a video takes up to 2,496 tokens: 2048 would not start."""
    # A plan always writes the number, and counts its speed and its memory with it. vLLM's own default for a command
    # without the argument depends on version, family and card (1024 on a TPU, 2048 for each rank on a CPU, 16384 from
    # 160 GiB on): `_batch` of planning/fit/argument_defaults.py computes it.
    if (accelerator.memory_gib.value or 0.0) >= 70:
        return 8192
    return 2560 if model.serving.multimodal else 2048


MOST_SEQUENCES = 1024
"""The most requests that one replica computes at once: vLLM's own default on large accelerators."""


@dataclass(frozen=True)
class UnderLoad:
    """How one replica answers while all users ask, each of them with requests of the typical lengths.

    `speed`: of a replica with its share of the users. `alone`: of an idle replica that gets one request of the longest
    prompt and answer. `kept`: the most users of one replica who get what is asked for, as far as planning looked (None:
    the speed is not known). `beyond`: clauses on the promises that the speed keeps by its value, and that the slow end
    of its band breaks.
    """

    speed: SpeedUnderLoad
    alone: SpeedUnderLoad
    kept: int | None
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """One choice with its numbers; a choice that works has no `failures`."""

    accelerator: Accelerator
    count: int
    runtime: RuntimeEntry
    arguments: EngineArguments  # those that the plan writes
    memory: Memory
    band_gib: float  # how far the estimate of the free memory may be off, in GiB
    weights_basis: WeightsBasis
    doubts: tuple[Doubt, ...]  # the reasons why the figures of the memory may be wrong
    sequences: int  # requests that a replica computes at once: `--max-num-seqs`
    held: int  # the requests that the memory is planned for: one of full length, and the others of typical length
    capacity: int  # requests of full length that a replica holds at once
    typical_capacity: int  # requests that a replica holds at once when one is of full length and the others are typical
    replicas: Replicas
    resources: Resources
    price: PodPrice | None
    failures: tuple[Failure, ...]
    server: Server
    load: UnderLoad | None = None  # None: not judged, as of a choice that already fails

    @property
    def works(self) -> bool:
        return not self.failures

    @property
    def tight(self) -> bool:
        """Whether the free memory is less than the error band of the estimate."""
        return self.memory.free < self.band_gib

    @property
    def unchecked(self) -> bool:
        """Whether it is judged, and nothing is known about its speed: memory alone says that it works."""
        return self.load is not None and self.load.speed.coverage == "unknown"

    @property
    def label(self) -> str:
        return f"{self.count} x {self.accelerator.title}"

    @property
    def hourly(self) -> Decimal | None:
        """US dollars per hour with the fewest replicas, unrounded."""
        return self.price.hourly * self.replicas.min if self.price else None

    @property
    def rank(self) -> tuple[bool, Decimal, int, str, int, bool]:
        """Sorts the cheapest first; choices without a price come last, by the number of accelerators; at equal cost,
        the 16-bit cache comes first."""
        hourly = self.hourly
        return (
            hourly is None,
            hourly or Decimal(0),
            self.count * self.replicas.min,
            self.accelerator.name,
            self.count,
            self.arguments.kv_cache_dtype != "auto",
        )

    @property
    def distance(self) -> tuple[int, float, int, int, tuple[bool, Decimal, int, str, int, bool]]:
        """How far the candidate is from working: by choices that can never be served, then by the memory that a rank
        lacks, then by failures that fewer users or a longer wait would mend, then by the users that a replica keeps."""
        impossible = sum(failure.kind in ("support", "context") for failure in self.failures)
        missing = max(0.0, -self.memory.free) if any(failure.kind == "memory" for failure in self.failures) else 0.0
        kept = (self.load.kept or 0) if self.load else 0
        return impossible, missing, len(self.failures) - impossible, -kept, self.rank


@dataclass(frozen=True)
class Offer:
    """A choice that is not judged yet. `hourly`: US dollars with the fewest replicas that any load takes (None: no
    price)."""

    accelerator: Accelerator
    runtime: RuntimeEntry
    count: int
    kv_cache_dtype: str
    hourly: Decimal | None


def offers(case: Case) -> list[Offer]:
    """Every choice that the environment and the overrides leave open, cheapest first."""
    forced = case.overrides.get("accelerator")
    names = (str(forced),) if forced is not None else case.environment.accelerators
    fewest = replicas_of(case, 1).min
    found = []
    for name in names:
        accelerator = case.catalog.accelerators[name].on(case.environment.cluster)
        runtime = case.catalog.runtime(accelerator.family, case.model.facts)
        count = case.overrides.get("accelerator_count")
        counts = (count,) if isinstance(count, int) else accelerator.counts
        dtype = case.overrides.get("kv_cache_dtype")
        # Latent attention has a cache format of its own: no plan uses its 8-bit format.
        latent = any(layers.kind in ("latent", *COMPRESSED) for layers in case.model.facts.cache)
        dtypes = ("auto",) if latent else accelerator.kv_cache_dtypes
        for each in counts:
            price = _price(case, accelerator, each, pod_resources(case, accelerator, each))
            hourly = price.hourly * fewest if price else None
            for kv_cache_dtype in (str(dtype),) if dtype is not None else dtypes:
                found.append(Offer(accelerator, runtime, each, kv_cache_dtype, hourly))
    return sorted(found, key=lambda one: (one.hourly is None, one.hourly or Decimal(0)))


def candidates(case: Case) -> list[Candidate]:
    """Every offer judged by all but the load, cheapest first."""
    return sorted((judge_offer(case, one) for one in offers(case)), key=lambda candidate: candidate.rank)


def judge_offer(case: Case, offer: Offer) -> Candidate:
    """The candidate that an offer is."""
    return judge_candidate(case, offer.accelerator, offer.runtime, offer.count, offer.kv_cache_dtype)


def _price(case: Case, accelerator: Accelerator, count: int, resources: Resources) -> PodPrice | None:
    lists = case.environment.price_lists
    return pod_price(case.catalog, lists, accelerator.name, count, resources.cpu, resources.memory_gib)


def judge_candidate(
    case: Case,
    accelerator: Accelerator,
    runtime: RuntimeEntry,
    count: int,
    kv_cache_dtype: str,
    tokens: int | None = None,
) -> Candidate:
    """One candidate with its numbers and every reason against it but the load, which `planning/load_choice.py` judges.
    `tokens`: another number for `--max-num-batched-tokens` than the usual one."""
    model, request, where = case.model, case.request, device(accelerator)
    forced = case.overrides.get("gpu_memory_utilization")
    utilization = forced if isinstance(forced, float) else runtime.memory_utilization
    if utilization is not None and not isinstance(forced, float):
        utilization = min(utilization, where.free_share)
    tokens = tokens or batched_tokens(model, accelerator)
    arguments = EngineArguments(
        model=case.facts.name,
        tensor_parallel_size=count,
        enable_expert_parallel=case.facts.experts > 0 and count > 1,
        max_model_len=case.max_model_len,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization=utilization,
        kv_cache_dtype=kv_cache_dtype,
        enforce_eager="--enforce-eager" in runtime.args,
    )
    facts, where = as_measured(model, case.facts, where, arguments, runtime.version)
    server = Server(facts, where, arguments, runtime.version, whole_gib=runtime.family == "cpu")
    forced_sequences = case.overrides.get("max_num_seqs")
    most = forced_sequences if isinstance(forced_sequences, int) else None
    ceiling = MOST_SEQUENCES if most is None else most
    rank = server.rank(1 if most is None else most)
    failures = never_runs(case, accelerator, runtime, count)
    failures += [Failure("support", sentence) for sentence in unsupported(rank)]
    if rank.pool is None:
        sentence = f"The layers of {case.facts.name} keep caches that vLLM cannot put into one."
        failures.append(Failure("support", sentence))

    typical = case.typical_len
    capacity = _largest(lambda requests: server.fits(requests, most), ceiling, server.about(most))
    usual = capacity
    if typical is not None:
        usual = _largest(lambda requests: server.fits(requests, most, typical), ceiling, server.about(most, typical))
    replicas = replicas_of(case, math.ceil(request.concurrent_users / usual) if usual else 1)
    held = _held(case, usual, replicas)
    at_once = held if most is None else most
    needed, rank = server.memory(held, at_once, typical), server.rank(at_once)
    band = band_gib(rank)
    if capacity == 0:
        close = replica_memory.close(accelerator, needed, band)
        beyond = [lack.sentence for lack in too_much(rank)]
        failures.append(_too_small(case, accelerator, count, needed, held, beyond, close))
    elif replicas.min > case.environment.max_replicas:
        sentence = (
            f"Serving {plainly_counted(request.concurrent_users, 'user')} at once takes "
            f"{plainly_counted(replicas.min, 'replica')} of {count} x {accelerator.title} "
            f"({plainly_counted(usual, 'user')} each); the environment allows {case.environment.max_replicas}."
        )
        failures.append(Failure("replicas", sentence))
    if replicas.max < replicas.min:
        sentence = f"At most {replicas.max} replicas are allowed, and {replicas.min} are needed."
        failures.append(Failure("replicas", sentence))
    resources = pod_resources(case, accelerator, count)
    return Candidate(
        accelerator=accelerator,
        count=count,
        runtime=runtime,
        arguments=replace(arguments, max_num_seqs=at_once),
        memory=needed,
        band_gib=band,
        weights_basis="measured" if facts is not case.facts else replica_memory.weights(model).basis,
        doubts=doubts(rank),
        sequences=at_once,
        held=held,
        capacity=capacity,
        typical_capacity=usual,
        replicas=replicas,
        resources=resources,
        price=_price(case, accelerator, count, resources),
        failures=tuple(failures),
        server=server,
    )


def resized(case: Case, candidate: Candidate, replicas: Replicas, at_once: int | None = None) -> Candidate:
    """The candidate with so many replicas, of which each computes so many requests at once (None: those that it is
    planned to hold)."""
    forced = case.overrides.get("max_num_seqs")
    held = _held(case, candidate.typical_capacity, replicas)
    at_once = forced if isinstance(forced, int) else at_once or held
    rank = candidate.server.rank(at_once)
    return replace(
        candidate,
        replicas=replicas,
        held=held,
        sequences=at_once,
        arguments=replace(candidate.arguments, max_num_seqs=at_once),
        memory=candidate.server.memory(held, at_once, case.typical_len),
        band_gib=band_gib(rank),
        doubts=doubts(rank),
    )


def _held(case: Case, capacity: int, replicas: Replicas) -> int:
    """The requests that the memory of one replica is planned for."""
    return max(1, min(capacity, math.ceil(case.request.concurrent_users / replicas.min)))


def pod_resources(case: Case, accelerator: Accelerator, count: int) -> Resources:
    """The resources that one pod requests: 4 cores an accelerator, and host memory for loading."""
    selector = dict(sorted({**case.environment.node_selector, **accelerator.node_selector}.items()))
    cpu = min(4 * count, case.environment.max_cpu_per_pod)
    memory = replica_memory.host_memory(case.model, accelerator, count)
    return Resources(
        cpu=cpu,
        memory_gib=memory.gib,
        shared_memory_gib=memory.shared_gib,
        accelerator_resource="" if accelerator.family == "cpu" else accelerator.resource,
        node_selector=selector,
    )


def _largest(fits: Callable[[int], bool], ceiling: int, guess: int) -> int:
    """The largest number of requests from 1 to `ceiling` that fits; 0 if not even one request fits. It looks around the
    `guess` first, in growing steps."""
    if not fits(1):
        return 0
    low, high, step = 1, ceiling, 1
    probe = min(max(guess, 1), ceiling)
    upwards = fits(probe)
    while low < high:
        if fits(probe):
            low = probe
            if not upwards:
                break
            probe = min(low + step, ceiling)
        else:
            high = probe - 1
            if upwards:
                break
            probe = max(high - step, 1)
        step *= 4
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def replicas_of(case: Case, needed: int) -> Replicas:
    """The replicas where the users need so many: two at least for high availability; the overrides decide."""
    if case.request.availability == "high":
        needed = max(needed, 2)
    forced = case.overrides.get("replicas.min")
    fewest = forced if isinstance(forced, int) else needed
    most = case.overrides.get("replicas.max")
    # Without autoscaling, nothing changes the number between the two.
    return Replicas(min=fewest, max=most if isinstance(most, int) else fewest)


def _too_small(
    case: Case, accelerator: Accelerator, count: int, needed: Memory, sequences: int, beyond: list[str], close: str
) -> Failure:
    if beyond and needed.free >= 0:
        return Failure("memory", beyond[0])
    requests = plainly_counted(sequences, "request")
    total = needed.weights + needed.overhead + needed.kv_cache
    return Failure(
        "memory",
        f"{case.model.name} does not fit {count} x {accelerator.title}: weights {needed.weights:.2f} GiB + overhead "
        f"{needed.overhead:.2f} GiB + KV cache for {requests} of {case.max_model_len} tokens {needed.kv_cache:.2f} GiB "
        f"= {total:.2f} GiB on each accelerator, and {needed.usable:.2f} GiB are usable ({total - needed.usable:.2f} "
        f"GiB short).{close}",
    )
