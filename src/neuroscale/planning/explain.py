"""Writes the reasons of a plan as complete sentences for a reviewer."""

from __future__ import annotations

from collections.abc import Sequence

from neuroscale.core.money_and_time import duration, usd
from neuroscale.core.printable import plainly_counted
from neuroscale.planning.candidates import Candidate, batched_tokens
from neuroscale.planning.case import Case
from neuroscale.planning.choice import Choice, confidence, risks
from neuroscale.planning.fit.confidence import UNMEASURED, unknown_clauses
from neuroscale.planning.fit.device import device
from neuroscale.planning.load_choice import COVERAGE, idle_speed, planned_load, rate_source
from neuroscale.planning.measured import measured_memory
from neuroscale.planning.plan import AppliedOverride
from neuroscale.planning.rollout import reason_of, rollout_of
from neuroscale.planning.startup import reasons_of, startup_of
from neuroscale.planning.vllm_flags import architecture


def certainty_sentences(case: Case, choice: Choice) -> list[str]:
    """The sentences on certainty for a reviewer of the choice; none if the environment does not ask for certainty."""
    certainty = case.environment.certainty
    if certainty is None or not choice.chosen.works:
        return []
    asks = f"The environment {case.environment_name} asks for certainty"
    factor = f"{certainty.price_factor:g} times"
    if choice.cheaper is not None:
        return [
            f"A cheaper choice works, and is not sure: {_priced(choice.cheaper)}, because "
            f"{_joined(risks(choice.cheaper))}. {asks}, and a surer choice costs less than {factor} as much."
        ]
    clauses = risks(choice.chosen)
    if not clauses:
        return []
    if choice.surer is not None:
        return [
            f"Not sure: {_joined(clauses)}. {asks}; the cheapest surer choice, {_priced(choice.surer)}, costs {factor} "
            "as much or more, so it is not taken."
        ]
    return [f"Not sure: {_joined(clauses)}. {asks}, and no choice with a known price is surer."]


def _unchecked(choice: Choice) -> list[str]:
    """What a choice of unknown speed means for the plan: one that was passed over, or the one that it takes."""
    if choice.unchecked is not None:
        return [
            f"Nothing is known about the speed of {_priced(choice.unchecked)}, which memory alone would take: such a "
            "choice counts only where none of known speed keeps what is asked for."
        ]
    if choice.chosen.unchecked and not all(one.unchecked for one in choice.tried):
        return ["No choice of known speed keeps what is asked for, so one of unknown speed is taken."]
    return []


def _priced(candidate: Candidate) -> str:
    pods = candidate.replicas.min
    replicas = f" with {plainly_counted(pods, 'replica')}" if pods > 1 else ""
    return f"{candidate.label}{replicas}{_at(candidate)}"


def _at(candidate: Candidate) -> str:
    return "" if candidate.hourly is None else f" at {usd(candidate.hourly)} an hour"


def _joined(clauses: tuple[str, ...]) -> str:
    return ", and ".join(clauses)


def reasons(
    case: Case, choice: Choice, applied: tuple[AppliedOverride, ...], short: tuple[str, ...]
) -> tuple[str, ...]:
    """The sentences on the choice, its numbers, the choices passed over, and unknown facts. `short`: what the overrides
    take from the request."""
    tried, chosen = choice.tried, choice.chosen
    sentences: list[str] = []
    if chosen.works:
        sentences += [_choice(case, choice), *certainty_sentences(case, choice), *_unchecked(choice)]
        sentences.append(_memory(case, chosen))
        sentences += passed_over(tried, chosen)
        sentences += _settings(case, chosen)
    else:
        sentences += [failure.sentence for failure in chosen.failures]
        sentences += _other_failures(tried, chosen)
    if chosen.works and chosen.tight:
        sentences.append(
            f"Tight: {chosen.memory.free:.2f} GiB free is less than the {chosen.band_gib:.2f} GiB that the estimate of "
            "the memory may be off, so requests may wait, or the start fail."
        )
    elif chosen.works and confidence(chosen) == "low":
        unknown = "; ".join(unknown_clauses(chosen.doubts))
        sentences.append(f"Tight: some figures are not known ({unknown}), so try it before you rely on it.")
    sentences += [f"Tight: {clause}." for clause in short]
    sentences += [
        f"Override: {override.field} is {override.value} (planned: {override.planned}) until "
        f"{override.expires.isoformat()}, because: {' '.join(override.reason.split())}"
        for override in applied
    ]
    sentences += _weights(case, chosen)
    # They explain no refusal.
    return tuple(sentences + _unknown(case, chosen) if chosen.works else sentences)


