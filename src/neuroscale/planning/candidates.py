"""Judges candidates, each an accelerator, a count and a KV cache type, and ranks them: the cheapest wins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal

from neuroscale.catalog import Accelerator, Catalog, ModelEntry, RuntimeEntry
from neuroscale.catalog.settings import Environment
from neuroscale.core.printable import plainly_counted
from neuroscale.models.facts import COMPRESSED, ModelFacts
from neuroscale.planning import replica_memory
from neuroscale.planning.fit.argument_defaults import BLOCK
from neuroscale.planning.fit.confidence import Doubt, doubts
from neuroscale.planning.fit.device import device
from neuroscale.planning.fit.engine import band_gib, too_much
from neuroscale.planning.fit.support import unsupported
from neuroscale.planning.fit.versions import number
from neuroscale.planning.plan import Memory, Replicas, Resources, Speed
from neuroscale.planning.price import PodPrice, pod_price
from neuroscale.planning.replica_memory import Server, WeightsBasis, speed
from neuroscale.planning.vllm_flags import model_source
from neuroscale.request.service_request import Request
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


CHAT_TEMPLATE_TOKENS = 128
"""Room for role markers and the start of the answer. A prompt of exactly the limit leaves none for an answer."""

MOST_SEQUENCES = 1024
"""The most requests that one replica computes at once: vLLM's own default on large accelerators."""

OverrideValue = str | int | float | bool


@dataclass(frozen=True)
class Case:
    """A request with the catalog entries and settings that it names. `overrides`: values by field."""

    request: Request
    model: ModelEntry
    environment_name: str
    environment: Environment
    catalog: Catalog
    overrides: dict[str, OverrideValue]

    @cached_property
    def facts(self) -> ModelFacts:
        """The facts of the model, with the best known size of its weights."""
        return replica_memory.served_facts(self.model)

    @property
    def wanted_model_len(self) -> int:
        """Longest prompt, longest answer and the chat template, in whole KV cache blocks."""
        whole = math.ceil((self.asked_tokens + CHAT_TEMPLATE_TOKENS) / BLOCK) * BLOCK
        # If only the margin for the template crosses the model's own limit, the limit itself is the length.
        limit = self.model.facts.max_position_embeddings
        return limit if self.asked_tokens < limit < whole else whole

    @property
    def asked_tokens(self) -> int:
        """The tokens of the longest prompt and answer together."""
        return self.request.longest_prompt_tokens + self.request.longest_answer_tokens

    @cached_property
    def typical(self) -> tuple[int, int]:
        """Tokens of the prompt and of the answer of most requests: the form's, else the environment's share of the
        longest. Never longer than the longest."""
        request, share = self.request, self.environment.typical_share

        def tokens(said: int | None, longest: int) -> int:
            return min(longest, math.ceil(share * longest) if said is None else said)

        return (
            tokens(request.typical_prompt_tokens, request.longest_prompt_tokens),
            tokens(request.typical_answer_tokens, request.longest_answer_tokens),
        )

    @property
    def typical_len(self) -> int | None:
        """Tokens of most requests with the chat template, in whole KV cache blocks; None if all requests are of full
        length."""
        request = self.request
        if self.typical == (request.longest_prompt_tokens, request.longest_answer_tokens):
            return None
        whole = math.ceil((sum(self.typical) + CHAT_TEMPLATE_TOKENS) / BLOCK) * BLOCK
        return min(whole, self.max_model_len)

    @property
    def max_model_len(self) -> int:
        value = self.overrides.get("max_model_len")
        return value if isinstance(value, int) else self.wanted_model_len


