"""`neuroscale status` on the whole platform: Argo CD, KServe and Kubernetes say what they really say."""

from __future__ import annotations

import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cluster_lab import run
from command_line import Said
from gitops_lab import ARRIVES_WITHIN, ENVIRONMENT, GitOps, service_files
from platform_lab import Platform

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

NAMESPACE = "team-alpha"
GRACE = "terminationGracePeriodSeconds: "


class Here:
    """A clone of the platform's repository, whose owner asks for the status."""

    def __init__(self, gitops: GitOps, root: Path) -> None:
        self.gitops = gitops
        self.root = root
        self.git("clone", "--quiet", gitops.repository.clone_url, str(root), within=root.parent)

    def git(self, *arguments: str, within: Path | None = None) -> None:
        subprocess.run(["git", *arguments], check=True, cwd=within or self.root, capture_output=True, timeout=60)

    def status(self, *arguments: object) -> Said:
        state = self.gitops.local.state.folder
        return run("status", *arguments, "--state", state, "--repository", self.root)

    def service(self, name: str) -> dict[str, Any]:
        """The verdict in detail."""
        found: dict[str, Any] = self.status(f"{ENVIRONMENT}/{name}", "--json").json["services"][0]
        return found

    def has_last_change(self, name: str) -> bool:
        """Whether Argo CD's commit has it, by all that is merged now: other tests merge as well."""
        self.git("pull", "--quiet")
        return self.service(name)["application"]["contains_last_change"] is True


def grace_of_answering_pods(gitops: GitOps, service: str) -> list[int]:
    """What the pods that are ready and not ending were made with."""
    label = f"serving.kserve.io/inferenceservice={service}"
    return [
        pod["spec"]["terminationGracePeriodSeconds"]
        for pod in gitops.cluster.list("v1", "Pod", NAMESPACE, label)
        if "deletionTimestamp" not in pod["metadata"]
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]


def test_ready_is_told_when_the_merged_change_answers_and_not_before(
    gitops: GitOps, platform: Platform, tmp_path: Path
) -> None:
    here = Here(gitops, tmp_path / "clone")
    name = f"status-{secrets.token_hex(3)}"
    files = service_files(name)
    path = f"manifests/{ENVIRONMENT}/{name}/inferenceservice.yaml"
    gitops.merge(files, f"Add {name}")
    here.git("pull", "--quiet")
    try:
        assert here.service(name)["verdict"] != "ready"
        said = here.status(f"{ENVIRONMENT}/{name}", "--wait", ARRIVES_WITHIN)
        assert said.status == 0, said.out + said.err + platform.logs(5)
        assert f"https://{name}-" in said.out
        assert "simulated: no server answers at its URL" in said.out
        assert here.service(name)["curl"] == ""
        gitops.wait(lambda: here.has_last_change(name), ARRIVES_WITHIN, "Argo CD has the commit with the change")

        (line,) = (one for one in files[path].splitlines() if one.strip().startswith(GRACE))
        seconds = int(line.split(":")[1]) + 1
        gitops.merge({path: files[path].replace(line.strip(), f"{GRACE}{seconds}")}, f"Change {name}")
        here.git("pull", "--quiet")
        ends = time.monotonic() + ARRIVES_WITHIN
        told = []
        while (verdict := here.service(name)["verdict"]) != "ready":
            told.append(verdict)
            assert time.monotonic() < ends, here.status(name).out
        assert told, "the change was there before anybody could ask"
        assert set(told) <= {"not synced", "out of date", "starting"}, told
        assert grace_of_answering_pods(gitops, name) == [seconds]
    finally:
        gitops.merge(dict.fromkeys(files), f"Remove {name}")
    here.git("pull", "--quiet")
    gitops.wait(lambda: gitops.application_of(name) is None, ARRIVES_WITHIN, f"{name} is gone", f"{name}.{ENVIRONMENT}")
    said = here.status(name)
    assert said.status == 1
    assert "missing" in said.out