def passed_over(tried: Sequence[Candidate], chosen: Candidate) -> list[str]:
    """The next cheaper choice and why it does not work, and the next dearer choice that works."""
    sentences = []
    if chosen.hourly is not None:
        cheaper = [
            candidate
            for candidate in tried
            if not candidate.works and candidate.hourly is not None and candidate.rank < chosen.rank
        ]
        # A choice that lacks memory tells a reviewer more than one that can never be served.
        cheaper = [one for one in cheaper if one.failures[0].kind != "support"] or cheaper
        if cheaper:
            next_cheaper = cheaper[-1]
            sentences.append(
                f"The next cheaper choice, {next_cheaper.label}{_at(next_cheaper)}, does not do. "
                f"{next_cheaper.failures[0].sentence}"
            )
    dearer = [
        candidate
        for candidate in tried
        if candidate.works
        and candidate.accelerator.name != chosen.accelerator.name
        and candidate.hourly is not None
        and candidate.rank > chosen.rank
    ]
    if dearer:
        sentences.append(
            f"The next choice that works is {dearer[0].label}{_at(dearer[0])}"
            + (f" ({plainly_counted(dearer[0].replicas.min, 'replica')})." if dearer[0].replicas.min > 1 else ".")
        )
    return sentences


def _choice(case: Case, choice: Choice) -> str:
    chosen = choice.chosen
    kind = architecture(case.model.facts)
    what = (
        f"a mixture of experts of {_billions(kind.total_params)} parameters, {_billions(kind.active_params)} of them "
        "active per token"
        if kind.kind == "moe"
        else f"a dense model of {_billions(kind.total_params)} parameters"
    )
    forced = "accelerator" in case.overrides or "accelerator_count" in case.overrides
    if forced:
        why = "as the override says"
    elif choice.cheaper is not None:
        why = "the surest choice of those that cost little more" if risks(chosen) else "the cheapest sure choice"
    else:
        why = "the cheapest choice that fits" if chosen.price else "the first that fits"
    return f"{case.model.name} is {what}; it runs on {chosen.label}{_at(chosen)}, {why}."


MEMORY_SENTENCE = "On each accelerator, of "
"""How the sentence on a plan's memory begins."""


def _memory(case: Case, chosen: Candidate) -> str:
    memory, states = chosen.memory, sum(state.layers for state in case.model.facts.states)
    kept = f" In the KV cache are the states of {states} layers, which do not grow with a request." if states else ""
    held = f"{plainly_counted(chosen.held, 'request')} of {case.max_model_len} tokens"
    if case.typical_len is not None and chosen.held > 1:
        others = plainly_counted(chosen.held - 1, "typical request")
        held = f"one request of {case.max_model_len} tokens and {others} of {case.typical_len}"
    off = f"more or less by {chosen.band_gib:.2f} GiB"
    if device(chosen.accelerator).family in UNMEASURED:
        off = "how far that is off is not known"
    return (
        f"{MEMORY_SENTENCE}{memory.usable:.2f} GiB usable: weights {memory.weights:.2f} GiB, overhead "
        f"{memory.overhead:.2f} GiB, KV cache of {held} {memory.kv_cache:.2f} GiB, free {memory.free:.2f} GiB ({off})."
        f"{kept}"
    )