@dataclass(frozen=True)
class Failure:
    """A reason against a candidate, as a complete sentence."""

    kind: Literal["support", "context", "memory", "speed", "replicas"]
    sentence: str


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
    speed: Speed
    resources: Resources
    price: PodPrice | None
    failures: tuple[Failure, ...]

    @property
    def works(self) -> bool:
        return not self.failures

    @property
    def tight(self) -> bool:
        """Whether the free memory is less than the error band of the estimate."""
        return self.memory.free < self.band_gib

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
    def distance(self) -> tuple[int, float, int, tuple[bool, Decimal, int, str, int, bool]]:
        """How far the candidate is from working: by choices that can never be served, then by the memory that a rank
        lacks, then by failures that fewer users or a longer wait would mend."""
        impossible = sum(failure.kind in ("support", "context") for failure in self.failures)
        missing = max(0.0, -self.memory.free) if any(failure.kind == "memory" for failure in self.failures) else 0.0
        return impossible, missing, len(self.failures) - impossible, self.rank


def candidates(case: Case) -> list[Candidate]:
    """Every choice that the environment and the overrides leave open, cheapest first."""
    forced = case.overrides.get("accelerator")
    names = (str(forced),) if forced is not None else case.environment.accelerators
    judged = []
    for name in names:
        accelerator = case.catalog.accelerators[name].on(case.environment.cluster)
        runtime = case.catalog.runtime(accelerator.family, case.model.facts)
        count = case.overrides.get("accelerator_count")
        counts = (count,) if isinstance(count, int) else accelerator.counts
        dtype = case.overrides.get("kv_cache_dtype")
        # Latent attention has a cache format of its own: no plan uses its 8-bit format.
        latent = any(layers.kind in ("latent", *COMPRESSED) for layers in case.model.facts.cache)
        dtypes = ("auto",) if latent else accelerator.kv_cache_dtypes
        for kv_cache_dtype in (str(dtype),) if dtype is not None else dtypes:
            judged += [judge_candidate(case, accelerator, runtime, each, kv_cache_dtype) for each in counts]
    return sorted(judged, key=lambda candidate: candidate.rank)


def judge_candidate(
    case: Case, accelerator: Accelerator, runtime: RuntimeEntry, count: int, kv_cache_dtype: str
) -> Candidate:
    """One candidate with its numbers and every reason against it."""
    model, request, where = case.model, case.request, device(accelerator)
    forced = case.overrides.get("gpu_memory_utilization")
    utilization = forced if isinstance(forced, float) else runtime.memory_utilization
    if utilization is not None and not isinstance(forced, float):
        utilization = min(utilization, where.free_share)
    tokens = batched_tokens(model, accelerator)
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
    server = Server(case.facts, where, arguments, runtime.version, whole_gib=runtime.family == "cpu")
    forced_sequences = case.overrides.get("max_num_seqs")
    most = forced_sequences if isinstance(forced_sequences, int) else None
    ceiling = MOST_SEQUENCES if most is None else most
    rank = server.rank(1 if most is None else most)
    failures = _unsupported(case, accelerator, runtime, count)
    failures += [Failure("support", sentence) for sentence in unsupported(rank)]
    if rank.pool is None:
        sentence = f"The layers of {case.facts.name} keep caches that vLLM cannot put into one."
        failures.append(Failure("support", sentence))

    typical = case.typical_len
    capacity = _largest(lambda requests: server.fits(requests, most), ceiling)
    usual = capacity if typical is None else _largest(lambda requests: server.fits(requests, most, typical), ceiling)
    replicas = _replicas(case, usual)
    held = max(1, min(usual, math.ceil(request.concurrent_users / replicas.min)))
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
    pace = speed(model, accelerator, count, request.longest_prompt_tokens, tokens)
    if pace.ttft_seconds is not None and pace.ttft_seconds > request.p95_ttft_seconds:
        sentence = (
            f"The first token of a prompt of {request.longest_prompt_tokens} tokens takes about "
            f"{pace.ttft_seconds:g} s on {count} x {accelerator.title}, and {request.p95_ttft_seconds:g} s are "
            "asked for."
        )
        failures.append(Failure("speed", sentence))
    resources = pod_resources(case, accelerator, count)
    return Candidate(
        accelerator=accelerator,
        count=count,
        runtime=runtime,
        arguments=replace(arguments, max_num_seqs=at_once),
        memory=needed,
        band_gib=band,
        weights_basis=replica_memory.weights(model).basis,
        doubts=doubts(rank),
        sequences=at_once,
        held=held,
        capacity=capacity,
        typical_capacity=usual,
        replicas=replicas,
        speed=pace,
        resources=resources,
        price=pod_price(
            case.catalog, case.environment.price_lists, accelerator.name, count, resources.cpu, resources.memory_gib
        ),
        failures=tuple(failures),
    )


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


