"""Judges whether a choice keeps what the form asks for while all users ask, and counts its replicas by that.

The value of an estimate decides. Where the slow end of its band breaks a promise, the choice works and is not sure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal

from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import plainly_counted
from neuroscale.planning.candidates import (
    Candidate,
    UnderLoad,
    judge_candidate,
    judge_offer,
    offers,
    replicas_of,
    resized,
)
from neuroscale.planning.case import Case, Failure
from neuroscale.planning.measured import with_measured_speed
from neuroscale.planning.plan import Band, FirstToken, Plan, PlannedLoad, Rate, Speed
from neuroscale.planning.price import per_million
from neuroscale.planning.speed import Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.planning.speed.load import MOST_USERS

SPARE = 2
"""A replica computes up to so many times the requests of its share of the users, where speed and memory keep what is
asked for: a few users more do not wait, and of two replicas one answers all users while the other one starts anew."""

ONCE = Decimal(1)

COVERAGE = {
    "measured": "measured with this model on this accelerator",
    "interpolated": "interpolated from measurements of such accelerators, weights and models",
    "extrapolated": "extrapolated, not sure: nobody measured such an accelerator with such weights and models",
    "unknown": "nobody measured anything like it",
}
"""What a plan's figures of speed rest on."""

_BATCHES = (2048, 8192)
"""Numbers for `--max-num-batched-tokens` that planning tries beside the usual one: small ones keep the time between
tokens short while prompts arrive, large ones compute long prompts sooner."""
_LEAST_WITH_IMAGES = 2560


def judged(case: Case, candidate: Candidate) -> Candidate:
    """The candidate with the replicas that the load takes, or with the reason why no number of replicas would do.

    A candidate that fails already is returned as it is. Where the load needs more replicas than the memory, other
    numbers of batched tokens are tried, and the one with the fewest replicas is taken."""
    if not candidate.works or candidate.load is not None:
        return candidate
    usual = _by_load(case, candidate)
    if usual.unchecked or (usual.works and usual.replicas.min <= candidate.replicas.min):
        return usual
    return min((usual, *_other_batches(case, usual)), key=lambda one: (not one.works, one.replicas.min))


def with_spare(case: Case, candidate: Candidate) -> Candidate:
    """The choice with room for more users than asked for: `--max-num-seqs` is the most users for whom each replica
    keeps what is asked for, up to SPARE times its share, if the memory stays as sure as it was."""
    load = candidate.load
    if load is None or load.kept is None or not candidate.works or "max_num_seqs" in case.overrides:
        return candidate
    share = candidate.held
    most = min(candidate.typical_capacity, SPARE * share, MOST_USERS)
    kept = _largest(case, replica_speed(case, candidate), most) if most > share else share
    if kept is None or kept <= share:
        return candidate
    more = resized(case, candidate, candidate.replicas, kept)
    if (more.tight and not candidate.tight) or more.doubts != candidate.doubts:
        return candidate
    return replace(more, load=replace(load, kept=kept))


def _any(_: Candidate) -> bool:
    return True


def all_judged(case: Case) -> list[Candidate]:
    """Every choice with its load, cheapest first."""
    return sorted((judged(case, judge_offer(case, one)) for one in offers(case)), key=lambda one: one.rank)


def with_most_replicas(case: Case, candidate: Candidate) -> Candidate:
    """The candidate with as many replicas as the environment allows, whatever it then keeps."""
    most = max(candidate.replicas.min, case.environment.max_replicas)
    sized = resized(case, candidate, replicas_of(case, most))
    replica = replica_speed(case, sized)
    return replace(sized, load=UnderLoad(_under(case, replica, _share(case, most)), _alone(case, replica), None))


