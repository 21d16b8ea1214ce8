"""What becomes of a merge on the running platform: deployed, kept, pruned, rolled back, told of where it is broken.

The forge tells Argo CD of each merge, which one test here demands within seconds. Argo CD itself looks only every few
minutes, as it also does where an event is lost on a busy machine.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gitops_lab import APPLICATIONS, ARRIVES_WITHIN, ENVIRONMENT, NAMESPACE, GitOps, objects_of, service_files
from neuroscale.kube.client import Identity, Object
from neuroscale.local.argocd_applications import deploy
from roots import ROOT

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

FOLDER = f"manifests/{ENVIRONMENT}"
WITHIN = 30.0  # seconds; ten on a quiet machine
STEADY = 60.0  # seconds in which nothing may happen to a service that nobody changes
TEAM = "team-alpha"


class Service:
    """A service that was merged, for one test to change."""

    def __init__(self, gitops: GitOps, name: str) -> None:
        self.gitops = gitops
        self.name = name
        self.files = dict(service_files(name))
        self.merged = gitops.merge(self.files, f"Serve {name}")

    @property
    def manifest(self) -> str:
        return f"{FOLDER}/{self.name}/inferenceservice.yaml"

    @property
    def wanted(self) -> Object:
        """The InferenceService as it was merged."""
        (found,) = (one for one in objects_of(self.files) if one["kind"] == "InferenceService")
        return found

    def live(self) -> Object:
        found = self.gitops.live(self.wanted)
        assert found is not None
        return found

    def application(self) -> Object:
        found = self.gitops.application_of(self.name)
        assert found is not None
        return found

    def grace(self) -> Any:
        """A field of the live object that is easy to change."""
        return self.live()["spec"]["predictor"]["terminationGracePeriodSeconds"]

    def answering(self) -> set[int]:
        """The same field of the pods that are ready and not about to end."""
        label = f"serving.kserve.io/inferenceservice={self.name}"
        return {
            pod["spec"]["terminationGracePeriodSeconds"]
            for pod in self.gitops.cluster.list("v1", "Pod", TEAM, label)
            if "deletionTimestamp" not in pod["metadata"]
            and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
        }

    def with_grace(self, seconds: int) -> dict[str, str]:
        """The manifest with another value of that field."""
        old = f"terminationGracePeriodSeconds: {self.wanted['spec']['predictor']['terminationGracePeriodSeconds']}"
        assert old in self.files[self.manifest]
        return {self.manifest: self.files[self.manifest].replace(old, f"terminationGracePeriodSeconds: {seconds}")}

    def remove(self) -> None:
        there = {path: None for path in self.files if self._is_there(path)}
        if there:
            self.gitops.merge(there, f"Remove {self.name}")

    def _is_there(self, path: str) -> bool:
        return self.gitops.exists(path)


@pytest.fixture
def service(gitops: GitOps) -> Iterator[Service]:
    """A service of its own, deployed and ready; it is removed afterwards."""
    found = Service(gitops, f"test-{secrets.token_hex(3)}")
    try:
        gitops.await_deployed(found.name, found.merged, ARRIVES_WITHIN)
        yield found
    finally:
        found.remove()


def test_argo_cd_itself_looks_at_the_repository_every_few_minutes_only(gitops: GitOps) -> None:
    """So what the other tests see within seconds came by the forge's webhook."""
    settings = gitops.cluster.get("v1", "ConfigMap", "argocd-cm", NAMESPACE)
    assert settings is not None
    assert settings["data"]["timeout.reconciliation"] == "180s"
    for found in gitops.cluster.list(APPLICATIONS, "ApplicationSet", NAMESPACE):
        for generator in found["spec"]["generators"]:
            assert generator["git"].get("requeueAfterSeconds", 180) >= 180


def test_telling_argo_cd_again_what_to_deploy_changes_nothing(gitops: GitOps) -> None:
    told: list[str] = []
    deploy(gitops.local, ROOT, told.append)
    assert not [line for line in told if line.startswith("Argo CD deploys")]


