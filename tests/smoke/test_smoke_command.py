"""`neuroscale smoke` on a real API server: what it compares, and that what is not there is never green.

No model server stands behind it: what a server does wrong is in test_smoke_breakages.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import cluster_lab
from api_server import ApiServer
from cluster_lab import SERVICE, Lab, run
from command_line import Said
from neuroscale.core.errors import InputError
from neuroscale.kube.client import Identity
from neuroscale.smoke.expected_services import ended_since, ends_of, load_target, standing, version_that_answers
from printed_lines import check_lines
from repositories import Repository
from roots import ROOT


@pytest.fixture
def lab(api_server: ApiServer, tmp_path: Path) -> Iterator[Lab]:
    with cluster_lab.lab(api_server, tmp_path) as found:
        for part in ("policies", "smoke-tests"):
            shutil.copytree(ROOT / part, found.root / part, ignore=shutil.ignore_patterns("__pycache__"))
        found.commit("With policies and smoke tests")
        cluster_lab.install_kinds(api_server)
        yield found


def smoke(lab: Lab, *options: object) -> tuple[Said, dict[str, Any]]:
    """What it said, and the report that it wrote."""
    report = lab.root.parent / "smoke.json"
    given = ("--environment", "dev", "--repository", lab.root, "--kubeconfig", lab.server.kubeconfig)
    said = run("smoke", *given, "--json", report, *options)
    return said, json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {one["check"]: one["outcome"] for one in report["checks"]}


def test_an_environment_without_services_is_not_green(lab: Lab) -> None:
    junit, markdown = lab.root.parent / "smoke.xml", lab.root.parent / "smoke.md"
    said, report = smoke(lab, "--junit", junit, "--markdown", markdown)
    assert said.status == 3
    assert report["passed"] is False
    assert report["checks"] == []
    assert "There is no service in manifests/dev" in report["problems"][0]
    assert "cannot be trusted" in said.out
    assert "<error" in junit.read_text(encoding="utf-8")
    assert "cannot be trusted" in markdown.read_text(encoding="utf-8")


def test_a_namespace_without_its_service_is_not_green(lab: Lab) -> None:
    commit = lab.new_service()
    said, report = smoke(lab)
    assert said.status in (1, 3)
    assert report["revision"] == commit
    found = outcomes(report)
    assert {name: found[name] for name in ("application", "ready", "reachable", "live-pods", "cost-labels")} == {
        "application": "failed",
        "ready": "failed",
        "reachable": "failed",
        "live-pods": "skipped",
        "cost-labels": "skipped",
    }
    assert "passed" not in {outcome for name, outcome in found.items() if name not in ("api-server", "identity")}
    printed = [line for one in report["checks"] for line in check_lines(one["next"])]
    assert {line.split()[0].rpartition("/")[2] for line in printed} == {"kubectl", "neuroscale"}


def test_a_run_whose_time_is_over_leaves_its_report(lab: Lab) -> None:
    commit = lab.new_service()
    said, report = smoke(lab, "--within", "1")
    assert said.status == 3
    assert (report["revision"], report["passed"]) == (commit, False)
    assert "the run took longer than 1 s and was stopped" in report["problems"]


def test_what_is_deployed_is_compared_with_git(lab: Lab) -> None:
    """Argo CD's word, the live object, its pods and its labels, each by a check of its own."""
    commit = lab.new_service()
    lab.serve()
    lab.application(commit)
    _, report = smoke(lab)
    found = outcomes(report)
    assert [found[name] for name in ("application", "ready", "live-object")] == ["passed"] * 3
    # The pods of this laboratory carry no labels but KServe's.
    told = {one["check"]: one["message"] for one in report["checks"]}
    assert (found["cost-labels"], found["live-pods"]) == ("failed", "failed")
    assert "cost-center is None" in told["cost-labels"]
    assert "label cost-center is None" in told["live-pods"]
    assert "argument" not in told["live-pods"]
    assert "limits" not in told["live-pods"]

    # A pod of the version before, as the change of the resources sees it.
    manifest = lab.root / "manifests/dev" / SERVICE / "inferenceservice.yaml"
    text = manifest.read_text()
    asked = yaml.safe_load(text)["spec"]["predictor"]["model"]["resources"]["limits"]
    assert asked["nvidia.com/gpu"] == "1"
    manifest.write_text(text.replace('nvidia.com/gpu: "1"', 'nvidia.com/gpu: "2"').replace(str(asked["memory"]), "7Gi"))
    lab.commit("Ask for more")
    _, report = smoke(lab)
    (told_of_pods,) = (one["message"] for one in report["checks"] if one["check"] == "live-pods")
    assert "requests nvidia.com/gpu is 1, not 2" in told_of_pods
    assert "limits nvidia.com/gpu is 1, not 2" in told_of_pods
    assert f"limits memory is {asked['memory']}, not 7Gi" in told_of_pods
    lab.git("reset", "--quiet", "--hard", commit)

    lab.cluster.merge(
        Identity("serving.kserve.io/v1beta1", "InferenceService", lab.namespace, SERVICE),
        {"metadata": {"labels": {"cost-center": "somebody-else"}}},
    )
    lab.application(commit, sync="OutOfSync")
    _, report = smoke(lab)
    told = {one["check"]: one["message"] for one in report["checks"] if one["outcome"] == "failed"}
    assert "metadata.labels.cost-center" in told["live-object"]
    assert "OutOfSync" in told["application"]
    assert "ready" not in told