class Judge:
    """Judges the offers for a case as far as they matter, first by all but the load, and then under the load.

    Memory and load never make a choice cheaper than its fewest replicas, so dearer offers need no look.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._offers = offers(case)
        self._unloaded: dict[int, Candidate] = {}
        self._judged: dict[int, Candidate] = {}

    @property
    def found(self) -> list[Candidate]:
        """The choices that were judged, cheapest first."""
        return sorted(self._judged.values(), key=lambda one: one.rank)

    def find(
        self,
        wanted: Callable[[Candidate], bool] = _any,
        factor: Decimal = ONCE,
        possible: Callable[[Candidate], bool] = _any,
    ) -> list[Candidate]:
        """The `wanted` choices that work, cheapest first, among them all that cost up to `factor` times the first one.
        `possible`: whether a choice may be wanted once the load is judged."""
        costs = [one.hourly for one in self.found if one.works and one.hourly is not None and wanted(one)]

        def matters(hourly: Decimal | None) -> bool:
            return not costs or (hourly is not None and hourly <= min(costs) * factor)

        for place, offer in enumerate(self._offers):
            if not matters(offer.hourly):
                break
            if place in self._judged:
                continue
            candidate = self._unloaded.get(place) or judge_offer(self._case, offer)
            self._unloaded[place] = candidate
            if matters(candidate.hourly) and possible(candidate):
                one = self._judged[place] = judged(self._case, candidate)
                if one.works and one.hourly is not None and wanted(one):
                    costs.append(one.hourly)
        return [one for one in self.found if one.works and wanted(one)]


def replica_speed(case: Case, candidate: Candidate) -> ReplicaSpeed:
    """The speed of one replica with room for every request of the load that its memory holds, corrected by the
    measured load that is most like a replica's share of it."""
    forced = case.overrides.get("max_num_seqs")
    server = candidate.server
    replica = ReplicaSpeed(
        facts=server.facts,
        device=server.device,
        arguments=replace(server.arguments, max_num_seqs=forced if isinstance(forced, int) else None),
        version=server.version,
        held=candidate.typical_capacity,
    )
    return with_measured_speed(replica, case.model, Load(_share(case, candidate.replicas.min), *case.typical))


def _by_load(case: Case, candidate: Candidate) -> Candidate:
    """The candidate with its own number of batched tokens, judged under the load."""
    replica, users = replica_speed(case, candidate), _share(case, candidate.replicas.min)
    speed, alone = _under(case, replica, users), _alone(case, replica)
    if speed.coverage == "unknown":
        failures = (Failure("speed", _unchecked(case, candidate, speed)),) if case.environment.certainty else ()
        return replace(candidate, load=UnderLoad(speed, alone, None), failures=failures)
    first = alone.ttft_p95
    if case.typical_len is not None and first is not None and first.value > case.request.p95_ttft_seconds:
        failure = Failure("speed", _too_long(case, candidate, first.value))
        return replace(candidate, load=UnderLoad(speed, alone, 0), failures=(failure,))
    if users <= MOST_USERS and _keeps(case, speed):
        return replace(candidate, load=UnderLoad(speed, alone, users, _beyond(case, speed, alone)))
    kept = _largest(case, replica, min(users - 1, MOST_USERS)) or 0
    if kept == 0:
        failure = Failure("speed", _too_slow(case, candidate, _under(case, replica, 1)))
        return replace(candidate, load=UnderLoad(speed, alone, 0), failures=(failure,))
    replicas = replicas_of(case, math.ceil(case.request.concurrent_users / kept))
    sized = resized(case, candidate, replicas)
    users = _share(case, replicas.min)
    speed = _under(case, replica, users)
    load = UnderLoad(speed, alone, kept, _beyond(case, speed, alone))
    return replace(sized, load=load, failures=tuple(_too_many(case, sized, kept)))


def _other_batches(case: Case, usual: Candidate) -> Iterator[Candidate]:
    """The same choice with other numbers of batched tokens that keep what is asked for with more users, judged under
    the load."""
    least = _LEAST_WITH_IMAGES if case.model.serving.multimodal else 0
    kept = (usual.load.kept or 0) if usual.load else 0
    replica = replica_speed(case, usual)
    for tokens in sorted({max(least, each) for each in _BATCHES} - {usual.arguments.max_num_batched_tokens}):
        other = replace(replica, arguments=replace(replica.arguments, max_num_batched_tokens=tokens))
        if kept < usual.typical_capacity and _keeps(case, _under(case, other, kept + 1)):
            candidate = judge_candidate(
                case, usual.accelerator, usual.runtime, usual.count, usual.arguments.kv_cache_dtype, tokens
            )
            if candidate.works:
                yield _by_load(case, candidate)


