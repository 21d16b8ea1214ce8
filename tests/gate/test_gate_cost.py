"""The cost of a change as the gate reads it out of git: every way in which manifests can come, go or be unreadable."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cost_examples import GPU_POD, HOURLY, TODAY, inference_service, monthly, reasons, workload
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dump
from neuroscale.costs.bill import CostChange
from neuroscale.gate.checks.priced_change import cost_of_change
from neuroscale.gate.merged_change import find_change
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.manifests.objects import read_manifests
from repositories import Repository
from roots import ROOT

pytestmark = pytest.mark.slow

FOLDER = "manifests/dev/chat"
FILE = f"{FOLDER}/deployment.yaml"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Catalog and settings of this repository in a git repository of their own, with one service."""
    made = Repository(tmp_path_factory.mktemp("cost") / "repository")
    shutil.copytree(ROOT / "platform/catalog", made.root / "platform/catalog")
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    made.commit({FILE: dump(workload(replicas=2)), f"{FOLDER}/README.md": "A chat."}, "base")
    made.pack()
    made.git.close()
    return made.root


@pytest.fixture
def repository(platform: Path, tmp_path: Path) -> Iterator[Repository]:
    shutil.copytree(platform, tmp_path / "repository")
    made = Repository(tmp_path / "repository")
    yield made
    made.git.close()


def cost(repository: Repository, files: dict[str, Any], base: str = "main~1") -> CostChange | None:
    repository.commit({name: dump(value) if isinstance(value, dict) else value for name, value in files.items()})
    change = find_change(repository.git, base, "main")
    costs = cost_of_change(change, PlatformSources(change.before), PlatformSources(change.after), [], {}, TODAY)
    return costs.shown if costs else None


def one(repository: Repository, files: dict[str, Any]) -> CostChange:
    found = cost(repository, files)
    assert found is not None
    return found


def test_a_change_outside_the_manifests_or_of_what_costs_nothing_has_no_cost(repository: Repository) -> None:
    assert cost(repository, {"README.md": "hello"}) is None
    assert cost(repository, {f"{FOLDER}/README.md": "A better chat."}) is None
    assert cost(repository, {FILE: "# A remark.\n" + dump(workload(replicas=2))}) is None
    assert cost(repository, {"platform/catalog/README.md": "hello"}) is None


def test_the_platform_s_own_programs_are_a_service_of_each_environment_with_a_cluster(repository: Repository) -> None:
    files = [
        *("platform/clusters/charts.yaml", "platform/clusters/workloads.yaml"),
        *(f"platform/serving/{name}.yaml" for name in ("kserve", "kserve-gateway", "kyverno")),
        *(f"platform/cost/{name}-values.yaml" for name in ("opencost", "kube-state-metrics")),
    ]
    text = {name: (ROOT / name).read_text() for name in files}
    added = one(repository, text)
    # The record is new: before it, nobody could say what the programs cost.
    assert [(service.name, service.difference) for service in added.services] == [("(platform)", None)] * 2
    record = text["platform/clusters/workloads.yaml"]
    more = record.replace("replicas: 3", "replicas: 5")  # Kyverno's admission controller: 100m and 256 Mi
    assert more != record
    found = one(repository, {"platform/clusters/workloads.yaml": more})
    assert [service.environment for service in found.services] == ["dev", "prod"]  # local runs no pods of them
    each = round(2 * (Decimal("0.0864") / 10 + Decimal("0.009") / 4) * 730, 2)
    assert each == Decimal("15.90")
    assert [service.difference.max for service in found.services if service.difference] == [each, each]
    assert [(center.cost_center, center.difference.max) for center in found.cost_centers] == [
        ("(the platform's own)", 2 * each)
    ]
    # What has no price before and after is named by `neuroscale platform cost`, not by every pull request.
    assert found.unpriced == ()
    stale = one(repository, {"platform/serving/kyverno.yaml": text["platform/serving/kyverno.yaml"] + "other: 1\n"})
    assert [service.difference for service in stale.services] == [None, None]
    assert {item.subject for item in stale.unpriced} == {"chart kyverno"}