def _largest(fits: Callable[[int], bool], ceiling: int) -> int:
    """The largest number of requests from 1 to `ceiling` that fits; 0 if not even one request fits."""
    if not fits(1):
        return 0
    low, high = 1, ceiling
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _replicas(case: Case, capacity: int) -> Replicas:
    needed = math.ceil(case.request.concurrent_users / capacity) if capacity else 1
    if case.request.availability == "high":
        needed = max(needed, 2)
    forced = case.overrides.get("replicas.min")
    fewest = forced if isinstance(forced, int) else needed
    most = case.overrides.get("replicas.max")
    # Without autoscaling, nothing changes the number between the two.
    return Replicas(min=fewest, max=most if isinstance(most, int) else fewest)


def _unsupported(case: Case, accelerator: Accelerator, runtime: RuntimeEntry, count: int) -> list[Failure]:
    model, facts = case.model, case.model.facts
    quantization = model.checkpoint.quantization
    support, context = [], []
    if accelerator.name not in case.environment.accelerators:
        support.append(
            f"The environment {case.environment_name} does not offer {accelerator.title}; it offers "
            f"{', '.join(case.environment.accelerators)}."
        )
    if count not in accelerator.counts:
        offered = ", ".join(map(str, accelerator.counts))
        support.append(f"A pod can hold {offered} of {accelerator.title}, not {count}.")
    if accelerator.family not in model.serving.families:
        support.append(f"{model.name} is not known to run on {accelerator.title} under vLLM {runtime.version}.")
    if quantization not in accelerator.quantizations:
        what = "16-bit" if quantization == "none" else quantization
        support.append(f"{accelerator.title} cannot serve {what} weights under vLLM {runtime.version}.")
    if model.checkpoint.dtype not in accelerator.dtypes:
        support.append(
            f"{accelerator.title} computes no {model.checkpoint.dtype}, in which {model.name} is stored: vLLM does not "
            "start with it."
        )
    if not model_source(model, case.environment) or (model.weights.kind == "hub" and not case.environment.models.hub):
        origin = "the Hugging Face hub" if model.weights.kind == "hub" else "a model store of the organisation's own"
        support.append(f"{model.name} comes from {origin}, which the environment {case.environment_name} lacks.")
    minimum = model.serving.minimum_vllm_version
    if minimum and number(minimum) > number(runtime.version):
        support.append(f"{model.name} needs vLLM {minimum}; the runtime {runtime.name} has {runtime.version}.")
    group = model.checkpoint.quantization_group_size
    if group and facts.intermediate_size % (group * count):
        support.append(
            f"The MLP of {model.name} ({facts.intermediate_size} wide, quantised in groups of {group}) cannot be "
            f"split over {count} ranks."
        )
    longest = facts.max_position_embeddings
    if "max_model_len" in case.overrides and case.max_model_len < case.asked_tokens:
        context.append(_too_short(case.max_model_len, case.asked_tokens, case.wanted_model_len, longest))
    if (needed := max(case.max_model_len, case.asked_tokens)) > longest:
        context.append(
            f"A request may be {needed} tokens long (prompt, answer and chat template); {model.name} reads at most "
            f"{longest}."
        )
    return [*(Failure("support", each) for each in support), *(Failure("context", each) for each in context)]


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


def _too_short(overridden: int, asked: int, wanted: int, longest: int) -> str:
    """Why a plan with an overridden context is refused. All are tokens: the context, the longest prompt and answer,
    these with the chat template, and the most that the model reads."""
    fix = f"override it with at least {min(wanted, longest)}, or remove it" if asked <= longest else "remove it"
    told = f"The override of max_model_len is {overridden}, and prompt and answer of the form may have {asked} tokens"
    return f"{told}: {fix}."
