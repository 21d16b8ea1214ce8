"""The speed of a replica under load: what every estimate keeps, where it comes from, and the figures of the seeds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroscale.planning.fit import Device, device, fit
from neuroscale.planning.replica_memory import served_facts
from neuroscale.planning.speed import Estimate, Load, ReplicaSpeed
from neuroscale.planning.speed.coverage import Shared, is_apart, shared_by
from neuroscale.planning.speed.kinds import accelerator_class
from neuroscale.planning.speed.rates import fitted, fitted_values
from neuroscale.vllm.engine_arguments import EngineArguments
from platform_repository import CATALOG
from roots import CHECKOUT
from speed_fit.results import text_of

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
MODELS = (LLAMA, "google/gemma-4-26B-A4B-it", "google/gemma-4-E2B-it", "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3.5-27B")
CARDS = ("nvidia-h100-80gb", "nvidia-l4", "nvidia-b200", "amd-mi300x")


def replica(model: str, accelerator: str | Device, ranks: int = 1, **arguments: int) -> ReplicaSpeed:
    where = accelerator if isinstance(accelerator, Device) else device(CATALOG.accelerators[accelerator])
    said = EngineArguments(model=model, tensor_parallel_size=ranks, **arguments)  # type: ignore[arg-type]
    return ReplicaSpeed(served_facts(CATALOG.models[model]), where, said)


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    assert 0 < estimate.low < estimate.value < estimate.high
    return estimate.value


LOADS = st.tuples(st.integers(1, 511), st.integers(16, 30_000), st.integers(64, 4_000))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(CARDS), LOADS, st.sampled_from((None, 1, 24)))
def test_more_users_never_get_a_faster_first_token(
    model: str, card: str, load: tuple[int, int, int], held: int | None
) -> None:
    users, prompt, answer = load
    server = replace(replica(model, card), held=held)
    fewer, more = (server.under(Load(each, prompt, answer)) for each in (users, min(2 * users, 512)))
    for figure in ("ttft_mean", "ttft_p50", "ttft_p95"):
        assert value(getattr(fewer, figure)) <= 1.001 * value(getattr(more, figure))
    # A saturated server's batch hardly grows: there the steps of both are alike, but for rounding of the queue.
    assert value(fewer.inter_token_mean) <= 1.01 * value(more.inter_token_mean)
    assert value(fewer.ttft_p50) <= value(fewer.ttft_p95)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(CARDS), LOADS)
def test_a_better_card_is_never_slower(model: str, card: str, load: tuple[int, int, int]) -> None:
    known = replica(model, card)
    wider = replace(known, device=replace(known.device, bandwidth_gb_s=2 * (known.device.bandwidth_gb_s or 0.0)))
    peak = replace(known, device=replace(known.device, bf16_tflops=2 * (known.device.bf16_tflops or 0.0)))
    slow, alone = known.under(Load(*load)), known.under(Load(1, *load[1:]))
    for better in (wider, peak):
        fast = better.under(Load(*load))
        if value(slow.ttft_mean) < 0.2 * load[2] * value(slow.inter_token_mean):
            # Where prompts wait long, fewer of them on a better card means more answers that are written at once.
            assert value(fast.inter_token_mean) <= 1.03 * value(slow.inter_token_mean)
        assert value(fast.tokens_per_second_total) >= 0.9 * value(slow.tokens_per_second_total)
        # Users of a faster replica come back sooner, so only one alone surely has the first token sooner.
        assert value(better.under(Load(1, *load[1:])).ttft_p95) <= value(alone.ttft_p95)


@pytest.mark.parametrize("missing", ["bandwidth", "peak"])
def test_unknown_is_never_a_number(missing: str) -> None:
    known = device(CATALOG.accelerators["nvidia-h100-80gb"])
    lacking = replace(known, bandwidth_gb_s=None) if missing == "bandwidth" else replace(known, bf16_tflops=None)
    server = replica(LLAMA, lacking)
    speed = server.under(Load(4, 1000, 200))
    assert speed.coverage == "unknown"
    assert known.title in speed.reasons[0]
    figures = (speed.ttft_mean, speed.ttft_p50, speed.ttft_p95, speed.inter_token_mean, speed.inter_token_p50)
    more = (speed.inter_token_p95, speed.tokens_per_second_user, speed.tokens_per_second_total)
    assert {*figures, *more} == {None}
    assert server.largest_users(1000, 200, p95_ttft_seconds=1.0) is None


def test_a_card_of_an_unknown_kind_is_unknown() -> None:
    card = Device("acme-9", "Acme 9", "cuda", 80.0, 3000.0, bf16_tflops=500.0)
    assert replica(LLAMA, card).under(Load(1, 100, 100)).coverage == "unknown"


def test_an_open_load_beyond_the_capacity_has_no_figures() -> None:
    server = replica(LLAMA, "nvidia-h100-80gb")
    calm, busy = (server.under(Load(512, 1000, 200, requests_per_second=rate)) for rate in (0.5, 2.0))
    assert value(calm.ttft_p95) <= value(busy.ttft_p95)
    assert value(busy.tokens_per_second_total) == pytest.approx(400)
    beyond = server.under(Load(512, 1000, 200, requests_per_second=500.0))
    assert (beyond.coverage, beyond.ttft_p95) == ("unknown", None)
    assert "500" in beyond.reasons[0]


def test_requests_in_clusters_wait_longer_than_those_at_random() -> None:
    server = replica(LLAMA, "nvidia-l4")
    random = Load(512, 2000, 200, requests_per_second=0.8)
    steady, clusters = (server.under(replace(random, burstiness=each)) for each in (1.0, 0.5))
    assert value(clusters.ttft_mean) > 1.05 * value(steady.ttft_mean)
    assert value(clusters.ttft_p95) > 1.05 * value(steady.ttft_p95)


def test_users_beyond_the_cache_wait_for_an_answer() -> None:
    server = replica(LLAMA, "nvidia-l4")
    free, full = server.under(Load(16, 1000, 500)), replace(server, held=8).under(Load(16, 1000, 500))
    assert value(full.ttft_p95) > value(full.inter_token_mean) * 400
    assert value(free.ttft_p95) < 0.2 * value(full.ttft_p95)
    assert replace(server, held=8).largest_users(1000, 500, p95_ttft_seconds=value(free.ttft_p95)) == 8


def test_the_longest_of_unlike_prompts_decide_the_late_first_tokens() -> None:
    server = replica(LLAMA, "nvidia-l4")
    alike = Load(8, 4000, 300)
    same, unlike = (server.under(each) for each in (alike, replace(alike, prompt_spread=(1.0, 1.8))))
    assert value(unlike.ttft_p95) > 1.25 * value(same.ttft_p95)
    assert value(unlike.ttft_p50) == pytest.approx(value(same.ttft_p50), rel=0.1)
    short = server.under(replace(alike, prompt_spread=(0.5, 1.8)))
    assert value(short.ttft_p50) < 0.8 * value(same.ttft_p50)


def test_cached_prompts_make_the_first_token_sooner() -> None:
    server = replica(LLAMA, "nvidia-l4")
    plain = Load(4, 4000, 300)
    cached = replace(plain, cached_tokens=3984)
    assert value(server.under(cached).ttft_mean) < 0.3 * value(server.under(plain).ttft_mean)
    assert value(server.under(cached).inter_token_mean) < value(server.under(plain).inter_token_mean)


def test_users_who_begin_together_wait_for_each_other_and_longer_if_they_stay_together() -> None:
    server = replica(LLAMA, "nvidia-l4")
    apart = Load(32, 250, 128)
    burst, single = replace(apart, requests_per_user=8), replace(apart, requests_per_user=1)
    ramp = replace(single, starts_per_second=1.0)
    first = {load: value(server.under(load).ttft_mean) for load in (apart, burst, single, ramp)}
    assert first[apart] < first[burst] < first[single]
    assert first[ramp] < 0.7 * first[single]
    assert value(server.under(replace(burst, in_step=True)).ttft_p50) > 1.5 * value(server.under(burst).ttft_p50)


@pytest.mark.parametrize("shared", ["accelerator", "model"])
def test_two_estimates_have_an_order_only_if_they_differ_by_more_than_such_ratios_err(shared: Shared) -> None:
    assert not is_apart(1.0, 1.04, "ttft", shared)
    assert is_apart(1.0, 4.0, "ttft", shared)
    assert is_apart(4.0, 1.0, "tokens_per_second", shared)
    assert not is_apart(4.0, 1.0, "inter_token", shared)  # no ratio of it was fitted
    assert (shared_by("nvidia-l4", "nvidia-l4"), shared_by("nvidia-l4", "nvidia-l40s")) == ("accelerator", "model")


def test_the_largest_number_of_users_keeps_both_promises() -> None:
    server = replica(LLAMA, "nvidia-l4")
    most = server.largest_users(1000, 300, p95_ttft_seconds=1.5, tokens_per_second_per_user=10.0)
    assert most is not None
    kept, broken = (server.under(Load(users, 1000, 300)) for users in (most, most + 1))
    assert value(kept.ttft_p95) <= 1.5
    assert value(kept.tokens_per_second_user) >= 10.0
    assert value(broken.ttft_p95) > 1.5 or value(broken.tokens_per_second_user) < 10.0


def test_one_measurement_corrects_every_load() -> None:
    figures = {"users": 1, "prompt_tokens": 500, "answer_tokens": 200, "ttft_seconds": 0.4, "inter_token_seconds": 0.05}
    for card in ("nvidia-l4", "cpu"):
        server = replace(replica(LLAMA, card), measured=figures)
        speed = server.under(Load(1, 500, 200))
        assert speed.coverage == "measured"
        assert value(speed.ttft_mean) == pytest.approx(0.4, rel=0.01)
        assert value(speed.inter_token_mean) == pytest.approx(0.05, rel=0.01)
        assert value(server.under(Load(8, 500, 200)).inter_token_mean) >= 0.05


def test_one_measurement_on_a_processor_predicts_the_tiny_models_curve() -> None:
    """vLLM 0.32 on two cores, prompts of 200 tokens and answers of 64, medians of three runs of 8 requests a user."""
    first = {"users": 1, "prompt_tokens": 200, "answer_tokens": 64, "ttft_seconds": 0.0087}
    server = replace(replica("tiny-llama", "cpu"), measured={**first, "inter_token_seconds": 0.00163})
    for users, token, total in ((2, 0.00169, 1093), (4, 0.00191, 1871), (8, 0.0027, 2638)):
        speed = server.under(Load(users, 200, 64, requests_per_user=8))
        assert value(speed.inter_token_mean) == pytest.approx(token, rel=0.15)
        assert value(speed.tokens_per_second_total) == pytest.approx(total, rel=0.15)


def test_experts_on_graphics_cards_have_efficiencies_of_their_own() -> None:
    def slower(experts: str) -> list[bool]:
        worse = {**fitted_values(), f"memory.{experts}.fp8": 0.1}
        found = []
        for card in ("nvidia-l40s", "nvidia-h100-80gb"):
            server = replica("google/gemma-4-26B-A4B-it", card)
            server = replace(server, arguments=replace(server.arguments, quantization="fp8"))
            steps = [server.fitted_steps(each, accelerator_class(server.device)) for each in (fitted_values(), worse)]
            now, then = (server.times(Load(16, 100, 100), each) for each in steps)
            assert now is not None
            assert then is not None
            found.append(then.inter_token > 1.5 * now.inter_token)
        return found

    assert slower("experts.graphics") == [True, False]
    assert slower("experts") == [False, True]


def test_guessed_tokens_are_not_counted_and_say_so() -> None:
    plain = replica(LLAMA, "nvidia-h100-80gb")
    guessing = replace(plain, arguments=replace(plain.arguments, speculative="eagle3", speculative_tokens=3))
    speed = guessing.under(Load(4, 1000, 200))
    assert speed.coverage == "extrapolated"
    assert any("guessed" in reason for reason in speed.reasons)


@pytest.mark.parametrize(
    ("model", "users", "figure", "measured", "within"),
    [
        ("google/gemma-4-31B-it", 1, "tokens_per_second_user", 40.3, 0.15),
        ("google/gemma-4-26B-A4B-it", 1, "tokens_per_second_user", 177.1, 0.2),
        ("google/gemma-4-31B-it", 1, "ttft_mean", 0.0677, 0.3),
        ("google/gemma-4-31B-it", 16, "tokens_per_second_total", 375.0, 0.35),
    ],
)
def test_the_seeds_figures_on_an_h100(model: str, users: int, figure: str, measured: float, within: float) -> None:
    """JarvisLabs' figures (vLLM, bf16, prompts of 512 tokens), few of the many that the fit has seen."""
    server = replica(model, "nvidia-h100-80gb", max_model_len=2048)
    held = fit(server.facts, server.device, server.arguments).held(1024)
    speed = replace(server, held=held).under(Load(users, 512, 512))
    assert value(getattr(speed, figure)) == pytest.approx(measured, rel=within)