def missed(case: Case, made: Plan) -> tuple[str, ...]:
    """Clauses on the promises that an earlier plan breaks by its values, by the estimate of today: with its hardware,
    its replicas and its arguments. None where it keeps them, and where nothing is known about it."""
    accelerator = case.catalog.accelerators.get(made.accelerator)
    said = dict(one.split("=", 1) for one in made.vllm_args if "=" in one)
    cache = said.get("--kv-cache-dtype", "auto")
    # A plan may have been edited by hand.
    if accelerator is None or cache not in accelerator.kv_cache_dtypes:
        return ()
    at_once, tokens = (said.get(name, "") for name in ("--max-num-seqs", "--max-num-batched-tokens"))
    if not (at_once.isdecimal() and tokens.isdecimal()):
        return ()
    fixed = {"replicas.min": made.replicas.min, "max_num_seqs": int(at_once)}
    as_planned = replace(case, overrides={**case.overrides, **fixed})
    runtime = case.catalog.runtime(accelerator.family, case.model.facts)
    on = accelerator.on(case.environment.cluster)
    candidate = judge_candidate(as_planned, on, runtime, made.accelerator_count, cache, int(tokens))
    if not candidate.works:
        return ()
    speed = _under(as_planned, replica_speed(as_planned, candidate), _share(case, made.replicas.min))
    first, rate, clauses = speed.ttft_p95, speed.tokens_per_second_user, []
    if first is not None and first.value > case.request.p95_ttft_seconds:
        asked = f"{duration(case.request.p95_ttft_seconds)} are asked for"
        clauses.append(f"the first token comes after {duration(first.value)} at p95, and {asked}")
    if rate is not None and rate.value < case.tokens_per_second_per_user:
        asked = f"{case.tokens_per_second_per_user:g} are asked for{_in_brackets(rate_source(case))}"
        clauses.append(f"a user gets {rate.value:.3g} tokens per second, and {asked}")
    return tuple(clauses)


def planned_load(case: Case, chosen: Candidate) -> PlannedLoad | None:
    """The load of a plan, and how its replicas answer it. None: the load was not judged, since nothing works."""
    load, users = chosen.load, case.request.concurrent_users
    if load is None:
        return None
    prompt, answer = case.typical
    speed = load.speed
    p50, p95, user, replica = (
        None if one is None else Band(value=_short(one.value), low=_short(one.low), high=_short(one.high))
        for one in (speed.ttft_p50, speed.ttft_p95, speed.tokens_per_second_user, speed.tokens_per_second_total)
    )
    # More requests than a replica computes at once wait for the end of another answer.
    kept = None if load.kept is None else min(load.kept, chosen.sequences) * chosen.replicas.min
    return PlannedLoad(
        users=users,
        replica_users=_share(case, chosen.replicas.min),
        prompt_tokens=prompt,
        answer_tokens=answer,
        coverage=speed.coverage,
        ttft_seconds=FirstToken(p50=p50, p95=p95) if p50 and p95 else None,
        tokens_per_second=Rate(user=user, replica=replica) if user and replica else None,
        head_room_users=None if kept is None else kept - users,
        usd_per_million_output_tokens=per_million(chosen.price, replica.value) if chosen.price and replica else None,
    )


def idle_speed(chosen: Candidate) -> Speed:
    """The speed of an idle replica; without figures where the load was not judged, since nothing works."""
    alone = chosen.load.alone if chosen.load else None
    first, rate = (alone.ttft_p50, alone.tokens_per_second_user) if alone else (None, None)
    return Speed(
        ttft_seconds=_short(first.value) if first else None,
        decode_tokens_per_second=_short(rate.value) if rate else None,
    )


def _short(value: float) -> float:
    """To three digits: the band says how far the rest matters."""
    return float(f"{value:.3g}")


def _share(case: Case, replicas: int) -> int:
    """The users of the replica that has the most."""
    return math.ceil(case.request.concurrent_users / replicas)


def _under(case: Case, replica: ReplicaSpeed, users: int) -> SpeedUnderLoad:
    prompt, answer = case.typical
    return replica.under(Load(min(users, MOST_USERS), prompt, answer))


def _alone(case: Case, replica: ReplicaSpeed) -> SpeedUnderLoad:
    """The speed of an idle replica that gets one request of the longest prompt and answer."""
    return replica.under(Load(1, case.request.longest_prompt_tokens, case.request.longest_answer_tokens))


def _largest(case: Case, replica: ReplicaSpeed, most: int) -> int | None:
    prompt, answer = case.typical
    return replica.largest_users(
        prompt,
        answer,
        p95_ttft_seconds=case.request.p95_ttft_seconds,
        tokens_per_second_per_user=case.tokens_per_second_per_user,
        most=most,
    )