def test_the_version_that_answers_is_that_of_the_ready_pods(lab: Lab) -> None:
    commit = lab.new_service()
    lab.serve()
    lab.application(commit)
    target = load_target(lab.root, "dev", commit)
    (service,) = target.services
    name = f"{SERVICE}-predictor"
    (new,) = lab.cluster.list("v1", "Pod", lab.namespace)
    assert version_that_answers(lab.cluster, target, service, "") == "new"

    (deployment,) = lab.cluster.list("apps/v1", "Deployment", lab.namespace)
    template, labels = deployment["spec"]["template"], deployment["metadata"]["labels"]
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", **deployment}
    old = lab._owned("ReplicaSet", f"{name}-0", labels, owner, spec, {"deployment.kubernetes.io/revision": "0"})
    lab._pod(f"{name}-0-a", template, old, ready=True)
    assert version_that_answers(lab.cluster, target, service, "") == "either"
    assert version_that_answers(lab.cluster, target, service, f"{name}-0-a") == "old"
    assert version_that_answers(lab.cluster, target, service, new["metadata"]["name"]) == "new"
    assert version_that_answers(lab.cluster, target, service, "another") == ""


def test_a_newer_change_of_the_service_is_not_held_against_an_earlier_one(lab: Lab) -> None:
    """Else the wrong pull request would be reverted."""
    earlier = lab.new_service()
    manifest = lab.root / "manifests/dev" / SERVICE / "inferenceservice.yaml"
    manifest.write_text(manifest.read_text() + "# Changed again.\n")
    lab.serve()
    lab.application(lab.commit("Change it again"))
    said, report = smoke(lab, "--revision", earlier)
    assert said.status == 3
    assert "changed again" in report["problems"][0]
    (one,) = (one for one in report["checks"] if one["check"] == "application")
    assert (one["outcome"], "changed again" in one["message"]) == ("error", True)


def test_a_user_without_rights_gets_no_green(lab: Lab) -> None:
    lab.new_service()
    lab.serve()
    rules = [cluster_lab.allow("serving.kserve.io", "inferenceservices")]
    kubeconfig = lab.user("looks", rules, lab.namespace)
    said, report = smoke(lab, "--kubeconfig", kubeconfig)
    found = outcomes(report)
    assert said.status == 3 or "failed" in found.values()
    assert found["admission"] == "error"
    assert found["application"] == "error"
    assert found["reachable"] == "error"
    assert report["passed"] is False


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--environment", "nowhere"), "'nowhere' is not an environment"),
        (("--service", "nothing"), "does not hold the service 'nothing'"),
        (("--revision", "no-such-commit"), "is not a commit"),
        (("--base-url", "http://models.example.com"), "is not encrypted"),
        (("--state", "/nowhere"), "names two clusters"),
    ],
)
def test_a_question_that_cannot_be_asked_is_an_error(lab: Lab, options: tuple[str, ...], told: str) -> None:
    lab.new_service()
    stale = lab.root.parent / "smoke.json"
    stale.write_text('{"passed": true}', encoding="utf-8")
    said, report = smoke(lab, *options)
    assert said.status == 2
    assert told in said.err
    assert report == {}, "an older run's report was left there"


def test_an_address_is_of_one_service(lab: Lab) -> None:
    lab.new_service()
    lab.new_service(service="another")
    said, _ = smoke(lab, "--base-url", "https://models.example.com")
    assert said.status == 2
    assert "--service" in said.err


def test_a_repository_of_the_tool_without_smoke_tests_is_not_green(lab: Lab) -> None:
    lab.new_service()
    shutil.rmtree(lab.root / "smoke-tests")
    (lab.root / "src/neuroscale").mkdir(parents=True)
    said, report = smoke(lab)
    assert said.status == 3
    assert "no smoke tests" in report["problems"][0]


def test_an_organisations_repository_is_tested_by_the_checks_that_the_tool_brings(lab: Lab) -> None:
    lab.new_service()
    _, own = smoke(lab)
    shutil.rmtree(lab.root / "smoke-tests")
    _, brought = smoke(lab)
    assert [check["check"] for check in brought["checks"]] == [check["check"] for check in own["checks"]] != []


# ------------------------------------------------------------ facts


def test_what_git_holds_of_a_service(lab: Lab) -> None:
    commit = lab.new_service()
    (found,) = load_target(lab.root, "dev", commit).services
    assert (found.name, found.namespace) == (SERVICE, lab.namespace)
    assert f"--served-model-name={found.model}" in found.arguments
    assert found.plan.max_model_len >= found.request.longest_prompt_tokens + found.request.longest_answer_tokens
    assert found.labels["cost-center"]


