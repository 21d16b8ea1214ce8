"""`neuroscale status` against a real API server: what is read, by whom, and what becomes of what cannot be."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api_server import ApiServer
from cluster_lab import APPLICATION, SERVICE, Failing, Lab, allow, install_kinds, lab, run
from command_line import Said
from neuroscale.actions.chosen_cluster import Where, environments_in, unfinished_in
from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.cluster.service_status_reader import Question, Reader
from neuroscale.cluster.services_in_git import Clone
from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object, RefusedError
from neuroscale.local.argocd_applications import _adopted
from neuroscale.rendering.platform import argocd
from neuroscale.repo.layout import SETTINGS, ServicePath
from neuroscale.repo.snapshot import FolderSnapshot
from repositories import Repository
from waiting import wait_for

pytestmark = pytest.mark.tools

TEAM = [
    allow("serving.kserve.io", "inferenceservices", "servingruntimes"),
    allow("apps", "deployments", "replicasets"),
    allow("", "pods", "events"),
]


@pytest.fixture(scope="module")
def kinds(api_server: ApiServer) -> ApiServer:
    install_kinds(api_server)
    return api_server


@pytest.fixture
def here(kinds: ApiServer, tmp_path: Path) -> Iterator[Lab]:
    with lab(kinds, tmp_path) as found:
        yield found


def status(here: Lab, *more: object, kubeconfig: Path | None = None) -> Said:
    path = kubeconfig or here.server.kubeconfig
    return run("status", *more, "--kubeconfig", path, "--repository", here.root)


def test_a_service_that_answers_is_ready_and_its_addresses_are_told(here: Lab) -> None:
    here.application(here.new_service())
    here.serve()
    said = status(here)
    assert said.status == 0, said.out
    assert f"dev/{SERVICE}  ready" in said.out
    url = f"https://{SERVICE}-{here.namespace}.models.example.com"
    assert url in said.out
    found = status(here, SERVICE, "--json").json
    assert found["ready"] is True
    (service,) = found["services"]
    assert service["verdict"] == "ready"
    assert service["address"] == f"http://{SERVICE}-predictor.{here.namespace}.svc.cluster.local"
    assert service["application"]["contains_last_change"] is True
    assert service["url"] == url
    for named in (f"dev/{SERVICE}", f"manifests/dev/{SERVICE}"):
        said = status(here, named)
        assert said.status == 0
        assert service["curl"] in said.out.splitlines(), "a line of its own, to be copied"
    assert status(here, "--environment", "prod").status == 1, "none is asked for there"


def test_the_line_to_be_pasted_reads_the_key_from_the_cluster_that_was_asked(here: Lab) -> None:
    here.application(here.new_service())
    here.serve()
    (service,) = status(here, SERVICE, "--json").json["services"]
    words = shlex.split(service["curl"])
    assert f"{service['url']}/v1/chat/completions" in words
    assert json.loads(words[words.index("--data") + 1])["model"] == service["model"] != ""
    key = words[words.index("key") - 1 : words.index("}")]
    assert key[1:4] == ["key", SERVICE, "--print"]
    assert set(key[4:-1]) >= {"--environment=dev", f"--kubeconfig={here.server.kubeconfig}"}
    assert f"--repository={here.root}" in service["curl"]
    # In a cluster that DNS knows, the way there is nobody's business.
    assert "--connect-to" not in words


def test_what_does_not_answer_has_no_line_to_be_pasted(here: Lab) -> None:
    here.application(here.new_service())
    here.serve(ready=False)
    assert [one["curl"] for one in status(here, "--json").json["services"]] == [""]


def test_an_empty_cluster_fails_with_words(here: Lab) -> None:
    said = status(here)
    assert said.status == 1
    assert "No service is in this cluster" in said.out
    assert status(here, "--json").json["ready"] is False


def test_a_load_shows_the_startup_budget_of_the_pod(here: Lab) -> None:
    here.application(here.new_service())
    here.serve(ready=False)
    said = status(here, SERVICE)
    assert said.status == 1
    assert f"dev/{SERVICE}  starting" in said.out
    assert " s used, " in said.out


def test_a_service_that_git_holds_and_the_cluster_lacks_is_missing(here: Lab) -> None:
    here.new_service()
    said = status(here, SERVICE)
    assert said.status == 1
    assert "missing" in said.out
    assert "Argo CD has no application for it" in said.out
    said = status(here, "support-chatt")
    assert said.status == 1
    assert f"Did you mean '{SERVICE}'?" in said.out


def test_a_merge_that_argo_cd_has_not_seen_is_not_synced(here: Lab) -> None:
    old = here.new_service()
    here.application(old)
    here.serve()
    (here.root / "manifests/dev" / SERVICE / "plan.yaml").write_text("changed: true\n")
    new = here.commit("Change the service")
    said = status(here, SERVICE)
    assert said.status == 1
    assert "not synced" in said.out
    assert f"Argo CD is at {old[:10]}, which lacks the service's last change" in said.out
    here.application(new)
    assert status(here, SERVICE).status == 0
    # A commit of something else does not make it old.
    (here.root / "notes.txt").write_text("Nothing of the service.\n")
    here.commit("Write a note")
    assert status(here, SERVICE).status == 0


def test_a_commit_that_this_clone_does_not_know_is_judged_by_content(here: Lab) -> None:
    here.new_service()
    here.application("f" * 40)
    here.serve()
    said = status(here, SERVICE)
    assert said.status == 0, said.out
    assert "the cluster's object is what this clone holds" in said.out
    path = here.root / "manifests/dev" / SERVICE / "inferenceservice.yaml"
    path.write_text(path.read_text().replace("periodSeconds: 10", "periodSeconds: 11", 1))
    here.commit("Change the service")
    said = status(here, SERVICE)
    assert said.status == 1
    assert "unknown" in said.out
    assert "git fetch" in said.out


def test_who_may_read_nothing_is_told_so_with_exit_status_2(here: Lab) -> None:
    here.application(here.new_service())
    here.serve()
    said = status(here, kubeconfig=here.user("nobody", []))
    assert said.status == 2
    assert "inferenceservices.serving.kserve.io is forbidden" in said.err
    assert "ready" not in said.out


def test_a_teams_member_sees_the_own_service_judged_by_this_clone(here: Lab) -> None:
    here.application(here.new_service())
    here.serve()
    member = here.user("member", TEAM, here.namespace)
    said = status(here, SERVICE, kubeconfig=member)
    assert said.status == 0, said.out
    assert "Argo CD cannot be asked" in said.out
    said = status(here, kubeconfig=member)
    assert said.status == 1, "another team's services are hidden, so not all is known to be ready"
    assert f"Cannot be read: {here.other}" in said.out


def test_what_hides_in_a_namespace_is_unknown_and_not_missing(here: Lab) -> None:
    here.new_service()
    said = status(here, SERVICE, kubeconfig=here.user("member", TEAM, here.other))
    assert said.status == 1
    assert "unknown" in said.out or "Cannot be read" in said.out
    assert "missing" not in said.out


@pytest.mark.parametrize("hidden", ["pods", "deployments", "replicasets"])
def test_without_the_right_to_read_the_workload_nothing_is_ready(here: Lab, hidden: str) -> None:
    here.application(here.new_service())
    here.serve()
    rules = [
        {**rule, "resources": [name for name in rule["resources"] if name != hidden]}
        for rule in [*TEAM, allow("argoproj.io", "applications", "applicationsets")]
    ]
    said = status(here, SERVICE, kubeconfig=here.user(f"without-{hidden}", rules))
    assert said.status == 1
    assert "unknown" in said.out
    assert f"{hidden}" in said.out
    assert "forbidden" in said.out


@pytest.mark.parametrize(
    "error",
    [
        KubernetesError("the connection broke"),
        RefusedError("etcd leader changed", 500, "InternalError"),
        RefusedError("the list is too old", 410, "Expired"),
        RefusedError("forbidden", 403, "Forbidden"),
        RefusedError("no such kind", 404, "NotFound"),
    ],
    ids=lambda error: str(error),
)
def test_an_error_in_the_middle_never_makes_a_service_ready_that_is_not(here: Lab, error: Exception) -> None:
    """Every request in turn fails while a service loads, and while all that is known of it would be fine."""
    here.application(here.new_service())
    here.serve(ready=False)
    question = Question((here.namespace, here.other))
    whole = Failing(here.cluster, 0, error)
    clone = Clone(here.root, "main")
    try:
        assert Reader(whole, clone).ask(question).services[0].verdict == "starting"
        for at in range(1, whole.count + 1):
            try:
                answer = Reader(Failing(here.cluster, at, error), clone).ask(question)
            except KubernetesError:
                continue
            assert not answer.ready, f"request {at}"
            assert all(one.verdict != "ready" for one in answer.services)
    finally:
        clone.close()


def test_waiting_ends_when_the_service_becomes_ready(here: Lab) -> None:
    here.application(here.new_service())
    here.serve(ready=False)

    def become_ready() -> None:
        time.sleep(1.5)
        here.serve()

    thread = threading.Thread(target=become_ready)
    thread.start()
    said = status(here, SERVICE, "--wait", "60")
    thread.join()
    assert said.status == 0, said.out
    assert "starting" in said.err
    assert f"dev/{SERVICE}: ready" in said.err


def test_waiting_ends_with_its_time_and_the_last_verdict(here: Lab) -> None:
    here.application(here.new_service())
    here.serve(ready=False)
    began = time.monotonic()
    said = status(here, SERVICE, "--wait", "2")
    assert said.status == 1
    assert "starting" in said.out
    assert time.monotonic() - began < 30


def test_waiting_ends_when_the_service_has_failed_and_the_log_names_the_cause(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.application(here.new_service())
    here.serve(ready=False)
    pod = Identity("v1", "Pod", here.namespace, f"{SERVICE}-predictor-1-a")
    broken = {
        "name": "kserve-container",
        "ready": False,
        "restartCount": 3,
        "image": "vllm",
        "imageID": "",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "unrecognized arguments: --tasks"}},
    }
    here.cluster.merge(pod, {"status": {"containerStatuses": [broken]}}, "status")
    said = status(here, SERVICE, "--wait", "600")
    assert said.status == 1
    assert "exit code 2: unrecognized arguments: --tasks" in said.out
    monkeypatch.setattr(Cluster, "log", lambda *_: "vllm: error: unrecognized arguments: --tasks")
    found = status(here, SERVICE, "--json").json["services"][0]
    assert "(unknown_flag): vllm: error: unrecognized arguments: --tasks" in found["reason"]
    assert f"explain {SERVICE}" in found["next"]
    said = run("explain", SERVICE, "--kubeconfig", here.server.kubeconfig, "--repository", here.root, "--json")
    assert said.status == 1
    assert said.json["cause"] == "unknown_flag"


def test_a_service_that_is_removed_from_the_origin_is_not_waited_for(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.application(here.new_service())
    here.serve()
    folder = here.root / "manifests/dev" / SERVICE
    shutil.copytree(folder, folder.with_name("removed"))
    here.commit("Add one that nothing deploys")
    upstream = tmp_path / "upstream"
    subprocess.run(["git", "clone", "--quiet", here.root, upstream], check=True)
    here.git("remote", "add", "origin", str(upstream))
    here.git("fetch", "--quiet", "origin")
    assert "dev/removed: missing" in status(here, "--wait", "1").err

    another = replace(here, root=upstream)

    def remove() -> None:
        time.sleep(1.5)
        another.git("rm", "--quiet", "-r", "manifests/dev/removed")
        another.commit("Remove it")

    monkeypatch.setattr("neuroscale.cli.status._FETCH_EVERY", 0.0)
    thread = threading.Thread(target=remove)
    thread.start()
    said = status(here, "--wait", "600")
    thread.join()
    assert said.status == 0, said.err
    assert "dev/removed: it was removed meanwhile" in said.err


def test_waiting_after_a_merge_waits_for_what_was_merged_and_not_for_what_the_clone_was_last_fetched_with(
    here: Lab, tmp_path: Path
) -> None:
    here.application(here.new_service())
    here.serve()
    upstream = tmp_path / "upstream"
    subprocess.run(["git", "clone", "--quiet", here.root, upstream], check=True)
    here.git("remote", "add", "origin", str(upstream))
    here.git("fetch", "--quiet", "origin")
    (upstream / "manifests/dev" / SERVICE / "plan.yaml").write_text("changed: true\n")
    replace(here, root=upstream).commit("Change it")
    assert status(here, SERVICE).status == 0, "without --wait, the clone counts as it is"
    said = status(here, SERVICE, "--wait", "1")
    assert said.status == 1
    assert "which lacks the service's last change" in said.out


def test_a_service_whose_removal_was_merged_is_told_as_removed_on_purpose(here: Lab) -> None:
    here.application(here.new_service())
    here.serve()
    kind = ("serving.kserve.io/v1beta1", "InferenceService")
    identity = Identity(*kind, here.namespace, SERVICE)
    shutil.rmtree(here.root / "manifests/dev" / SERVICE)
    here.commit("Retire the service")
    said = status(here, SERVICE)
    assert (said.status, "removing" in said.out) == (1, True)
    assert "its folder is gone from Git, and Argo CD has not removed it from the cluster yet" in said.out
    assert "not known to this clone" not in said.out
    here.cluster.merge(identity, {"metadata": {"finalizers": ["example.com/held"]}})
    here.cluster.delete(identity)
    try:
        began = time.monotonic()
        said = status(here, "--wait", "60")
        assert time.monotonic() - began < 30
        assert (
            "it is being removed, because its folder is gone from Git; its pods end. Wait until it is gone" in said.out
        )
        assert "who deleted it" not in said.out
    finally:
        here.cluster.merge(identity, {"metadata": {"finalizers": None}})
    wait_for(lambda: here.cluster.list(*kind, here.namespace) == [], 30, "it is gone")
    here.cluster.delete(Identity("argoproj.io/v1alpha1", "Application", "argocd", APPLICATION))
    said = status(here, SERVICE)
    assert "missing      it was removed from Git, and the cluster does not have it any more." in said.out


def test_a_pod_waits_for_an_accelerator_as_long_as_the_settings_say_or_a_node_is_being_made(here: Lab) -> None:
    settings = here.root / "platform/settings.yaml"
    settings.write_text(settings.read_text().replace("  dev:\n", "  dev:\n    node_wait_minutes: 5\n", 1))
    here.application(here.new_service())
    here.serve(ready=False)
    (pod,) = here.cluster.list("v1", "Pod", here.namespace)
    here.cluster.delete(Identity.of(pod))
    name, now = f"{SERVICE}-predictor-1-b", datetime.now(UTC)
    del pod["spec"]["nodeName"], pod["status"]
    kept = {key: pod["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
    pod["metadata"] = {**kept, "name": name}
    since = (now - timedelta(minutes=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": told}
    conditions = [{**refused, "lastTransitionTime": since}]
    made = here.put(pod, {"phase": "Pending", "conditions": conditions})
    said = status(here, SERVICE)
    assert f"dev/{SERVICE}  failed" in said.out
    assert (
        f"it has waited for an accelerator for more than 5 min (node_wait_minutes in {SETTINGS}): pod {name}"
        in said.out
    )
    assert "3 Insufficient nvidia.com/gpu" in said.out
    about = {key: made["metadata"][key] for key in ("name", "namespace", "uid")}
    here.put(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.1", "namespace": here.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
            "type": "Normal",
            "reason": "TriggeredScaleUp",
            "message": "pod triggered scale-up: [{gpu-pool 0->1 (max: 4)}]",
            "source": {"component": "cluster-autoscaler"},
            "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )
    said = status(here, SERVICE)
    assert f"dev/{SERVICE}  starting" in said.out
    assert "it waits for an accelerator" in said.out
    assert "pod triggered scale-up: [{gpu-pool 0->1 (max: 4)}]" in said.out


def test_a_cluster_that_does_not_answer_is_exit_status_2(here: Lab, tmp_path: Path) -> None:
    here.new_service()
    closed = tmp_path / "closed.kubeconfig"
    closed.write_text(here.server.kubeconfig.read_text().replace(here.server.plane.url, "https://127.0.0.1:9"))
    said = status(here, kubeconfig=closed)
    assert said.status == 2
    assert "does not answer" in said.err


def test_the_question_must_name_one_cluster_and_a_known_environment(here: Lab, tmp_path: Path) -> None:
    said = status(here, "--state", tmp_path)
    assert (said.status, "names two clusters" in said.err) == (2, True)
    said = run("status", "--state", tmp_path, "--repository", here.root)
    assert (said.status, "does not hold a cluster" in said.err) == (2, True)
    said = status(here, "--environment", "production")
    assert (said.status, "'production' is not an environment" in said.err) == (2, True)
    said = status(here, f"dev/{SERVICE}", "--environment", "prod")
    assert said.status == 2


def test_what_argo_cd_says_of_a_failed_synchronisation_is_told(here: Lab) -> None:
    here.application(
        here.new_service(), sync="OutOfSync", conditions=[{"type": "SyncError", "message": "one is refused"}]
    )
    here.serve()
    said = status(here, SERVICE)
    assert said.status == 1
    assert "one is refused" in said.out


def test_the_clone_names_the_remote_that_argo_cd_reads(tmp_path: Path) -> None:
    made = Repository(tmp_path / "clone")
    made.commit({"README.md": "hi"})
    made.run("remote", "add", "origin", "https://github.com/example/neuroscale")
    clone = Clone(made.root, "main")
    try:
        assert clone.fetch_line == "git fetch origin"
        # No program of git's, and no folder of this machine.
        for source in ("ext::sh -c true", "/srv/git/platform", "--upload-pack=true"):
            clone.follow(source)
            assert clone.sources == ("origin",)
        clone.follow("http://127.0.0.1:3000/platform/neuroscale.git")
        assert clone.fetch_line == "git fetch http://127.0.0.1:3000/platform/neuroscale.git main"
        made.run("remote", "add", "platform", "http://dev@127.0.0.1:3000/platform/neuroscale")
        assert clone.fetch_line == "git fetch platform"
        assert clone.sources == ("platform", "origin", "http://127.0.0.1:3000/platform/neuroscale.git")
    finally:
        clone.close()
        made.git.close()


def test_only_events_of_the_objects_that_are_there_now_are_told(here: Lab) -> None:
    here.application(here.new_service())
    here.serve(ready=False)
    (pod,) = here.cluster.list("v1", "Pod", here.namespace)

    def event(name: str, uid: str, reason: str) -> Object:
        told = {"apiVersion": "v1", "kind": "Pod", "namespace": here.namespace, "name": name, "uid": uid}
        seen = (datetime.now(UTC) - timedelta(minutes=5, seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{reason.lower()}", "namespace": here.namespace},
            "involvedObject": told,
            "type": "Warning",
            "reason": reason,
            "message": "it failed",
            "lastTimestamp": seen,
        }

    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    for made in (
        event(name, uid, "Unhealthy"),
        event(name, "of-an-earlier-pod", "Evicted"),
        event("gone", "g", "Lost"),
    ):
        here.put(made)
    (service,) = status(here, SERVICE, "--json").json["services"]
    assert service["events"] == [f"5 min ago: {name}: Unhealthy: it failed"]


def test_the_commands_ask_the_cluster_that_was_asked(here: Lab) -> None:
    here.application(here.new_service(), sync="OutOfSync")
    here.serve()
    (service,) = status(here, SERVICE, "--json").json["services"]
    assert f"--kubeconfig={here.server.kubeconfig} -n argocd describe application" in service["next"]


def test_an_environment_that_no_application_set_deploys_to_the_cluster_is_named(here: Lab) -> None:
    here.new_service()
    where = Where(kubeconfig=here.server.kubeconfig)
    assert environments_in(where, here.root, local=False) is None, "without a set, nothing is known"
    assert "nothing deploys" not in status(here, f"dev/{SERVICE}").out
    snapshot = FolderSnapshot(here.root)
    files = argocd.render(load_settings(snapshot), load_catalog(snapshot), (), "prod")
    for one in argocd.environment_objects({"services.yaml": files["services.yaml"]}):
        here.put(_adopted(one, "local"))  # as the local platform deploys an environment
    assert environments_in(where, here.root, local=False) == frozenset({"prod"})
    said = status(here, f"dev/{SERVICE}")
    assert said.status == 1
    assert "nothing deploys dev to this cluster; Argo CD deploys prod to it" in said.out


def test_the_cluster_says_whether_an_earlier_version_serves_for_one_that_does_not_run_yet(here: Lab) -> None:
    here.application(here.new_service())
    asks = unfinished_in(Where(kubeconfig=here.server.kubeconfig), here.root)
    path = ServicePath("dev", SERVICE)
    assert asks(path) is None, "the cluster does not have it"
    here.serve(ready=False)
    assert asks(path) is False, "nothing serves that could end"
    name = f"{SERVICE}-predictor"
    deployment = here.cluster.get("apps/v1", "Deployment", name, here.namespace)
    assert deployment is not None
    spec, labels = deployment["spec"], deployment["metadata"]["labels"]
    older = copy.deepcopy(spec["template"])
    older["spec"]["containers"][0]["args"] = ["--model=/mnt/models"]
    own = {"replicas": 1, "selector": spec["selector"], "template": older}
    revision = {"deployment.kubernetes.io/revision": "0"}
    replica_set = here._owned("ReplicaSet", f"{name}-0", labels, deployment, own, revision)
    here._pod(f"{name}-0-a", older, replica_set, ready=True)
    assert asks(path) is True
    here.application(here.git("rev-parse", "HEAD"), "OutOfSync")
    assert asks(path) is None, "Git's newest version has not come to the cluster"
