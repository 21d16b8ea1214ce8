"""The pull request as people meet it: a real forge, its runner, the repository's own workflow, and a protected main."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from forge_server import ForgeServer
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.interface import MergeRefusedError, PullRequest
from neuroscale.report.markdown import MARKER
from pull_request_lab import ANSWERS, Project, cloned, committed_repository
from waiting import wait_for
from workspace_watch import watched

pytestmark = [pytest.mark.tools, pytest.mark.slow]

FOLDER = "manifests/dev/support-chat"
MANIFEST = f"{FOLDER}/inferenceservice.yaml"


@pytest.fixture(scope="module")
def main_branch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository as it lies here, committed: what the forge's main begins with."""
    return committed_repository(tmp_path_factory.mktemp("main"))


@pytest.fixture
def project(forge_server: ForgeServer, main_branch: Path, tmp_path: Path) -> Iterator[Project]:
    found = cloned(forge_server, main_branch, tmp_path / "clone")
    yield found
    found.clone.git.close()


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def service(project: Project) -> dict[str, str]:
    """The files that a request for the service renders to."""
    command = [sys.executable, "-P", "-m", "neuroscale", "new", "--answers", str(ANSWERS)]
    subprocess.run(command, cwd=project.clone.root, capture_output=True, timeout=60, check=True)
    folder = project.clone.root / FOLDER
    return {f"{FOLDER}/{path.name}": path.read_text() for path in folder.iterdir()}


def bad_service(project: Project) -> dict[str, bytes | str | None]:
    files = service(project)
    return {**files, MANIFEST: edited(files[MANIFEST], "vllm-openai:v0.32.0", "vllm-openai:latest")}


def kept_files(project: Project) -> dict[str, bytes]:
    """The files of the one artifact that the repository's runs kept, by name."""
    slug = project.repository.slug
    _, listed = project.server.api("GET", f"/repos/{slug}/actions/artifacts")
    (artifact,) = listed["artifacts"]
    url = f"{project.server.url}/api/v1/repos/{slug}/actions/artifacts/{artifact['id']}/zip"
    headers = {"Authorization": f"Bearer {project.server.admin.secret}"}
    content = httpx.get(url, headers=headers, follow_redirects=True, timeout=60, trust_env=False).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {Path(name).name: archive.read(name) for name in archive.namelist()}