def _settings(case: Case, chosen: Candidate) -> list[str]:
    request, replicas = case.request, chosen.replicas
    sentences = []
    if chosen.count > 1:
        experts = ", and its experts are spread over the ranks (expert parallelism)" if case.model.facts.experts else ""
        sentences.append(
            f"Tensor parallelism is {chosen.count}: the model is split over the {chosen.count} accelerators of a "
            f"replica{experts}."
        )
    else:
        sentences.append("Tensor parallelism is 1: the model fits one accelerator.")
    needed = -(-request.concurrent_users // max(chosen.typical_capacity, 1))
    holds = f"{plainly_counted(chosen.capacity, 'user')} at full length"
    if case.typical_len is not None:
        holds = f"{plainly_counted(chosen.typical_capacity, 'user')} at typical length ({holds})"
    kept = chosen.load.kept if chosen.load else None
    if kept is not None and kept < min(chosen.typical_capacity, request.concurrent_users):
        needed = -(-request.concurrent_users // max(kept, 1))
        holds += f" and keeps what is asked for with {plainly_counted(kept, 'user')}"
    because = (
        f"one replica holds {holds}, and {request.concurrent_users} "
        f"{'is' if request.concurrent_users == 1 else 'are'} requested"
    )
    if request.availability == "high" and needed < 2:
        needed = 2
        because += "; high availability needs two"
    sentences.append(
        f"Replicas: {replicas.min}, as the override says. Needed: {needed}, because {because}."
        if "replicas.min" in case.overrides
        else f"Replicas: {replicas.min}, because {because}."
    )
    sentences += _typical(case, chosen)
    if chosen.typical_capacity < chosen.sequences:
        sentences.append(
            f"Of the {chosen.sequences} requests that the override of max_num_seqs computes at once, "
            f"{chosen.typical_capacity} fit the KV cache: vLLM interrupts the others when it is full."
        )
    if replicas.max > replicas.min:
        told = f"Nothing scales between the two yet, so the price counts {replicas.min}."
        sentences.append(f"Up to {replicas.max} replicas are allowed. {told}")
    if case.max_model_len == case.wanted_model_len:
        sentences.append(
            f"The context is {case.max_model_len} tokens: prompt {request.longest_prompt_tokens}, answer "
            f"{request.longest_answer_tokens}, and room for the chat template."
        )
    if chosen.arguments.kv_cache_dtype == "fp8":
        sentences.append(
            "The KV cache is kept in 8 bits (fp8), which makes this choice cheaper than any with 16 bits; scales are "
            "uncalibrated, so check the answers' quality."
            if "kv_cache_dtype" not in case.overrides
            else "The KV cache is kept in 8 bits (fp8); scales are uncalibrated, so check the answers' quality."
        )
    start = startup_of(case, chosen)
    sentences += reasons_of(start)
    sentences.append(reason_of(case, rollout_of(case, replicas.min, chosen.count, start), replicas.min, chosen.label))
    return sentences + _load(case, chosen)


def _load(case: Case, chosen: Candidate) -> list[str]:
    """How the replicas answer while all users ask, what decided by that, and how sure it is."""
    load, request = planned_load(case, chosen), case.request
    if load is None or chosen.load is None:
        return []
    asked = f"{plainly_counted(load.users, 'user')} at once"
    if load.ttft_seconds is None or load.tokens_per_second is None:
        told = " ".join(chosen.load.speed.reasons)
        return [f"Nothing is known about the speed with {asked}, so memory alone decides the replicas. {told}".rstrip()]
    first, rate = load.ttft_seconds.p95, load.tokens_per_second.user
    longest = idle_speed(chosen).ttft_seconds or 0.0
    lengths = f"prompts of {load.prompt_tokens} and answers of {load.answer_tokens} tokens"
    sentences = [
        f"With {asked} ({load.replica_users} on the fullest replica; {lengths}), the first token comes within "
        f"{duration(first.value)} at p95 ({duration(first.low)} to {duration(first.high)}; "
        f"{duration(request.p95_ttft_seconds)} asked for), and a user gets {rate.value:g} tokens per "
        f"second ({rate.low:g} to {rate.high:g}; {case.tokens_per_second_per_user:g} "
        f"{rate_source(case) or 'asked for'}). The longest prompt takes {duration(longest)} on an idle replica.",
        f"The speed is {COVERAGE[load.coverage]}. {' '.join(chosen.load.speed.reasons)}".rstrip(),
    ]
    if chosen.load.beyond:
        sentences.append(f"Not sure, by the slow end of the estimate: {', and '.join(chosen.load.beyond)}.")
    usual = batched_tokens(case.model, chosen.accelerator)
    if chosen.arguments.max_num_batched_tokens != usual:
        sentences.append(
            f"A step computes up to {chosen.arguments.max_num_batched_tokens} tokens (--max-num-batched-tokens): with "
            f"the usual {usual} a replica keeps what is asked for with fewer users."
        )
    if chosen.sequences > chosen.held and "max_num_seqs" not in case.overrides:
        more = plainly_counted(load.head_room_users or 0, "more user")
        sentences.append(
            f"A replica computes up to {chosen.sequences} requests at once (--max-num-seqs) and keeps what is asked "
            f"for with as many, so {more} than asked for would do."
        )
    return sentences


def _typical(case: Case, chosen: Candidate) -> list[str]:
    """The request lengths that the number of replicas rests on, and what happens to longer requests."""
    request = case.request
    if case.typical_len is None:
        return ["Every request is counted at full length: neither the form nor the settings say that most are shorter."]
    share = f"{case.environment.typical_share:g} of the longest, by the settings of {case.environment_name}"
    lengths = " and ".join(
        f"{what} {tokens} tokens ({share if said is None else 'as the form says'})"
        for what, tokens, said in (
            ("prompt", case.typical[0], request.typical_prompt_tokens),
            ("answer", case.typical[1], request.typical_answer_tokens),
        )
    )
    sentences = [f"Replicas are counted with typical requests, and memory with the longest beside them: {lengths}."]
    if chosen.capacity < chosen.held:
        sentences.append(
            f"Of the {plainly_counted(chosen.held, 'request')} that a replica computes at once, {chosen.capacity} fit "
            "at full length: where more come at full length at the same moment, vLLM interrupts some and computes them "
            "again."
        )
    return sentences


def _other_failures(tried: Sequence[Candidate], chosen: Candidate) -> list[str]:
    """One sentence for each other accelerator: its nearest attempt. That one can never serve the model explains nothing
    where the chosen one could."""
    nearest: dict[str, Candidate] = {}
    for candidate in sorted(tried, key=lambda candidate: candidate.distance):
        nearest.setdefault(candidate.accelerator.name, candidate)
    told = {failure.sentence for failure in chosen.failures}
    sentences = []
    for name, candidate in nearest.items():
        failure = candidate.failures[0]
        sentence = failure.sentence
        explains = failure.kind != "support" or chosen.failures[0].kind == "support"
        if name != chosen.accelerator.name and sentence not in told and explains:
            told.add(sentence)
            sentences.append(sentence)
    return sentences


def _weights(case: Case, chosen: Candidate) -> list[str]:
    """The notes on the model, and what the memory of its weights rests on."""
    sentences = list(case.model.facts.notes)
    server = chosen.server
    found = measured_memory(case.model, case.facts, device(chosen.accelerator), server.arguments, server.version)
    if found is not None:
        sentences.append(f"The weights are those that a start showed on {found.date}: {found.title}.")
    if chosen.weights_basis == "config":
        sentences.append(
            f"Nobody has measured the memory that {case.model.name} takes once it is loaded: the plan counts its "
            "weights from its config."
        )
    elif chosen.weights_basis == "files":
        sentences.append(
            f"Nobody has measured the memory that {case.model.name} takes once it is loaded: the plan takes the "
            "bytes of its files."
        )
    return sentences


def _unknown(case: Case, chosen: Candidate) -> list[str]:
    """What is not known of the choice beside its memory and speed: price, what the node lets it do, the image."""
    sentences = []
    if chosen.price is None:
        sentences.append(
            f"Not known: a price of {chosen.label} in the environment {case.environment_name}'s price lists."
            if case.environment.price_lists
            else f"The environment {case.environment_name} has no price list, so nothing is charged to it here."
        )
    if chosen.runtime.family == "tpu":
        sentences.append("Not modelled: the compiler's workspace on a TPU, which takes memory outside vLLM's share.")
    if chosen.runtime.family == "rocm":
        sentences.append(
            f"Not checked: whether the nodes let the user {chosen.runtime.uid} of the container open /dev/kfd and "
            "/dev/dri, which belong to root and a group of the host."
        )
    if chosen.runtime.digest is None:
        sentences.append(f"The image {chosen.runtime.image} is pinned by tag; its digest is not recorded.")
    return sentences


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e8 else f"{parameters:,}"