def test_an_estimate_is_fast() -> None:
    server = replica("google/gemma-4-26B-A4B-it", "nvidia-h100-80gb")
    server.under(Load(1, 1000, 200))
    started = time.process_time()
    for users in range(1, 51):
        server.under(Load(users, 1000, 200))
    assert (time.process_time() - started) / 50 < 0.002


def test_prompts_that_fit_into_a_captured_step_start_sooner() -> None:
    """A step with prompts is bound by its launches, unless vLLM has captured one of its size as CUDA graphs."""
    plain = replica(LLAMA, "nvidia-h100-80gb")
    captured = replica(LLAMA, "nvidia-h100-80gb", largest_graph=2048)
    first = [value(server.under(Load(1, 1000, 100)).ttft_mean) for server in (captured, plain)]
    assert first[0] < first[1]
    few = replica(LLAMA, "nvidia-h100-80gb", max_num_seqs=8)
    none = replace(plain, version="0.7.3")  # its engine never captured a step with prompts
    short = [value(server.under(Load(1, 200, 100)).ttft_mean) for server in (plain, few, none)]
    assert short[0] < short[1] <= short[2]


def test_the_cache_holds_more_requests_while_their_answers_are_written() -> None:
    server = replace(replica(LLAMA, "nvidia-l4"), held=100)
    waits = [value(server.under(Load(users, 500, 1000)).ttft_mean) for users in (100, 130, 180)]
    assert waits[1] < 2 * waits[0] < 10 * waits[0] < waits[2]


def test_the_fitted_values_have_a_line_each() -> None:
    text = (CHECKOUT / "src/neuroscale/planning/speed/fitted.json").read_text()
    assert text == text_of(fitted()), "Run scripts/fit-speed, which writes it."
    assert [line.partition('"value"')[0] for line in text.splitlines() if '"value"' in line] == [
        f'  "{name}": {{' for name in fitted_values()
    ]