def test_a_request_is_judged_told_reviewed_and_merged(project: Project) -> None:
    main = project.main()
    with watched(project.server.local.state) as written:
        pull = project.request()
        assert pull.head_owner == "developer"
        assert project.status(pull) == "success"
    assert written.beside(project.files(main)) == set()
    assert {".state", ".venv"} <= written.allowed

    (comment,) = project.comments(pull)
    assert comment.startswith(MARKER)
    assert "✅ Passed: 1 service checked" in comment
    assert "988.13" in comment
    assert pull.head_sha[:12] in comment
    run = re.search(rf"\({re.escape(project.server.url)}/{project.repository.slug}/actions/runs/\d+\)", comment)
    assert run
    assert httpx.get(run[0].strip("()"), timeout=60, trust_env=False).status_code == 200

    files = kept_files(project)
    verdict = json.loads(files["verdict.json"])
    assert (verdict["exit_status"], verdict["head"]) == (0, pull.head_sha)
    assert ElementTree.fromstring(files["verdict.xml"]).tag == "testsuites"
    # The runner's jobs have no rights on the machine, and the API server runs all the same.
    assert {check["outcome"] for check in verdict["checks"]} == {"passed"}
    assert "server" in {check["name"] for check in verdict["checks"]}

    with pytest.raises(MergeRefusedError, match="approvals"):
        project.owner.merge(pull.number, pull.head_sha)
    project.owner.approve(pull.number, pull.head_sha)
    project.owner.merge(pull.number, pull.head_sha)
    assert project.owner.pull(pull.number).state == "merged"
    main = project.main()
    assert "support-chat" in project.clone.run("show", f"{main}:{MANIFEST}")

    # What is there already needs no pull request.
    command = [sys.executable, "-P", "-m", "neuroscale", "request", "--answers", str(ANSWERS)]
    command += ["--token-file", str(project.server.token_file("developer"))]
    done = subprocess.run(command, cwd=project.clone.root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "nothing to do" in done.stdout


def test_what_is_wrong_cannot_be_merged_until_it_is_repaired(project: Project) -> None:
    good = service(project)
    slug = project.repository.slug
    assert project.server.api("POST", f"/repos/{slug}/branches", body={"new_branch_name": "other"})[0] == 201
    pull = project.open("by-hand", bad_service(project))
    assert project.status(pull) == "failure"
    (comment,) = project.comments(pull)
    assert "❌ Refused" in comment
    assert "policy/no-mutable-image-tags" in comment

    # It is judged anew when it is pointed back at main. Against another branch nothing is judged, since what is green
    # there would be green against main.
    runs = f"/repos/{slug}/actions/tasks"
    before = project.server.api("GET", runs)[1]["total_count"]
    for base in ("other", "main"):
        assert project.server.api("PATCH", f"/repos/{slug}/pulls/{pull.number}", body={"base": base})[0] == 201
    wait_for(lambda: project.server.api("GET", runs)[1]["total_count"] > before, what="a run against main")
    assert project.status(pull) == "failure"
    assert project.server.api("GET", runs)[1]["total_count"] == before + 1
    assert "status checks" in project.refused(pull)

    # The same comment tells of the next commit.
    commit = project.clone.commit(dict(good))
    branches = Branches(project.clone.git, Access(project.repository.clone_url, project.server.developer))
    branches.push(project.developer.fork().ref, "by-hand", commit, pull.head_sha)
    repaired = project.developer.pull(pull.number)
    assert project.status(PullRequest(**{**vars(repaired), "head_sha": commit})) == "success"
    (comment,) = project.comments(pull)
    assert "✅ Passed" in comment
    assert commit[:12] in comment
    # The approval was for the commit before.
    with pytest.raises(MergeRefusedError, match="approvals"):
        project.owner.merge(pull.number, commit)


GATE_THAT_SAYS_YES = "import sys\nsys.exit(0)\n"
WORKFLOW_THAT_SAYS_YES = """\
name: gate
on: [pull_request, pull_request_target, push]
jobs:
  gate:
    name: gate
    runs-on: ubuntu-latest
    steps:
      - run: exit 0
"""


def sabotage_of_the_gate(project: Project) -> dict[str, bytes | str | None]:
    return {"src/neuroscale/__main__.py": GATE_THAT_SAYS_YES, "src/neuroscale/__init__.py": GATE_THAT_SAYS_YES}


def sabotage_of_the_workflow(project: Project) -> dict[str, bytes | str | None]:
    return {".github/workflows/gate.yaml": WORKFLOW_THAT_SAYS_YES}


def a_second_workflow(project: Project) -> dict[str, bytes | str | None]:
    return {".github/workflows/yes.yaml": WORKFLOW_THAT_SAYS_YES}


def a_workflow_in_the_forges_own_folder(project: Project) -> dict[str, bytes | str | None]:
    """Gitea reads this folder instead of the other one."""
    return {".gitea/workflows/gate.yaml": WORKFLOW_THAT_SAYS_YES}


def sabotage_of_the_actions(project: Project) -> dict[str, bytes | str | None]:
    action = "name: x\ndescription: x\nruns:\n  using: composite\n  steps:\n    - {shell: bash, run: exit 0}\n"
    return {".github/actions/setup/action.yaml": action, "scripts/setup.py": "raise SystemExit(0)\n"}


def sabotage_of_a_policy(project: Project) -> dict[str, bytes | str | None]:
    policy = "policies/no-mutable-image-tags/policy.yaml"
    return {policy: (project.clone.root / policy).read_text().replace("Deny", "Audit")}


def test_a_change_that_rewrites_its_judge_is_judged_by_mains_and_not_merged(project: Project) -> None:
    before = project.main()
    # Any one that had an effect would change the status or the comment, so those that do not touch what the others
    # do come as one change. A policy is judged by the same gate; the others are judged by that of main alone.
    changes = {
        "sabotage-of-the-gate": {
            **sabotage_of_the_gate(project),
            **sabotage_of_the_workflow(project),
            **a_second_workflow(project),
            **sabotage_of_the_actions(project),
        },
        "sabotage-of-a-policy": {**sabotage_of_a_policy(project), **a_workflow_in_the_forges_own_folder(project)},
    }
    bad = bad_service(project)
    pulls = {name: project.open(name, {**change, **bad}) for name, change in changes.items()}
    for name, pull in pulls.items():
        assert project.status(pull) == "failure", name
        (comment,) = project.comments(pull)
        assert "policy/no-mutable-image-tags" in comment, comment
        assert "status checks" in project.refused(pull), name
    assert project.main() == before


def test_a_change_of_the_judge_alone_needs_an_administrator(project: Project) -> None:
    """Whatever the gate says of it: the forge itself refuses what touches the gate's files."""
    pull = project.open("quiet-sabotage", {"src/neuroscale/gate/checks/drift.py": "def evaluate_drift(): ...\n"})
    state = project.status(pull)
    (comment,) = project.comments(pull)
    assert "alters the gate" in comment
    reason = project.refused(pull)
    assert ("protected files" if state == "success" else "status checks") in reason