def test_a_merged_service_is_synced_and_ready_within_seconds(
    gitops: GitOps, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Service(gitops, f"test-{secrets.token_hex(3)}")
    try:
        added = gitops.await_deployed(first.name, first.merged, WITHIN)
        changed = gitops.merge(first.with_grace(90), "Change it")
        gitops.await_deployed(first.name, changed, WITHIN)
        gitops.wait(lambda: first.answering() == {90}, WITHIN, "new pods answer, and no others")
        updated = changed.age
    finally:
        first.remove()
    with capsys.disabled():
        print(f"\nfrom the merge to Synced and Ready: a new service {added:.1f} s, a changed one {updated:.1f} s")


def test_a_change_by_hand_is_undone(gitops: GitOps, service: Service) -> None:
    wanted = service.grace()
    gitops.cluster.merge(
        Identity.of(service.wanted), {"spec": {"predictor": {"terminationGracePeriodSeconds": wanted + 7}}}
    )
    gitops.wait(
        lambda: service.grace() == wanted,
        ARRIVES_WITHIN,
        "the change by hand is undone",
        f"{service.name}.{ENVIRONMENT}",
    )


def test_an_object_that_was_deleted_by_hand_comes_back(gitops: GitOps, service: Service) -> None:
    """It fails if nothing heals."""
    (policy,) = (one for one in objects_of(service.files) if one["kind"] == "NetworkPolicy")
    assert gitops.cluster.delete(Identity.of(policy))
    gitops.wait(lambda: gitops.live(policy) is not None, ARRIVES_WITHIN, "it is back", f"{service.name}.{ENVIRONMENT}")


def test_an_object_whose_manifest_is_gone_is_pruned(gitops: GitOps, service: Service) -> None:
    """It fails if nothing is pruned."""
    (budget,) = (one for one in objects_of(service.files) if one["kind"] == "PodDisruptionBudget")
    assert gitops.live(budget) is not None
    gitops.merge({f"{FOLDER}/{service.name}/poddisruptionbudget.yaml": None}, "Drop it")
    gitops.wait(lambda: gitops.live(budget) is None, ARRIVES_WITHIN, "it is pruned", f"{service.name}.{ENVIRONMENT}")
    assert gitops.live(service.wanted) is not None


def test_a_reverted_change_is_rolled_back(gitops: GitOps, service: Service) -> None:
    before = service.grace()
    changed = gitops.merge(service.with_grace(before + 5), "A change that turns out bad")
    gitops.await_deployed(service.name, changed, ARRIVES_WITHIN)
    assert service.grace() == before + 5
    reverted = gitops.merge({service.manifest: service.files[service.manifest]}, "Revert it")
    gitops.await_deployed(service.name, reverted, ARRIVES_WITHIN)
    assert service.grace() == before


def test_a_broken_manifest_on_main_stops_nothing_else_and_is_told_of(gitops: GitOps, service: Service) -> None:
    before = service.live()["metadata"]["uid"]
    gitops.merge({service.manifest: "apiVersion: serving.kserve.io/v1beta1\nkind: {\nmetadata:\n"}, "Break it")

    def told() -> bool:
        conditions = service.application().get("status", {}).get("conditions", [])
        return any(one["type"] == "ComparisonError" and "inferenceservice.yaml" in one["message"] for one in conditions)

    gitops.wait(told, ARRIVES_WITHIN, "the Application names the broken file", f"{service.name}.{ENVIRONMENT}")
    assert service.application()["status"]["sync"]["status"] == "Unknown"
    other = Service(gitops, f"test-{secrets.token_hex(3)}")
    try:
        gitops.await_deployed(other.name, other.merged, ARRIVES_WITHIN)
    finally:
        other.remove()
    # What runs stays as it was, and what was meant can still come.
    assert service.live()["metadata"]["uid"] == before
    assert gitops.is_ready(service.name)
    mended = gitops.merge({service.manifest: service.files[service.manifest]}, "Mend it")
    gitops.await_deployed(service.name, mended, ARRIVES_WITHIN)


def test_an_object_that_the_cluster_refuses_stops_nothing_else_and_is_told_of(gitops: GitOps, service: Service) -> None:
    """What a gate that was passed over would have said, the live policies and the schema say."""
    before = service.live()["metadata"]["generation"]
    image = service.wanted["spec"]["predictor"]["model"]["image"]
    moving = service.files[service.manifest].replace(image, f"{image.partition('@')[0].rpartition(':')[0]}:latest")
    assert moving != service.files[service.manifest]
    gitops.merge({service.manifest: moving}, "An image that moves")

    def told() -> bool:
        # The difference itself is worked out by the API server, which refuses the object already then.
        conditions = service.application().get("status", {}).get("conditions", [])
        return any("no-mutable-image-tags" in one["message"] for one in conditions)

    gitops.wait(told, ARRIVES_WITHIN, "the Application says what was refused", f"{service.name}.{ENVIRONMENT}")
    assert service.live()["metadata"]["generation"] == before
    mended = gitops.merge({service.manifest: service.files[service.manifest]}, "Mend it")
    gitops.await_deployed(service.name, mended, ARRIVES_WITHIN)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "is missing"),
        ("  namespace: kube-system\n", "namespace kube-system is not permitted"),
    ],
)
def test_an_object_outside_the_teams_namespaces_is_not_applied(
    gitops: GitOps, service: Service, written: str, told: str
) -> None:
    """It fails if a service may be deployed into any namespace."""
    path = f"{FOLDER}/{service.name}/networkpolicy.yaml"
    place = f"  namespace: {TEAM}\n"
    assert place in service.files[path]
    gitops.merge({path: service.files[path].replace(place, written, 1)}, "Somewhere else")

    def is_told() -> bool:
        return told in json.dumps(service.application().get("status", {}))

    gitops.wait(is_told, ARRIVES_WITHIN, "the Application says that it may not", f"{service.name}.{ENVIRONMENT}")
    found = gitops.cluster.list("networking.k8s.io/v1", "NetworkPolicy")
    assert {one["metadata"]["namespace"] for one in found if one["metadata"]["name"] == service.name} == {TEAM}
    mended = gitops.merge({path: service.files[path]}, "Mend it")
    gitops.await_deployed(service.name, mended, ARRIVES_WITHIN)


