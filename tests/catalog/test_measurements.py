"""Measurements in a model's file: what is refused, what moves when one comes, and how a later one takes its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from measured_models import catalog_with, measured_load, measurement, measurement_file, with_measurements
from neuroscale.catalog import Catalog
from neuroscale.catalog.loading import entry_of
from neuroscale.catalog.measurements import measurement_values, with_measurement
from neuroscale.catalog.new_entry import entry_text
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import read_mapping
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.rendering.service_folder import render
from neuroscale.rendering.upgrade import upgrade
from neuroscale.repo.snapshot import FolderSnapshot
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS
from roots import ROOT

PATH = "platform/catalog/models/Qwen3-8B.yaml"
VALUES = dict(read_mapping((ROOT / PATH).read_text(), PATH).value)
MODEL = CATALOG.models["Qwen/Qwen3-8B"]
GOOD = measurement_file(MODEL, "nvidia-l4", loads=[measured_load(1), measured_load(8)])
START = measurement_file(MODEL, "nvidia-l4", start={"weights_gib": 15.3, "kv_cache_gib": 3.9})


def changed(values: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The values with another one at a path."""
    made = copy.deepcopy(values)
    at: Any = made
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return made


def read(*measurements: dict[str, Any]) -> Any:
    return entry_of("models", entry_text({**VALUES, "measurements": list(measurements)}), PATH)


def test_a_model_with_measurements_can_be_read_and_written_again() -> None:
    entry = read(GOOD, START)
    again = [measurement_values(one) for one in entry.measurements]
    assert read(*again).measurements == entry.measurements


@pytest.mark.parametrize(
    ("path", "value", "field", "told"),
    [
        (("loads", 0, "failed_requests"), 1, "measurements[0].loads[0]", "1 of its 9 requests failed"),
        (("loads", 1, "inter_token_seconds", "mean"), 0.0, "measurements[0].loads[1].inter_token_seconds.mean", ""),
        (("loads", 1, "inter_token_seconds", "mean"), -1.0, "measurements[0].loads[1].inter_token_seconds.mean", ""),
        (("loads", 1, "ttft_seconds", "p95"), 0.01, "measurements[0].loads[1].ttft_seconds", "above the p95"),
        (("loads", 1, "tokens_per_second", "total"), 9000.0, "measurements[0].loads[1]", "more than 8 users get"),
        (("loads", 1, "tokens_per_second", "user"), 9000.0, "measurements[0].loads[1]", "not what the time between"),
        (("loads",), [measured_load(1), measured_load(1)], "measurements[0]", "the same load twice"),
        (("loads",), [], "measurements[0]", "neither loads nor a start"),
        (("start",), {"weights_gib": 15.0}, "measurements[0]", "loads and a start"),
        (("start",), {}, "measurements[0].start", "no figure"),
        (("count",), 2, "measurements[0]", "2 accelerators are not the 1 of its parallel sizes"),
        (("arguments",), {"tensor_parallel_size": 2}, "measurements[0]", "1 accelerators are not the 2"),
        (("arguments",), {"tensor_paralel_size": 2}, "measurements[0].arguments.tensor_paralel_size", "not a field"),
        (("report",), "sha256:1", "measurements[0].report", ""),
        (("weights",), "none", "measurements[0].weights", ""),
        (("vllm_version",), "nightly", "measurements[0].vllm_version", ""),
        (("date",), "soon", "measurements[0].date", ""),
        (("speed",), 1, "measurements[0].speed", "is not a field here"),
    ],
)
def test_impossible_figures_are_refused(path: tuple[str | int, ...], value: Any, field: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read(changed(GOOD, path, value))
    (problem,) = caught.value.problems
    assert problem.field == field
    assert told in problem.message
    assert problem.fix


def test_two_measurements_of_the_same_server_are_refused_and_a_start_beside_loads_is_not() -> None:
    with pytest.raises(InputError, match="two measurements are of the same server on 1 x nvidia-l4"):
        read(GOOD, {**GOOD, "date": "2026-11-30"})
    assert len(read(GOOD, START, {**GOOD, "vllm_version": "0.31.0"}).measurements) == 3


def test_a_later_measurement_takes_the_place_of_the_same_and_the_order_is_fixed() -> None:
    first = measurement(MODEL, "nvidia-l4", loads=[measured_load(1)])
    start = measurement(MODEL, "nvidia-l4", start={"weights_gib": 15.3})
    later = measurement(MODEL, "nvidia-l4", loads=[measured_load(4)], date="2026-12-01")
    both = with_measurement(with_measurement((), start), first)
    assert both == with_measurement(with_measurement((), first), start)
    assert set(with_measurement(both, later)) == {later, start}
    assert with_measurement(both, first) == both


def with_load(users: int) -> Catalog:
    one = measurement(MODEL, "nvidia-l4", loads=[measured_load(users)])
    return catalog_with(CATALOG, with_measurements(MODEL, one))


def test_a_measurement_moves_its_own_key_and_no_other() -> None:
    measured, other, before = with_load(1), with_load(2), CATALOG.keys()
    key = f"measurements/{MODEL.name}"
    assert set(measured.keys()) - set(before) == {key}
    assert all(measured.entry_digest(one) == CATALOG.entry_digest(one) for one in before)
    assert other.entry_digest(key) != measured.entry_digest(key)
    assert len({one.digest for one in (CATALOG, measured, other)}) == 3


def test_an_upgrade_names_the_measurements_that_moved() -> None:
    template = load_template(FolderSnapshot(ROOT))
    request = make_request(model=MODEL.name, concurrent_users=4)
    before = plan(request, CATALOG, SETTINGS, template.version)
    slow = measured_load(4, inter_token=0.09, ttft=1.5)
    entry = with_measurements(MODEL, measurement(MODEL, before.accelerator, loads=[slow]))
    measured = PlanningInputs(catalog_with(CATALOG, entry), SETTINGS, template)
    files = {name: text.encode() for name, text in render(request, before, template).items()}
    found = upgrade(request, before, files, measured)
    assert found is not None
    assert found.moved == (f"measurements {MODEL.name}",)
    after = plan(request, measured.catalog, SETTINGS, template.version)
    files = {name: text.encode() for name, text in render(request, after, template).items()}
    removed = upgrade(request, after, files, PlanningInputs(CATALOG, SETTINGS, template))
    assert removed is not None
    assert removed.moved == (f"measurements {MODEL.name} (removed)",)
