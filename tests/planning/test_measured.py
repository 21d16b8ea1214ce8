"""A measurement of the catalog corrects the estimates of the server that it is of, and of no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from measured_models import catalog_with, measured_load, measurement, with_measurements
from neuroscale.catalog import ModelEntry
from neuroscale.explain.server_facts import engine_values
from neuroscale.planning.fit import Fit, device, fit
from neuroscale.planning.fit_question import Question, asked
from neuroscale.planning.fit_question import fitted as fitted_question
from neuroscale.planning.measured import (
    as_measured,
    measurements_of,
    remarks_on,
    served_with,
    unkept,
    with_measured_speed,
)
from neuroscale.planning.plan import Plan, dump_plan
from neuroscale.planning.planner import plan
from neuroscale.planning.replica_memory import served_facts
from neuroscale.planning.speed import Load, ReplicaSpeed
from neuroscale.vllm.argument_values import values_of, words_of
from neuroscale.vllm.engine_arguments import EngineArguments, Unplanned
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
MODEL = CATALOG.models[LLAMA]
ASKED = Load(8, 1024, 256)
SLOW = measured_load(8, inter_token=0.1, ttft=0.9)


def replica(accelerator: str = "nvidia-l4", version: str = "0.32.0", **arguments: Any) -> ReplicaSpeed:
    said = EngineArguments(model=LLAMA, **arguments)
    return ReplicaSpeed(served_facts(CATALOG.models[LLAMA]), device(CATALOG.accelerators[accelerator]), said, version)


def model(*loads: dict[str, Any], accelerator: str = "nvidia-l4", **values: Any) -> ModelEntry:
    return with_measurements(MODEL, measurement(MODEL, accelerator, loads=loads or [SLOW], **values))


def estimated(figure: str, load: Load = ASKED, **server: Any) -> float:
    found = getattr(replica(**server).under(load), figure)
    assert found is not None
    return float(found.value)


def measured(entry: ModelEntry | None, load: Load = ASKED, **server: Any) -> float | None:
    """The inter-token time by a measurement, or None where the estimate stays as it is."""
    base = replica(**server)
    corrected = with_measured_speed(base, entry, load)
    speed = corrected.under(load)
    if corrected == base:
        assert speed == base.under(load)
        return None
    assert speed.coverage == "measured"
    assert speed.inter_token_mean is not None
    return speed.inter_token_mean.value


def test_a_measurement_of_the_same_server_is_what_is_estimated() -> None:
    entry = model(measured_load(8, inter_token=0.1, ttft=0.9))
    speed = with_measured_speed(replica(), entry, ASKED).under(ASKED)
    assert speed.coverage == "measured"
    assert speed.inter_token_mean is not None
    assert speed.ttft_mean is not None
    assert speed.inter_token_mean.value == pytest.approx(0.1, rel=0.02)
    assert speed.ttft_mean.value == pytest.approx(0.9, rel=0.02)


@pytest.mark.parametrize(
    ("entry", "server"),
    [
        (None, {}),
        (MODEL, {}),
        (model(), {"accelerator": "nvidia-l40s"}),
        (model(), {"tensor_parallel_size": 2}),
        (model(), {"version": "0.30.1"}),
        (model(), {"quantization": "fp8"}),
        (model(), {"enforce_eager": True}),
        (model(), {"speculative": "eagle3", "speculative_tokens": 3}),
        (model(), {"enable_lora": True}),
        (model(), {"dtype": "float16"}),
        (model(), {"prefill_context_parallel_size": 2}),
        (model(), {"unplanned": (Unplanned("compilation_config", "graphs"),)}),
        (model(weights=f"sha256:{'0' * 64}"), {}),
        # A server whose prompts were cached says nothing about prompts that are not.
        (model(measured_load(8, inter_token=0.1, prefix_hit_share=0.8)), {}),
        (model(start={"weights_gib": 15.0}), {}),
    ],
)
def test_a_measurement_of_another_server_changes_nothing(entry: ModelEntry | None, server: dict[str, Any]) -> None:
    assert measured(entry, **server) is None


@pytest.mark.parametrize(
    "server",
    [
        {"version": "0.32.4"},
        {"version": "0.31.0"},
        {"dtype": "bfloat16"},
        {"max_num_batched_tokens": 4096},
        {"max_num_seqs": 64, "max_model_len": 8192},
        {"enable_expert_parallel": True},
    ],
)
def test_what_the_estimate_knows_or_does_not_matter_may_differ(server: dict[str, Any]) -> None:
    assert measured(model(measured_load(8, inter_token=0.1)), **server) is not None


def test_a_commit_that_changes_no_weights_leaves_a_measurement_valid_and_another_config_does_not() -> None:
    entry = model(measured_load(8, inter_token=0.1))
    moved = entry.model_copy(update={"weights": entry.weights.model_copy(update={"revision": "a" * 40})})
    assert measured(moved) is not None
    other = entry.model_copy(update={"config": {**entry.config, "num_hidden_layers": 31}})
    assert measured(other) is None


def test_another_type_of_cache_was_not_measured_and_is_slowed_by_a_slow_measurement() -> None:
    """Without that, the estimate of a server that nobody measured would win over every slow measurement."""
    usual = estimated("inter_token_mean", kv_cache_dtype="fp8")
    for figure, expected in ((2 * usual, 2 * usual), (0.8 * usual, usual)):
        entry = model(measured_load(8, inter_token=figure, ttft=None))
        speed = with_measured_speed(replica(kv_cache_dtype="fp8"), entry, ASKED).under(ASKED)
        assert speed.coverage == "interpolated"
        assert speed.inter_token_mean is not None
        assert speed.inter_token_mean.value == pytest.approx(expected, rel=0.15)


def test_a_late_measured_p95_is_promised_no_earlier() -> None:
    base = replica().under(ASKED)
    assert base.ttft_mean is not None
    assert base.ttft_p95 is not None
    assert base.inter_token_mean is not None
    mean, last, usual = base.ttft_mean.value, 3 * base.ttft_p95.value, base.inter_token_mean.value
    load = measured_load(8, inter_token=usual, ttft=mean)
    late = {**load, "ttft_seconds": {"mean": mean, "p50": mean, "p95": last}}
    early = {**load, "ttft_seconds": {"mean": mean, "p50": mean, "p95": mean}}
    found = {}
    for name, each in (("late", late), ("early", early)):
        server = with_measured_speed(replica(), model(each), ASKED)
        first = server.under(ASKED).ttft_p95
        assert first is not None
        found[name] = first.value, server.largest_users(1024, 256, p95_ttft_seconds=last * 0.9) or 0
    assert found["late"][0] == pytest.approx(last, rel=0.02)
    assert found["early"][0] == pytest.approx(base.ttft_p95.value, rel=0.05)
    assert found["late"][1] < 8 <= found["early"][1]


def test_a_queue_that_the_measured_server_did_not_have_is_no_speed() -> None:
    """64 users on a server for 4 requests at once wait: a measurement without that queue does not shorten that wait."""
    base = replica(max_num_seqs=4)
    asked = Load(64, 1024, 256)
    alone = replica().under(asked)
    assert alone.inter_token_mean is not None
    assert alone.ttft_mean is not None
    usual = measured_load(64, inter_token=alone.inter_token_mean.value, ttft=alone.ttft_mean.value)
    before, after = base.under(asked).ttft_p95, with_measured_speed(base, model(usual), asked).under(asked).ttft_p95
    assert before is not None
    assert after is not None
    assert after.value >= 0.9 * before.value


def test_of_several_loads_the_one_most_like_the_asked_load_corrects() -> None:
    entry = model(measured_load(1, inter_token=0.07, ttft=0.3), measured_load(64, inter_token=0.25, ttft=2.0))
    assert measured(entry, Load(1, 1024, 256)) == pytest.approx(0.07, rel=0.02)
    assert measured(entry, Load(64, 1024, 256)) == pytest.approx(0.25, rel=0.02)


def test_of_several_measurements_the_nearest_version_and_then_the_later_one_counts() -> None:
    entry = with_measurements(
        MODEL,
        measurement(MODEL, "nvidia-l4", loads=[measured_load(8, inter_token=0.09)], version="0.31.0"),
        measurement(MODEL, "nvidia-l4", loads=[measured_load(8, inter_token=0.11)], arguments={"max_num_seqs": 9}),
        measurement(MODEL, "nvidia-l4", loads=[measured_load(8, inter_token=0.1)], date="2026-11-29"),
    )
    assert measured(entry) == pytest.approx(0.1, rel=0.02)
    assert measured(entry, version="0.31.0") == pytest.approx(0.09, rel=0.02)


def test_a_measurement_far_faster_than_servers_like_it_is_not_believed_and_a_slow_one_is() -> None:
    usual = estimated("inter_token_mean")
    assert measured(model(measured_load(8, inter_token=usual / 3.5, ttft=None))) is None
    assert measured(model(measured_load(8, inter_token=usual / 2.5, ttft=None))) is not None
    assert measured(model(measured_load(8, inter_token=usual * 5, ttft=None))) is not None
    first = estimated("ttft_mean")
    assert measured(model(measured_load(8, inter_token=usual, ttft=first / 4))) is None


@pytest.mark.parametrize("users", [512, 513, 1024, 4096])
@pytest.mark.parametrize("figure", ["inter_token_mean", "ttft_mean"])
def test_more_users_than_are_estimated_are_no_way_around_the_doubt(users: int, figure: str) -> None:
    """Whatever judges a load and whatever corrects an estimate by it count the same users."""
    said: dict[str, Any] = {"max_num_seqs": 4096}
    load = Load(512, 256, 256)
    token, first = estimated("inter_token_mean", load, **said), estimated("ttft_mean", load, **said)
    corrected = []
    for factor in (2.9, 3.1):
        fast = measured_load(users, 256, 256, inter_token=token / factor, ttft=first / factor)
        server = with_measured_speed(replica(**said), model(fast, arguments=said), load)
        corrected.append([getattr(server.under(at), figure).value for at in (load, Load(64, 256, 256))])
    usual = [estimated(figure, at, **said) for at in (load, Load(64, 256, 256))]
    assert corrected[0] == [pytest.approx(one / 2.9, rel=0.15) for one in usual]
    assert corrected[1] == usual


def test_guessed_tokens_may_make_a_server_faster_by_their_number() -> None:
    said: dict[str, Any] = {"speculative": "eagle3", "speculative_tokens": 3}
    usual = estimated("inter_token_mean", **said)
    for factor, believed in ((5, True), (13, False)):
        entry = model(measured_load(8, inter_token=usual / factor, ttft=None), arguments=said)
        assert (measured(entry, **said) is not None) is believed


def test_a_processor_without_published_figures_is_believed() -> None:
    """Nothing like it was measured, so nothing doubts the measurement: it is the only figure."""
    tiny = CATALOG.models["tiny-llama"]
    load = Load(1, 200, 64)
    said = EngineArguments(model="tiny-llama")
    server = ReplicaSpeed(served_facts(CATALOG.models["tiny-llama"]), device(CATALOG.accelerators["cpu"]), said)
    entry = with_measurements(tiny, measurement(tiny, "cpu", loads=[measured_load(1, 200, 64, inter_token=1e-5)]))
    assert with_measured_speed(server, entry, load).under(load).coverage == "measured"


def test_the_arguments_of_a_server_are_kept_or_said_not_to_be() -> None:
    said = EngineArguments(model=LLAMA, tensor_parallel_size=2, kv_cache_dtype="fp8", max_num_seqs=32)
    kept = served_with(said)
    assert (kept.ranks, kept.kv_cache_dtype, kept.max_num_seqs) == (2, "fp8", 32)
    assert unkept(said) == ""
    assert unkept(replace(said, decode_context_parallel_size=2)) == "--decode-context-parallel-size"
    assert unkept(replace(said, unplanned=(Unplanned("compilation_config", "graphs"),))) == "--compilation-config"


def test_measurements_of_starts_are_found_beside_those_of_loads() -> None:
    server = replica()
    entry = model(start={"weights_gib": 15.0})
    (found,) = measurements_of(entry, server.device, server.arguments, server.version)
    assert found.start is not None


def start(**figures: Any) -> ModelEntry:
    return with_measurements(MODEL, measurement(MODEL, "nvidia-l4", start=figures, arguments=SERVED))


SERVED = {"max_num_seqs": 16, "max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.9, "max_model_len": 8192}


def fitted(entry: ModelEntry, **arguments: Any) -> Fit:
    said = EngineArguments(model=LLAMA, **{**SERVED, **arguments})
    facts, where = served_facts(CATALOG.models[LLAMA]), device(CATALOG.accelerators["nvidia-l4"])
    return fit(*as_measured(entry, facts, where, said, "0.32.0"), said)


@pytest.mark.parametrize("off", [-2.0, -0.6, 0.0, 0.6, 2.0])
@pytest.mark.parametrize("weights", [-1.0, 0.0, 1.5])
def test_a_plan_counts_on_no_more_room_than_a_start_had(weights: float, off: float) -> None:
    usual = fitted(MODEL)
    size, room = usual.memory_gib.weights + weights, usual.available_gib + off
    found = fitted(start(weights_gib=size, kv_cache_gib=room))
    assert found.memory_gib.weights == pytest.approx(size, abs=0.02)
    assert found.available_gib <= room + 0.02
    # Beside the weights, an estimate that leaves less room than the start had stays.
    assert found.available_gib == pytest.approx(min(room, usual.available_gib - weights), abs=0.02)


def test_other_batches_take_what_a_start_took_more_than_estimated_too() -> None:
    usual, more = fitted(MODEL), {"max_num_seqs": 64, "max_num_batched_tokens": 8192}
    entry = start(weights_gib=usual.memory_gib.weights, kv_cache_gib=usual.available_gib - 1.0)
    assert fitted(entry, **more).available_gib == pytest.approx(fitted(MODEL, **more).available_gib - 1.0, abs=0.02)


def test_measured_weights_alone_take_the_place_of_the_counted_ones() -> None:
    usual = fitted(MODEL)
    found = fitted(start(weights_gib=usual.memory_gib.weights + 0.5))
    assert found.available_gib == pytest.approx(usual.available_gib - 0.5, abs=0.02)


@pytest.mark.parametrize(
    ("figures", "arguments"),
    [
        ({"weights_gib": 5.0, "kv_cache_gib": 14.0}, {}),  # far lighter than the model is
        ({"weights_gib": 16.0}, {"enable_lora": True}),
        ({"weights_gib": 16.0}, {"cpu_offload_gib": 2.0}),
        ({"weights_gib": 16.0}, {"tensor_parallel_size": 2}),
        ({"weights_gib": 16.0}, {"quantization": "fp8"}),
    ],
)
def test_a_start_of_another_server_or_with_impossible_weights_changes_no_memory(
    figures: dict[str, float], arguments: dict[str, Any]
) -> None:
    entry = with_measurements(
        MODEL,
        measurement(MODEL, "nvidia-l4", start=figures, arguments={**SERVED, "enable_lora": "enable_lora" in arguments}),
    )
    assert fitted(entry, **arguments) == fitted(MODEL, **arguments)


def test_a_plan_with_a_measured_start_has_its_weights_and_waits_for_it() -> None:
    model, request = CATALOG.models["Qwen/Qwen3-8B"], make_request(model="Qwen/Qwen3-8B", concurrent_users=4)
    usual = plan(request, CATALOG, SETTINGS)

    def planned(**figures: float) -> Plan:
        one = measurement(model, usual.accelerator, start={"weights_gib": 15.5, **figures}, arguments=SERVED)
        return plan(request, catalog_with(CATALOG, with_measurements(model, one)), SETTINGS)

    made = planned(load_seconds=9000.0, engine_seconds=500.0)
    assert made.accelerator == usual.accelerator
    assert made.memory_gib.weights == pytest.approx(15.5, abs=0.02)
    assert made.startup.load_seconds == 9000
    assert made.startup.expected_seconds == made.startup.download_seconds + 9500
    assert made.startup.probe_budget_seconds > 9500
    assert any("Nobody has measured the memory" in one for one in usual.reasons)
    assert not any("Nobody has measured the memory" in one for one in made.reasons)
    told = f"The weights are those that a start showed on 2026-11-28: start on 1 x {usual.accelerator}, vLLM 0.32.0"
    assert any(one.startswith(told) for one in made.reasons)
    # Files in a node's memory say nothing about the start that reads them from its disk.
    assert planned(load_seconds=1.0, engine_seconds=2.0).startup == usual.startup


def test_without_a_measurement_a_plan_is_the_same_to_the_byte() -> None:
    request = make_request(model=LLAMA, concurrent_users=4)
    other = CATALOG.models["Qwen/Qwen3-8B"]
    entry = with_measurements(other, measurement(other, "nvidia-l4", start={"weights_gib": 15.5}))
    usual, beside = (plan(request, one, SETTINGS) for one in (CATALOG, catalog_with(CATALOG, entry)))
    assert dump_plan(beside).replace(beside.lock.catalog_digest, usual.lock.catalog_digest) == dump_plan(usual)


@pytest.mark.parametrize(
    ("loads", "values", "told"),
    [
        ([SLOW], {}, []),
        (
            [measured_load(8, inter_token=0.001, ttft=None)],
            {},
            ["inter_token_seconds is the estimate over", "do not believe"],
        ),
        ([measured_load(8, inter_token=3.0, ttft=None)], {}, ["times the estimate. Plans use it."]),
        ([measured_load(8, inter_token=0.1, prefix_hit_share=0.5)], {}, ["50% of the prompts' tokens were cached"]),
        ([SLOW], {"weights": f"sha256:{'0' * 64}"}, ["of other weights than the entry's config"]),
        ([], {"start": {"weights_gib": 15.1}}, []),
        ([], {"start": {"weights_gib": 4.0}}, ["4 GiB of weights, where", "do not believe"]),
        ([], {"start": {"weights_gib": 30.0}}, ["30 GiB of weights, where", "Plans use it."]),
    ],
)
def test_a_reviewer_is_told_which_figures_are_doubted(
    loads: list[dict[str, Any]], values: dict[str, Any], told: list[str]
) -> None:
    entry = with_measurements(MODEL, measurement(MODEL, "nvidia-l4", loads=loads, **values))
    found = list(remarks_on(entry, CATALOG.accelerators))
    assert len(found) == bool(told)
    assert all(part in found[0][1] for part in told)


def test_a_reviewer_is_told_where_nothing_can_be_compared() -> None:
    tiny = CATALOG.models["tiny-llama"]
    entry = with_measurements(tiny, measurement(tiny, "cpu", loads=[measured_load(1, 200, 64)]))
    ((place, sentence),) = remarks_on(entry, CATALOG.accelerators)
    assert place == 0
    assert "no estimate to compare it with" in sentence


def test_a_late_first_token_of_short_answers_does_not_make_answers_free() -> None:
    """One load with short answers does not tell prompts from answers: a user alone would get any number of tokens."""
    usual, asked = replica(), Load(8, 259, 16)
    estimate = usual.under(asked)
    assert estimate.inter_token_mean is not None
    assert estimate.ttft_mean is not None
    token, first = estimate.inter_token_mean.value, 6 * estimate.ttft_mean.value
    entry = model(measured_load(8, 259, 16, inter_token=token, ttft=first))
    server = with_measured_speed(usual, entry, asked)
    found, alone, without = (
        one.under(load) for one, load in ((server, asked), (server, Load(1, 259, 256)), (usual, Load(1, 259, 256)))
    )
    assert found.inter_token_mean is not None
    assert found.ttft_mean is not None
    assert found.inter_token_mean.value == pytest.approx(token, rel=0.1)
    assert found.ttft_mean.value == pytest.approx(first, rel=0.1)
    assert alone.inter_token_mean is not None
    assert without.inter_token_mean is not None
    assert alone.inter_token_mean.value > 0.3 * without.inter_token_mean.value


def test_the_fit_of_a_planned_command_counts_what_its_plan_counted() -> None:
    """The gate and `neuroscale fit` judge the command of a plan by the same measured start."""
    entry, request = CATALOG.models["Qwen/Qwen3-8B"], make_request(model="Qwen/Qwen3-8B", concurrent_users=4)
    usual = plan(request, CATALOG, SETTINGS)
    figures = {"weights_gib": 15.5, "kv_cache_gib": usual.memory_gib.kv_cache + usual.memory_gib.free - 0.5}
    one = measurement(entry, usual.accelerator, start=figures, arguments={**SERVED, "max_num_seqs": 4})
    catalog = catalog_with(CATALOG, with_measurements(entry, one))
    made = plan(request, catalog, SETTINGS)
    words = words_of(engine_values(values_of(made.vllm_args, made.runtime.version)))
    question = Question(made.model, made.accelerator, made.accelerator_count, words, made.runtime.version)
    found = fitted_question(question, asked(question, catalog))
    assert found.verdict != "refused"
    assert found.memory_gib.weights == pytest.approx(made.memory_gib.weights, abs=0.02)
    assert found.memory_gib.overhead == pytest.approx(made.memory_gib.overhead, abs=0.02)
    assert found.memory_gib.overhead > fitted_question(question, asked(question, CATALOG)).memory_gib.overhead