def test_a_service_that_nobody_changes_is_left_alone(gitops: GitOps, service: Service) -> None:
    """KServe's webhook fills in what Git does not say: that is no difference, and no reason to sync again."""
    before = service.application()["status"]
    live = service.live()["metadata"]
    identity = Identity(APPLICATIONS, "Application", NAMESPACE, f"{service.name}.{ENVIRONMENT}")
    ends = time.monotonic() + STEADY
    seen = set()
    while time.monotonic() < ends:
        # A look at everything anew, as the forge's next event would cause it.
        gitops.cluster.merge(identity, {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "hard"}}})
        looked = time.monotonic()
        while time.monotonic() < min(ends, looked + 10.0):
            status = service.application()["status"]
            seen.add((status["sync"]["status"], status["health"]["status"]))
            time.sleep(0.2)
    after = service.application()["status"]
    assert seen == {("Synced", "Healthy")}
    assert after["reconciledAt"] > before["reconciledAt"]
    assert len(after["history"]) == len(before["history"])
    assert after["operationState"]["startedAt"] == before["operationState"]["startedAt"]
    assert service.live()["metadata"]["generation"] == live["generation"]
    managers = [{**one, "time": ""} for one in live["managedFields"] if one["manager"].startswith("argocd")]
    assert [
        {**one, "time": ""}
        for one in service.live()["metadata"]["managedFields"]
        if one["manager"].startswith("argocd")
    ] == managers


def test_a_service_whose_folder_is_gone_is_gone(gitops: GitOps, service: Service) -> None:
    objects = objects_of(service.files)
    assert all(gitops.live(one) is not None for one in objects)
    service.remove()
    gitops.wait(
        lambda: gitops.application_of(service.name) is None,
        ARRIVES_WITHIN,
        "the Application is gone",
        f"{service.name}.{ENVIRONMENT}",
    )
    assert [one["kind"] for one in objects if gitops.live(one) is not None] == []
    gitops.wait(lambda: not _made_of(gitops, service), ARRIVES_WITHIN, "what KServe made of it is gone")


def _made_of(gitops: GitOps, service: Service) -> list[str]:
    namespace = service.wanted["metadata"]["namespace"]
    return [
        f"{kind} {found['metadata']['name']}"
        for version, kind in (("apps/v1", "Deployment"), ("v1", "Service"))
        for found in gitops.cluster.list(version, kind, namespace)
        if found["metadata"]["name"].startswith(service.name)
    ]


def test_a_namespace_and_a_volume_are_pruned_only_when_somebody_confirms_it(gitops: GitOps) -> None:
    name = f"test-{secrets.token_hex(3)}"
    path = f"platform/tenancy/{TEAM}/{name}.yaml"
    wanted = [_confirmed(kind, name) for kind in ("Namespace", "PersistentVolumeClaim")]
    application = "platform-tenancy"
    gitops.merge({path: "---\n".join(json.dumps(one, indent=2) + "\n" for one in wanted)}, "Add both")
    gitops.wait(lambda: all(map(gitops.live, wanted)), ARRIVES_WITHIN, "both are there", application)
    removed = gitops.merge({path: None}, "Remove both")

    def waits() -> bool:
        status = (gitops.application(application) or {}).get("status", {})
        state = status.get("operationState", {})
        revision = state.get("operation", {}).get("sync", {}).get("revision", "")
        return gitops.holds(revision, removed.commit) and "confirmation" in state.get("message", "")

    gitops.wait(waits, ARRIVES_WITHIN, "the Application asks for a confirmation", application)
    assert not any(map(is_ending, map(gitops.live, wanted)))
    approved = {"argocd.argoproj.io/deletion-approved": datetime.now(UTC).isoformat()}
    gitops.cluster.merge(
        Identity(APPLICATIONS, "Application", NAMESPACE, application), {"metadata": {"annotations": approved}}
    )
    gitops.wait(lambda: all(map(is_ending, map(gitops.live, wanted))), ARRIVES_WITHIN, "both are pruned", application)


def is_ending(found: Object | None) -> bool:
    return found is None or "deletionTimestamp" in found["metadata"]


def _confirmed(kind: str, name: str) -> Object:
    annotations = {"argocd.argoproj.io/sync-options": "Prune=confirm,Delete=confirm"}
    metadata: Object = {"name": name, "annotations": annotations}
    if kind == "Namespace":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {**metadata, "namespace": TEAM},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