def test_a_service_that_others_wrote_is_priced(repository: Repository) -> None:
    found = one(repository, {FILE: workload(replicas=3)})
    (service,) = found.services
    assert (service.environment, service.name, service.change) == ("dev", "chat", "changed")
    assert found.total.difference.min == monthly(HOURLY, 3) - monthly(HOURLY, 2)
    assert [center.cost_center for center in found.cost_centers] == ["cc-ml-inference"]


def test_a_new_service_a_removed_one_and_a_moved_one(repository: Repository) -> None:
    found = one(repository, {"manifests/prod/other/app.yaml": workload(name="other")})
    assert [(row.environment, row.change) for row in found.services] == [("prod", "added")]
    found = one(repository, {"manifests/prod/other/app.yaml": None})
    assert [(row.change, row.difference) for row in found.services] == [("removed", found.total.difference)]
    assert found.total.difference.max == -monthly(HOURLY)
    moved = {"manifests/prod/chat/deployment.yaml": workload(replicas=2), FILE: None, f"{FOLDER}/README.md": None}
    found = one(repository, moved)
    assert [(row.environment, row.change) for row in found.services] == [("dev", "removed"), ("prod", "added")]
    assert (found.total.difference.min, found.total.past.min) == (Decimal(0), monthly(HOURLY, 2))


def test_an_autoscaler_in_a_file_of_its_own_bounds_its_target(repository: Repository) -> None:
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "minReplicas": 2, "maxReplicas": 5},
    }
    found = one(repository, {f"{FOLDER}/scaler.yaml": scaler})
    assert found.total.difference.min == 0
    assert found.total.difference.max == monthly(HOURLY, 5) - monthly(HOURLY, 2)


def test_a_service_asks_for_what_its_runtime_does_wherever_that_is_written(repository: Repository) -> None:
    container = {**GPU_POD["containers"][0], "name": "kserve-container"}
    runtime = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "theirs"},
        "spec": {**GPU_POD, "containers": [container]},
    }
    service = inference_service()
    service["spec"]["predictor"] = {"model": {"modelFormat": {"name": "any"}, "runtime": "theirs"}}
    file = "manifests/dev/other/service.yaml"
    found = one(repository, {file: service})
    assert "runtime theirs is not among the files" in reasons(found)["InferenceService team-alpha/chat predictor"]
    assert found.total.new.min == 0
    # The platform's own runtimes, and those of another service.
    for folder in ("platform/serving/runtimes", "manifests/dev/runtimes"):
        repository.commit({file: None})
        found = one(repository, {file: dump(service), f"{folder}/theirs.yaml": dump(runtime)})
        assert found.total.new.min == monthly(HOURLY)
        repository.commit({f"{folder}/theirs.yaml": None})


def test_a_list_and_json_and_several_documents_are_read(repository: Repository) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [workload(name="a"), workload(name="b")]}
    found = one(repository, {"manifests/dev/many/list.json": json.dumps(listed)})
    assert found.total.difference.min == 2 * monthly(HOURLY)
    found = one(repository, {"manifests/dev/more/two.yml": dump(workload()) + "---\n" + dump(inference_service())})
    assert found.total.difference.min == 2 * monthly(HOURLY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("a: &x 1\nb: *x\n", "anchor"),
        ("kind: Deployment\n", "apiVersion is missing"),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [x]\n",
            "metadata.name is missing",
        ),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_is_never_nothing(
    repository: Repository, text: str | bytes, words: str
) -> None:
    found = one(repository, {f"{FOLDER}/second.yaml": text})
    (service,) = found.services
    assert (service.difference, found.left_out) == (None, 1)
    assert service.new is not None
    assert words in reasons(found)[f"{FOLDER}/second.yaml"]
    assert cost(repository, {f"{FOLDER}/README.md": "The broken file stays as it is."}) is None
    mended = one(repository, {f"{FOLDER}/second.yaml": workload(name="second")})
    assert mended.services[0].difference is None
    assert mended.unpriced[0].side == "before"


