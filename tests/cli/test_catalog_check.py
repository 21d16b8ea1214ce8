"""`neuroscale catalog check`: what is out of date goes red, and what the Hub did not tell is never green."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_server import COMMIT, NAME, Hub, hub_environment, serving
from measured_models import catalog_with, measured_load, measurement, with_measurements
from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.staleness import OLDEST_PRICE_DAYS, staleness
from neuroscale.core.errors import InputError, Problem
from neuroscale.models.hub import HubOutOfReachError
from neuroscale.repo.snapshot import FolderSnapshot
from roots import ROOT

TODAY = date(2026, 11, 1)
DIGEST = "sha256:" + "a" * 64


def fresh() -> Catalog:
    """A catalog in which nothing is out of date: two models of the Hub, a price list, images with digests."""
    catalog = load_catalog(FolderSnapshot(ROOT))
    weights = catalog.models["Qwen/Qwen3-30B-A3B"].weights
    models = {
        name: catalog.models["Qwen/Qwen3-30B-A3B"].model_copy(
            update={"name": name, "weights": weights.model_copy(update={"path": name, "revision": COMMIT})}
        )
        for name in ("a/A", "b/B")
    }
    cloud = catalog.prices["google-cloud"]
    undated = tuple(price.model_copy(update={"date": None}) for price in cloud.prices)
    prices = {"p": cloud.model_copy(update={"name": "p", "date": TODAY, "prices": undated})}
    runtimes = {name: one.model_copy(update={"digest": DIGEST}) for name, one in catalog.runtimes.items()}
    return Catalog(models, catalog.accelerators, prices, runtimes, catalog.teams)


def told(catalog: Catalog, newest: Any = lambda _: COMMIT, today: date = TODAY) -> list[tuple[str, str]]:
    return [(remark.state, remark.entry) for remark in staleness(catalog, today, newest).remarks]


def test_nothing_is_told_of_a_fresh_catalog_and_everything_was_compared() -> None:
    found = staleness(fresh(), TODAY, lambda _: COMMIT)
    assert (found.remarks, found.revisions, found.prices, found.images) == ((), 2, 1, len(fresh().runtimes))


def test_each_thing_that_goes_stale_is_told() -> None:
    assert told(fresh(), lambda name: "2" * 40 if name == "a/A" else COMMIT) == [("stale", "model/a/A")]
    assert told(fresh(), today=TODAY + timedelta(days=OLDEST_PRICE_DAYS)) == []
    assert told(fresh(), today=TODAY + timedelta(days=OLDEST_PRICE_DAYS + 1)) == [("stale", "price/p")]
    assert told(fresh(), today=TODAY - timedelta(days=1)) == []
    assert told(fresh(), today=TODAY - timedelta(days=2)) == [("stale", "price/p")]
    catalog = fresh()
    name, runtime = next(iter(catalog.runtimes.items()))
    runtimes = {**catalog.runtimes, name: runtime.model_copy(update={"digest": None})}
    without = Catalog(catalog.models, catalog.accelerators, catalog.prices, runtimes, catalog.teams)
    assert told(without) == [("stale", f"runtime/{name}")]


@pytest.mark.parametrize(
    ("changes", "told_of"),
    [
        ({}, ""),
        ({"date": "2030-01-01"}, "in the future"),
        ({"weights": f"sha256:{'0' * 64}"}, "of other weights"),
        ({"version": "0.29.0"}, "of another vLLM"),
        ({"version": "0.31.1"}, ""),
    ],
)
def test_a_measurement_that_no_plan_uses_any_more_is_told(changes: dict[str, Any], told_of: str) -> None:
    catalog = fresh()
    model = next(one for one in catalog.models.values() if "cuda" in one.serving.families)
    one = measurement(model, "nvidia-l4", loads=[measured_load(8)], **{"date": "2026-10-20", **changes})
    found = staleness(catalog_with(catalog, with_measurements(model, one)), TODAY, lambda _: COMMIT).remarks
    assert len(found) == bool(told_of)
    assert all(told_of in each.message and each.entry == f"model/{model.name}" for each in found)


def test_a_model_without_a_revision_is_told_and_the_hub_is_not_asked_for_it() -> None:
    catalog = fresh()
    model = catalog.models["a/A"]
    loose = model.model_copy(update={"weights": model.weights.model_copy(update={"revision": None})})
    models = {**catalog.models, "a/A": loose}
    asked = []

    def newest(name: str) -> str:
        asked.append(name)
        return COMMIT

    assert told(Catalog(models, catalog.accelerators, catalog.prices, catalog.runtimes, catalog.teams), newest) == [
        ("stale", "model/a/A")
    ]
    assert asked == ["b/B"]


@pytest.mark.parametrize(("error", "asked"), [(HubOutOfReachError, 1), (InputError, 2)])
def test_what_the_hub_does_not_tell_is_unknown_and_a_hub_out_of_reach_is_asked_once(
    error: type[InputError], asked: int
) -> None:
    questions = []

    def newest(name: str) -> str:
        questions.append(name)
        raise error(Problem(name, "", "was not told", "Try again."))

    assert told(fresh(), newest) == [("unknown", "model/a/A"), ("unknown", "model/b/B")]
    assert len(questions) == asked


def test_the_command_ends_by_what_it_found(tmp_path: Path) -> None:
    platform = tmp_path / "platform-repository"
    shutil.copytree(ROOT / "platform/catalog", platform / "platform/catalog")
    for path in (platform / "platform/catalog/models").iterdir():
        if path.name not in ("tiny-llama.yaml", "Mixtral-8x7B-Instruct-v0.1.yaml"):
            path.unlink()
    shutil.copyfile(ROOT / "platform/settings.yaml", platform / "platform/settings.yaml")
    shutil.copytree(ROOT / "templates", platform / "templates")
    today = datetime.now(UTC).date()

    def edit(folder: str, old: str, new: str) -> None:
        for path in (platform / "platform/catalog" / folder).iterdir():
            path.write_text(path.read_text().replace(old, new))

    def check(url: str) -> tuple[int, Any]:
        command = [sys.executable, "-m", "neuroscale", "catalog", "check", "--json", "--repository", str(platform)]
        environment = hub_environment(tmp_path, url=url)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
        return done.returncode, json.loads(done.stdout)

    edit("runtimes", "digest: null", f'digest: "{DIGEST}"')
    for path in (platform / "platform/catalog/prices").iterdir():
        path.write_text(re.sub(r'(?m)^( *date:) ".*"$', rf'\1 "{today}"', path.read_text()))
    edit("models", "revision: null", f'revision: "{COMMIT}"')
    edit("models", "path: mistralai/Mixtral-8x7B-Instruct-v0.1", f"path: {NAME}")
    hub = Hub({})
    with serving(hub):
        assert check(hub.url)[0] == 0
        hub.told["sha"] = "2" * 40
        status, answer = check(hub.url)
        assert (status, [one["entry"] for one in answer["stale"]]) == (
            1,
            ["model/mistralai/Mixtral-8x7B-Instruct-v0.1"],
        )
    edit("models", f'revision: "{COMMIT}"', "revision: null")
    command = [sys.executable, "-m", "neuroscale", "catalog", "check", "--repository", str(platform)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 1
    assert "names no revision: each start loads the newest one. Run `neuroscale catalog add" in shown.stdout
    edit("models", "revision: null", f'revision: "{COMMIT}"')
    status, answer = check("http://127.0.0.1:9")
    assert (status, answer["stale"], len(answer["unknown"])) == (3, [], 1)