def _keeps(case: Case, speed: SpeedUnderLoad) -> bool:
    first, rate = speed.ttft_p95, speed.tokens_per_second_user
    return (
        first is not None
        and rate is not None
        and first.value <= case.request.p95_ttft_seconds
        and rate.value >= case.tokens_per_second_per_user
    )


def _beyond(case: Case, speed: SpeedUnderLoad, alone: SpeedUnderLoad) -> tuple[str, ...]:
    """What the slow end of the band breaks, as clauses."""
    first, rate, clauses = speed.ttft_p95, speed.tokens_per_second_user, []
    longest = alone.ttft_p95 if case.typical_len is not None else None
    if longest is not None and longest.high > case.request.p95_ttft_seconds:
        clauses.append(
            f"the first token of the longest prompt may take {duration(longest.high)} on an idle replica, and "
            f"{duration(case.request.p95_ttft_seconds)} are asked for"
        )
    if first is not None and first.high > case.request.p95_ttft_seconds:
        clauses.append(
            f"the first token may take {duration(first.high)} at p95 under the load, and "
            f"{duration(case.request.p95_ttft_seconds)} are asked for"
        )
    if rate is not None and rate.low < case.tokens_per_second_per_user:
        clauses.append(
            f"a user may get {rate.low:.3g} tokens per second under the load, and "
            f"{case.tokens_per_second_per_user:g} are asked for"
        )
    return tuple(clauses)


def _too_slow(case: Case, candidate: Candidate, alone: SpeedUnderLoad) -> str:
    """Why not even one user gets what is asked for."""
    prompt, answer = case.typical
    lengths = f"A prompt of {prompt} tokens with an answer of {answer}"
    first, rate = alone.ttft_p95, alone.tokens_per_second_user
    if first is not None and first.value > case.request.p95_ttft_seconds:
        return (
            f"{lengths} gets its first token after {duration(first.value)} at p95 on {candidate.label} even for one "
            f"user, and {duration(case.request.p95_ttft_seconds)} are asked for."
        )
    value = "fewer" if rate is None else f"{rate.value:.3g}"
    return (
        f"{lengths} gets {value} tokens per second on {candidate.label} even for one user, and "
        f"{case.tokens_per_second_per_user:g} are asked for{_in_brackets(rate_source(case))}."
    )


def _too_long(case: Case, candidate: Candidate, seconds: float) -> str:
    """Why the longest prompt comes too late, whatever the load is."""
    return (
        f"The first token of the longest prompt, of {case.request.longest_prompt_tokens} tokens, takes "
        f"{duration(seconds)} on an idle replica of {candidate.label}, and "
        f"{duration(case.request.p95_ttft_seconds)} are asked for."
    )


def _unchecked(case: Case, candidate: Candidate, speed: SpeedUnderLoad) -> str:
    """Why a choice of unknown speed is not taken on trust."""
    return (
        f"Nothing is known about the speed of {case.model.name} on {candidate.label}, and {case.environment_name} asks "
        f"for certainty. {' '.join(speed.reasons)} Write what is missing into the catalog: the accelerator's figures, "
        "or a measurement from another environment (`measurements` of the model)."
    )


def _too_many(case: Case, candidate: Candidate, kept: int) -> Iterator[Failure]:
    """Why the replicas that the load takes are not to be had."""
    most, replicas = case.environment.max_replicas, candidate.replicas
    if replicas.min > most:
        yield Failure(
            "replicas",
            f"{promise(case)} for {plainly_counted(case.request.concurrent_users, 'user')} at once takes "
            f"{plainly_counted(replicas.min, 'replica')} of {candidate.label} ({plainly_counted(kept, 'user')} each); "
            f"the environment allows {most}, which keep it for {plainly_counted(most * kept, 'user')}.",
        )
    if replicas.max < replicas.min:
        yield Failure("replicas", f"At most {replicas.max} replicas are allowed, and {replicas.min} are needed.")


def promise(case: Case) -> str:
    """What the form and the settings ask for, as the subject of a sentence."""
    return (
        f"A first token within {duration(case.request.p95_ttft_seconds)} at p95 and "
        f"{case.tokens_per_second_per_user:g} tokens per second for each user{_in_brackets(rate_source(case))}"
    )


def rate_source(case: Case) -> str:
    """Who asks for the tokens per second: nothing to add if the form does."""
    return "" if case.request.tokens_per_second_per_user is not None else f"by the settings of {case.environment_name}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""