def test_a_manifest_of_another_service_is_refused(lab: Lab) -> None:
    lab.new_service()
    manifest = lab.root / "manifests/dev" / SERVICE / "inferenceservice.yaml"
    manifest.write_text(manifest.read_text().replace(f"name: {SERVICE}", "name: another"))
    with pytest.raises(InputError, match="is not the InferenceService"):
        load_target(lab.root, "dev", lab.commit("Rename it"))


def test_how_the_deployed_commit_stands_to_the_merged_one(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    folder = "manifests/dev/chat"
    before = repository.commit({"README.md": "one"})
    first = repository.commit({f"{folder}/a.yaml": "1"})
    other = repository.commit({"manifests/dev/search/a.yaml": "1"})
    second = repository.commit({f"{folder}/a.yaml": "2"})
    back = repository.commit({f"{folder}/a.yaml": "1"})
    assert standing(tmp_path, folder, first, first) == "the same"
    assert standing(tmp_path, folder, first, other) == "equal"
    assert standing(tmp_path, folder, other, first) == "equal"
    assert standing(tmp_path, folder, first, back) == "equal"
    assert standing(tmp_path, folder, first, second) == "ahead"
    assert standing(tmp_path, folder, second, first) == "behind"
    assert standing(tmp_path, folder, first, before) == "behind"
    assert standing(tmp_path, folder, first, "0" * 40) == "unknown"
    assert standing(tmp_path, folder, first, "") == "unknown"


def test_a_commit_that_others_merged_while_tests_run_is_fetched(tmp_path: Path) -> None:
    upstream = Repository(tmp_path / "upstream")
    folder = "manifests/dev/chat"
    merged = upstream.commit({f"{folder}/a.yaml": "1"})
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(tmp_path / "upstream"), str(clone)], check=True)
    other = upstream.commit({"manifests/dev/search/a.yaml": "1"})
    assert standing(clone, folder, merged, other) == "equal"
    assert standing(clone, folder, merged, upstream.commit({f"{folder}/a.yaml": "2"})) == "ahead"


def test_a_commit_is_fetched_from_where_argo_cd_reads_it(tmp_path: Path) -> None:
    """The origin of a clone may be another repository, as where a local platform has a forge of its own."""
    upstream = Repository(tmp_path / "upstream")
    folder = "manifests/dev/chat"
    merged = upstream.commit({f"{folder}/a.yaml": "1"})
    for name in ("origin", "clone"):
        subprocess.run(["git", "clone", "--quiet", str(tmp_path / "upstream"), str(tmp_path / name)], check=True)
    clone = tmp_path / "clone"
    subprocess.run(["git", "-C", clone, "remote", "set-url", "origin", tmp_path / "origin"], check=True)
    other = upstream.commit({"manifests/dev/search/a.yaml": "1"})
    assert standing(clone, folder, merged, other) == "unknown"
    assert standing(clone, folder, merged, other, ("origin", str(tmp_path / "upstream"))) == "equal"


_LAST = {"terminated": {"finishedAt": "2026-11-28T12:00:07Z", "reason": "OOMKilled", "exitCode": 137}}
_HOW = "the server of a ended at 2026-11-28T12:00:07Z (OOMKilled, exit code 137)"


def _pod(state: str, restarts: int, container: str = "kserve-container", **metadata: str) -> dict[str, Any]:
    """`state`: of the server now. Its last end is always the same: a node's clock decides nothing."""
    now = _LAST if state == "terminated" else {state: {}}
    status = {"name": container, "restartCount": restarts, "state": now, "lastState": _LAST if restarts else {}}
    return {"metadata": {"name": "a", "uid": "1", **metadata}, "status": {"containerStatuses": [status]}}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (_pod("running", 1), _pod("running", 1), ""),
        (_pod("running", 0), _pod("running", 0), ""),
        (_pod("terminated", 1), _pod("running", 2), ""),  # it had ended before
        (_pod("waiting", 1), _pod("running", 2), ""),
        (_pod("running", 0, "proxy"), _pod("running", 1, "proxy"), ""),
        (_pod("running", 0), _pod("terminated", 0, deletionTimestamp="2026-11-28T12:00:09Z"), ""),  # a roll-out
        (_pod("running", 1), _pod("running", 2), _HOW),
        (_pod("running", 1), _pod("waiting", 1), _HOW),
        (_pod("running", 0), _pod("terminated", 0), _HOW),
        (_pod("running", 0), _pod("running", 1, uid="2"), _HOW),  # of a new pod
        (
            _pod("running", 0),
            {"metadata": {"name": "a", "uid": "1"}, "status": {"phase": "Failed", "reason": "Evicted"}},
            "the server of a ended (Evicted)",
        ),
    ],
)
def test_a_server_that_ended_while_it_was_tested_is_named(
    before: dict[str, Any], after: dict[str, Any], told: str
) -> None:
    assert ended_since([after], ends_of([before])) == told