def test_a_link_is_named(repository: Repository) -> None:
    (repository.root / FOLDER / "link.yaml").symlink_to("deployment.yaml")
    assert "symlink" in reasons(one(repository, {}))[f"{FOLDER}/link.yaml"]


def test_files_outside_a_service_folder_are_priced_or_named(repository: Repository) -> None:
    found = one(repository, {"manifests/dev/loose.yaml": workload(), "manifests/top.yaml": workload()})
    assert [(row.environment, row.name, row.difference is None) for row in found.services] == [
        ("", "top.yaml", True),
        ("dev", "loose.yaml", False),
    ]
    assert "do not name its folder as an environment" in reasons(found)["Deployment team-alpha/chat"]


def test_a_folder_that_becomes_a_link_is_something_unknown(repository: Repository) -> None:
    shutil.rmtree(repository.root / FOLDER)
    (repository.root / FOLDER).symlink_to("elsewhere")
    found = one(repository, {})
    (service,) = found.services
    assert (service.change, service.new, service.difference) == ("changed", None, None)
    assert "symlink" in reasons(found)[FOLDER]


def test_prices_that_the_change_alters_are_told_with_the_figure_at_the_base_s(repository: Repository) -> None:
    prices = "platform/catalog/prices/google-cloud.yaml"
    dearer = (repository.root / prices).read_text().replace('usd: "0.72"', 'usd: "1.72"')
    found = one(repository, {FILE: workload(replicas=3), prices: dearer})
    dear = HOURLY + 1
    assert found.total.past.min == monthly(dear, 2)
    assert found.total.difference.min == monthly(dear, 3) - monthly(dear, 2)
    assert found.prices_altered
    assert found.at_base_prices is not None
    assert found.at_base_prices.difference.min == monthly(HOURLY, 3) - monthly(HOURLY, 2)
    assert cost(repository, {prices: dearer.replace('"1.72"', '"0.72"')}) is None


def test_a_team_added_beside_alters_no_prices(repository: Repository) -> None:
    team = (repository.root / "platform/catalog/teams/team-alpha.yaml").read_text().replace("alpha", "delta")
    found = one(repository, {FILE: workload(replicas=3), "platform/catalog/teams/team-delta.yaml": team})
    assert not found.prices_altered


def test_a_catalog_that_cannot_be_read_gives_no_figure(repository: Repository) -> None:
    with pytest.raises(InputError):
        cost(repository, {FILE: workload(replicas=3), "platform/catalog/prices/google-cloud.yaml": "a: 1\n"})
    good = (ROOT / "platform/catalog/prices/google-cloud.yaml").read_text()
    unknown_list = re.sub(
        r"price_lists: \[.*\]", "price_lists: [nowhere]", (ROOT / "platform/settings.yaml").read_text()
    )
    files = {"platform/settings.yaml": unknown_list, "platform/catalog/prices/google-cloud.yaml": good}
    with pytest.raises(InputError, match="price_lists"):
        cost(repository, {FILE: workload(replicas=4), **files})


def test_prices_before_that_cannot_be_read_are_told(repository: Repository) -> None:
    good = (repository.root / "platform/settings.yaml").read_text()
    repository.commit({"platform/settings.yaml": "a: 1\n"})
    found = one(repository, {FILE: workload(replicas=3), "platform/settings.yaml": good})
    assert (found.prices_altered, found.at_base_prices) == (True, None)


def test_a_service_of_which_files_were_read_already_costs_the_same(repository: Repository) -> None:
    found = one(repository, {FILE: workload(replicas=3)})
    change = find_change(repository.git, "main~1", "main")
    read = read_manifests((repository.root / FILE).read_bytes(), FILE)
    base, after = PlatformSources(change.before), PlatformSources(change.after)
    again = cost_of_change(change, base, after, read, {}, TODAY)
    assert (again and again.shown) == found


def test_five_hundred_services_are_all_counted(repository: Repository) -> None:
    pod = GPU_POD
    files = {f"manifests/dev/s{number}/app.yaml": workload(name=f"s{number}", pod=pod) for number in range(500)}
    found = one(repository, files)
    assert len(found.services) == 500
    assert found.total.difference.min == Decimal(500) * monthly(HOURLY)
