"""`neuroscale request` against a real forge: what it opens, what it leaves alone, and how it goes on after a fault."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fault_proxy import DropAfter, FaultProxy, Status, StatusAfter
from forge_server import ForgeServer
from neuroscale.cli.new import new_service
from neuroscale.cli.replan import replan_service
from neuroscale.core.errors import InputError
from neuroscale.forge.branches import Access
from neuroscale.forge.interface import RepositoryRef, Token
from neuroscale.rendering.scaffolder.form import FORM_FIELDS
from neuroscale.rendering.service_folder import RENDERED_FILES
from plan_factory import ANSWERS
from repositories import Repository
from request_site import BRANCH, SERVICE, Site, hold_at, make_platform, opened_site
from roots import CHECKOUT

pytestmark = pytest.mark.tools

OVERRIDE = {"field": "max_num_seqs", "value": 5, "expires": str(date.today() + timedelta(days=300))}
HOSTILE = "</details> @team #1 <!-- /neuroscale-request --> ${{ secrets.x }} $(id) [a](https://evil.example)"


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_platform(tmp_path_factory.mktemp("platform"))


@pytest.fixture
def site(forge_server: ForgeServer, kyverno_once: None, platform: Path, tmp_path: Path) -> Iterator[Site]:
    with opened_site(forge_server, platform, tmp_path) as made:
        yield made


def state_of(repository: Repository) -> dict[str, Any]:
    """Everything of a clone that a person may have made: work tree, index, branches, HEAD, configuration."""
    git = repository.root / ".git"
    kept = [path for path in sorted(git.rglob("*")) if path.is_file() and "objects" not in path.parts]
    files = [path for path in sorted(repository.root.rglob("*")) if path.is_file() and ".git" not in path.parts]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in [*kept, *files]}


# what it opens


def test_a_request_opens_a_pull_request_from_a_fork_and_a_second_run_changes_nothing(site: Site) -> None:
    # Work in progress, staged and not; the clone itself is on another branch.
    site.clone.run("switch", "--quiet", "--create", "mine")
    site.clone.write({"staged.txt": "a", "platform/settings.yaml": "broken: [", "ignored": "x"})
    site.clone.run("add", "staged.txt")
    before = state_of(site.clone)
    said = site.request()
    assert said.status == 0, said.err
    pull = site.pull()
    assert said.json == {
        "schema_version": 1,
        "outcome": "opened",
        "environment": "dev",
        "service": "support-chat",
        "branch": BRANCH,
        "base_branch": "main",
        "base_commit": site.main.run("rev-parse", "main"),
        "url": pull.url,
        "number": pull.number,
        "repository": site.fork.slug,
        "commit": pull.head_sha,
        "notes": [],
    }
    assert (pull.author, pull.head_owner, pull.head_branch, pull.base_branch) == (
        "developer",
        "developer",
        BRANCH,
        "main",
    )
    assert pull.title == f"Serve {ANSWERS['model']} as support-chat in dev"
    assert "`developer` asks for a new service `dev/support-chat`" in pull.body
    assert "### What was not chosen" in pull.body
    (commit,) = site.commits(pull.number)
    assert commit["commit"]["author"]["name"] == commit["commit"]["committer"]["name"]
    assert commit["author"]["login"] == "developer"
    assert commit["parents"][0]["sha"] == said.json["base_commit"]
    files = site.files(pull.head_sha)
    assert sorted(files) == [f"{SERVICE}/{name}" for name in sorted(RENDERED_FILES)]
    assert yaml.safe_load(files[f"{SERVICE}/request.yaml"])["concurrent_users"] == ANSWERS["concurrent_users"]
    assert site.tip(site.ref) is None

    again = site.request()
    assert again.status == 0
    assert again.json == {**said.json, "outcome": "unchanged"}
    assert site.pull() == pull
    assert len(site.commits(pull.number)) == 1
    assert state_of(site.clone) == before
    # Nobody opens a second one, also who may push to the repository itself.
    other = site.request(role="owner", concurrent_users=7)
    assert (other.status, site.pulls()) == (2, [pull])
    assert f"{pull.url}: asks for a change of it already, and developer opened it" in other.err


def test_models_with_states_come_from_the_form_to_a_judged_pull_request(site: Site) -> None:
    models = {"gated-delta": "nvidia/Qwen3.6-35B-A3B-NVFP4", "mamba": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"}
    for service, model in models.items():
        said = site.request(service=service, model=model, p95_ttft_seconds=30)
        assert (said.status, said.json["outcome"], said.json["notes"]) == (0, "opened", []), said.err
    pulls = {pull.title: pull for pull in site.pulls()}
    assert set(pulls) == {f"Serve {model} as {service} in dev" for service, model in models.items()}
    for service, model in models.items():
        files = site.files(pulls[f"Serve {model} as {service} in dev"].head_sha)
        assert sorted(files) == [f"manifests/dev/{service}/{name}" for name in sorted(RENDERED_FILES)]
        assert model in files[f"manifests/dev/{service}/inferenceservice.yaml"]


def test_people_are_told_what_goes_on_and_an_emptied_description_is_written_again(site: Site) -> None:
    said = site.end(site.start("--answers", site.answers()))
    pull = site.pull()
    assert f"Opened pull request {pull.number}: {pull.url}" in said.out
    assert f"branch {BRANCH} of {site.fork.slug}, commit {pull.head_sha}" in said.out
    assert "Looking at origin" in said.err
    assert "Passed: 1 service checked" in said.err
    again = site.end(site.start("--answers", site.answers()))
    assert f"Nothing to do: up to date is pull request {pull.number}" in again.out
    site.server.forge(site.ref, site.server.developer).update_pull(pull.number, "Mine", "")
    emptied = site.request()
    assert (emptied.json["outcome"], emptied.json["commit"]) == ("updated", pull.head_sha)
    assert (site.pull().title, site.pull().body) == ("Mine", pull.body)


def test_who_may_push_gets_a_branch_in_the_repository_itself(site: Site) -> None:
    said = site.request(role="owner")
    assert said.status == 0, said.err
    assert said.json["repository"] == site.ref.slug
    assert site.tip(site.ref) == said.json["commit"] == site.pull().head_sha
    # Whoever may not push there is told so, and opens no second one.
    other = site.request()
    assert other.status == 2
    assert "asks for a change of it already, and owner opened it" in other.err
    assert site.pull().author == "owner"


def test_the_form_is_asked_on_the_error_stream_so_that_the_result_stays_readable(site: Site) -> None:
    given = "".join(f"{ANSWERS.get(name, '')}\n" for name in FORM_FIELDS)
    said = site.end(site.start("--json", "--interactive", stdin=subprocess.PIPE), given)
    assert said.status == 0, said.err
    assert said.json["outcome"] == "opened"
    assert "Service name" in said.err
    assert yaml.safe_load(site.files(site.pull().head_sha)[f"{SERVICE}/request.yaml"])["team"] == ANSWERS["team"]


def test_catalog_and_template_are_those_of_the_forge_and_not_of_an_old_clone(site: Site) -> None:
    team = (site.main.root / "platform/catalog/teams/team-alpha.yaml").read_text()
    template = (site.main.root / "templates/llm-inference-service/template.yaml").read_text()
    site.push_main(
        {
            "platform/catalog/teams/team-delta.yaml": team.replace("team-alpha", "team-delta"),
            "templates/llm-inference-service/template.yaml": template.replace(
                "            - team-gamma\n", "            - team-gamma\n            - team-delta\n"
            ),
        }
    )
    said = site.request(team="team-delta")
    assert said.status == 0, said.err
    assert said.json["base_commit"] == site.tip(site.ref, "main") != site.clone.run("rev-parse", "main")


def test_a_clone_whose_own_program_is_another_than_that_of_main_is_told(site: Site) -> None:
    shutil.copytree(CHECKOUT / "src", site.clone.root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    site.clone.commit({}, "Another program")
    site.environment = {"PYTHONPATH": str(site.clone.root / "src")}
    said = site.request(model="google/gemma-4-31B-it", environment="local")
    assert said.status == 1, said.err
    assert "This clone's program is not that of main" in said.err


# what it brings up to date


def test_other_answers_go_on_top_of_what_is_on_the_branch_of_the_open_request(site: Site) -> None:
    first = site.request()
    number = first.json["number"]
    persons = site.commit_to_branch({"docs/support-chat.md": "How we use it.\n"}, "Tell how we use it")
    forge = site.server.forge(site.ref, site.server.developer)
    body = f"Please look at this by Friday.\n\n{site.pull().body}\n\nThanks!"
    forge.update_pull(number, "WIP: support-chat", body)

    second = site.request(concurrent_users=6)
    assert second.status == 0, second.err
    assert second.json["outcome"] == "updated"
    pull = site.pull()
    assert (pull.number, pull.head_sha) == (number, second.json["commit"])
    assert [commit["sha"] for commit in site.commits(number)] == [pull.head_sha, persons, first.json["commit"]]
    files = site.files(pull.head_sha)
    assert files["docs/support-chat.md"] == "How we use it."
    assert yaml.safe_load(files[f"{SERVICE}/request.yaml"])["concurrent_users"] == 6
    assert pull.title == "WIP: support-chat"
    assert pull.body.startswith("Please look at this by Friday.\n\n<!-- neuroscale-request")
    assert pull.body.rstrip().endswith("Thanks!")
    assert "- Concurrent users: `6`" in pull.body
    assert "- Concurrent users: `4`" not in pull.body

    assert site.request(concurrent_users=6).json["outcome"] == "unchanged"
    assert site.pull() == pull


def test_overrides_on_the_branch_of_an_open_request_are_kept_and_told(site: Site) -> None:
    site.request()
    root = site.folder / "person"
    site.commit_to_branch({}, "Look")  # brings the branch into `person`
    request = root / SERVICE / "request.yaml"
    fields = {**yaml.safe_load(request.read_text()), "overrides": [{**OVERRIDE, "reason": HOSTILE}]}
    request.write_text(json.dumps(fields))
    replan_service(str(root / SERVICE), root)
    site.commit_to_branch(
        {f"{SERVICE}/{path.name}": path.read_bytes() for path in (root / SERVICE).iterdir()}, "Allow five at once"
    )
    said = site.request(concurrent_users=3)
    assert said.status == 0, said.err
    assert said.json["notes"] == ["Kept from the service's request.yaml: the override of max_num_seqs."]
    (kept,) = yaml.safe_load(site.files(said.json["commit"])[f"{SERVICE}/request.yaml"])["overrides"]
    assert kept["reason"] == HOSTILE
    body = site.pull().body
    assert body.count("<!-- /neuroscale-request -->") == 1
    assert "@team" not in body
    assert "[a](" not in body
    assert site.request(concurrent_users=3).json["outcome"] == "unchanged"


def test_a_base_that_moved_on_is_merged_only_when_something_is_to_be_pushed(site: Site) -> None:
    first = site.request()
    base = site.push_main({"docs/other.md": "x\n"})
    said = site.request()
    assert said.json["outcome"] == "unchanged"
    assert said.json["notes"][0].startswith("main moved on since, and the two merge cleanly.")
    assert site.pull().head_sha == first.json["commit"]

    said = site.request(concurrent_users=6)
    assert said.status == 0, said.err
    newest = site.commits(first.json["number"])[0]
    assert [parent["sha"] for parent in newest["parents"]] == [first.json["commit"], base]
    assert sorted(site.files(said.json["commit"])) == [f"{SERVICE}/{name}" for name in sorted(RENDERED_FILES)]


def test_a_conflict_inside_the_services_folder_is_decided_by_the_request_and_one_elsewhere_is_told(site: Site) -> None:
    first = site.request()
    new_service(site.answers(concurrent_users=2), site.main.root, interactive=False)
    base = site.push_main({}, "Serve support-chat otherwise")
    said = site.request(concurrent_users=6)
    assert said.status == 0, said.err
    newest = site.commits(first.json["number"])[0]
    assert [parent["sha"] for parent in newest["parents"]] == [first.json["commit"], base]
    assert "asks for a change of the service" in site.pull().body
    files = site.files(said.json["commit"])
    assert yaml.safe_load(files[f"{SERVICE}/request.yaml"])["concurrent_users"] == 6

    persons = site.commit_to_branch({"README.md": "# Mine\n"}, "Rename it")
    site.push_main({"README.md": "# Theirs\n"})
    said = site.request(concurrent_users=5)
    assert said.status == 2
    assert f"conflicts with its base outside {SERVICE}: README.md" in said.err
    assert site.pull().head_sha == persons


def test_a_branch_without_an_open_request_is_replaced_and_its_commit_is_told(site: Site) -> None:
    first = site.request()
    site.server.api("PATCH", f"/repos/{site.ref.slug}/pulls/{first.json['number']}", body={"state": "closed"})
    base = site.push_main({"docs/other.md": "x\n"})
    said = site.request(concurrent_users=6)
    assert said.status == 0, said.err
    assert said.json["outcome"] == "opened"
    assert said.json["number"] != first.json["number"]
    assert first.json["commit"] in said.json["notes"][0]
    (commit,) = site.commits(said.json["number"])
    assert [parent["sha"] for parent in commit["parents"]] == [base]


# what needs no pull request


def test_no_difference_to_main_opens_nothing_and_a_newer_catalog_leaves_the_plan_alone(site: Site) -> None:
    site.request()
    site.merge()
    said = site.request()
    assert said.status == 0
    assert said.json["outcome"] == "no_difference"
    assert (said.json["url"], said.json["notes"]) == (None, [])
    assert site.pulls() == []

    prices = site.main.root / "platform/catalog/prices/google-cloud.yaml"
    site.push_main({"platform/catalog/prices/google-cloud.yaml": prices.read_text().replace('"0.72"', '"0.99"')})
    said = site.request()
    assert said.json["outcome"] == "no_difference"
    assert f"`neuroscale replan {SERVICE}`" in said.json["notes"][0]
    assert site.pulls() == []

    # An open request for it is told and left alone.
    other = site.request(concurrent_users=6)
    assert other.json["outcome"] == "opened"
    said = site.request()
    assert (said.json["outcome"], said.json["number"]) == ("no_difference", other.json["number"])
    assert said.json["notes"][-1].startswith(f"{other.json['url']} is open for this service")
    assert site.pull().head_sha == other.json["commit"]


def test_a_service_with_other_answers_is_changed_and_its_reviewed_overrides_stay(site: Site) -> None:
    new_service(site.answers(), site.main.root, interactive=False)
    request = site.main.root / SERVICE / "request.yaml"
    request.write_text(
        json.dumps({**yaml.safe_load(request.read_text()), "overrides": [{**OVERRIDE, "reason": "Load test of us."}]})
    )
    replan_service(SERVICE, site.main.root)
    site.push_main({}, "Serve support-chat with an exception")
    assert site.request().json["outcome"] == "no_difference"
    said = site.request(concurrent_users=3)
    assert said.status == 0, said.err
    assert said.json["notes"] == ["Kept from the service's request.yaml: the override of max_num_seqs."]
    made = yaml.safe_load(site.files(said.json["commit"])[f"{SERVICE}/request.yaml"])
    assert (made["concurrent_users"], made["overrides"][0]["reason"]) == (3, "Load test of us.")
    assert "**Override** `max_num_seqs` is `5`" in site.pull().body


def test_a_service_whose_request_cannot_be_read_is_not_overwritten(site: Site) -> None:
    site.push_main({f"{SERVICE}/request.yaml": "overrides: [\n"})
    said = site.request()
    assert said.status == 2
    assert f"main:{SERVICE}/request.yaml" in said.err
    assert "are not lost" in said.err
    assert site.pulls() == []


# what is not published


def nothing_was_pushed(site: Site) -> bool:
    status, _ = site.server.api("GET", f"/repos/{site.fork.slug}")
    return status == 404 and site.pulls("all") == [] and site.tip(site.ref) is None


def test_a_refused_plan_shows_its_numbers_and_pushes_nothing(site: Site) -> None:
    said = site.end(site.start("--answers", site.answers(model="google/gemma-4-31B-it", environment="local")))
    assert said.status == 1
    assert "GiB too much" in said.out
    assert "Nothing was pushed." in said.out
    as_json = site.request(model="google/gemma-4-31B-it", environment="local")
    assert (as_json.status, as_json.json["outcome"]) == (1, "refused")
    assert as_json.json["plan"]["verdict"] == "refused"
    assert as_json.json["choices"] == []  # no model of the family fits a local processor
    assert nothing_was_pushed(site)


@pytest.mark.parametrize(
    ("policy", "old", "new", "status"),
    [
        ("allowed-registries", "docker.io/vllm/", "docker.io/other/", 1),
        ("no-mutable-image-tags", "- expression:", "- expression: no_such_function() &&", 3),
    ],
)
def test_a_gate_that_is_red_or_broken_on_main_stops_it_before_anything_is_pushed(
    site: Site, policy: str, old: str, new: str, status: int
) -> None:
    path = f"policies/{policy}/policy.yaml"
    text = (site.main.root / path).read_text()
    assert old in text
    site.push_main({path: text.replace(old, new)})
    said = site.end(site.start("--answers", site.answers()))
    assert said.status == status, said.out + said.err
    assert policy in said.out
    assert "Nothing was pushed." in said.out
    as_json = site.request()
    assert (as_json.status, as_json.json["outcome"]) == (status, "not_passed")
    assert as_json.json["verdict"]["exit_status"] == status
    assert nothing_was_pushed(site)


def test_gate_code_on_the_branch_is_judged_by_the_bases_gate_and_never_run(site: Site) -> None:
    site.push_main({"src/neuroscale/__init__.py": "", "src/neuroscale/__main__.py": "raise SystemExit(9)\n"})
    first = site.request()
    persons = site.commit_to_branch({"src/neuroscale/__main__.py": "raise SystemExit(0)\n"}, "Make it green")
    said = site.request(concurrent_users=6)
    # This base's gate gives no verdict at all, so nothing may pass.
    assert said.status == 3
    assert "the base's gate gave no verdict (exit status 9)" in said.err
    assert site.pull().head_sha == persons != first.json["commit"]


def test_what_cannot_be_used_is_told_in_words(site: Site) -> None:
    for name, url in (
        ("plain", "http://forge.example.com/o/r.git"),
        ("password", "http://me:s3cretpass@forge.example.com/o/r.git"),
        ("folder", "file:///tmp/o/r.git"),
    ):
        site.clone.run("remote", "add", name, url)
    good, wrong = site.answers(), site.answers(concurrent_users="many")
    good.chmod(0o644)
    line = next(number for number, text in enumerate(wrong.read_text().splitlines(), 1) if "concurrent_users" in text)
    for arguments, words in (
        ((), "needs exactly one source of answers"),
        (("--interactive", "--answers", good), "needs exactly one source of answers"),
        (("--answers", "none.yaml"), "none.yaml"),
        (("--answers", good, "--remote", "upstream"), "Name one of folder, origin"),
        (("--answers", good, "--remote", "--help-me"), "is not a git remote"),
        (("--answers", good, "--token-file", "none"), "none: cannot be read"),
        (("--answers", good, "--token-file", good), "so others may use the forge's token"),
        (("--answers", good, "--remote", "plain"), "is not encrypted"),
        (("--answers", good, "--remote", "password"), "forge.example.com"),
        (("--answers", good, "--remote", "folder"), "not an https or ssh address"),
        (("--answers", wrong), f"{wrong}:{line}: concurrent_users: "),
    ):
        said = site.end(site.start(*arguments))
        assert (said.status, said.out) == (2, ""), arguments
        assert words in said.err
        assert "s3cretpass" not in said.err
    assert nothing_was_pushed(site)


def test_a_token_that_the_forge_does_not_know_is_refused_without_being_shown(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef" * 2)
    file.chmod(0o600)
    said = site.request("--token-file", file)
    assert said.status == 2
    assert "0123456789abcdef" not in said.err
    assert nothing_was_pushed(site)


# faults


# What the forge has then: a fork, a branch without a pull request, a pull request. The request that follows, killed
# before it arrives, leaves the same.
@pytest.mark.parametrize("path", [r"/forks$", r"/git-receive-pack$", r"/pulls$"])
def test_after_a_kill_at_any_step_the_next_run_completes_the_request(site: Site, path: str) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        hold = hold_at(proxy, "POST", path, after=True)
        process = site.start("--answers", site.answers())
        assert hold.reached.wait(120)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        proxy.clear()
        before = None if "forks" in path else site.tip(site.fork)
        said = site.request()
    assert said.status == 0, said.err
    pull = site.pull()
    assert said.json["outcome"] in ("opened", "unchanged")
    assert (pull.number, pull.head_sha) == (said.json["number"], said.json["commit"])
    assert len(site.commits(pull.number)) == 1
    assert before in (None, pull.head_sha)  # what was pushed is used
    assert said.json["notes"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    # The branch is new and its description old; both are new.
    [("POST", r"/git-receive-pack$"), ("PATCH", r"/pulls/\d+$")],
)
def test_after_a_kill_during_an_update_the_next_run_completes_it(site: Site, method: str, path: str) -> None:
    first = site.request()
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        hold = hold_at(proxy, method, path, after=True)
        process = site.start("--answers", site.answers(concurrent_users=6))
        assert hold.reached.wait(120)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        proxy.clear()
        said = site.request(concurrent_users=6)
    assert said.status == 0, said.err
    pull = site.pull()
    assert pull.number == first.json["number"]
    assert "- Concurrent users: `6`" in pull.body
    assert [commit["sha"] for commit in site.commits(pull.number)] == [said.json["commit"], first.json["commit"]]


def test_a_push_whose_answer_is_lost_is_recognised_as_done(site: Site) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        proxy.add("POST", r"/git-receive-pack$", DropAfter())
        proxy.add("POST", r"/pulls$", StatusAfter(502))
        said = site.request()
        assert said.status == 0, said.err
        assert len(proxy.made("POST", r"/git-receive-pack$")) == 1
    assert len(site.commits(site.pull().number)) == 1


def test_passing_trouble_is_waited_for(site: Site) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        proxy.add("GET", r"/info/refs", Status(503))
        proxy.add("POST", r"/git-upload-pack$", Status(500))
        proxy.add("POST", r"/git-receive-pack$", Status(502), times=2)
        proxy.add("GET", r"/api/v1/user$", Status(429, {"Retry-After": "1"}))
        said = site.request()
    assert said.status == 0, said.err
    assert said.json["commit"] == site.pull().head_sha


def test_a_forge_that_takes_no_push_is_reported_and_nothing_stays_behind(site: Site) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        proxy.add("POST", r"/git-receive-pack$", Status(500), times=1000)
        said = site.request()
        tries = len(proxy.made("POST", r"/git-receive-pack$"))
    assert (said.status, said.out) == (2, "")
    assert "after 3 attempts" in said.err
    assert "500" in said.err
    assert tries == 3
    assert site.tip(site.fork) is None
    assert site.pulls() == []


@pytest.mark.slow
def test_a_forge_that_opens_no_pull_request_is_reported_and_the_next_run_completes_it(site: Site) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        proxy.add("POST", r"/pulls$", Status(500), times=1000)
        said = site.request()
        assert (said.status, said.out) == (2, "")
        assert f"The branch {BRANCH} is pushed, but its pull request is not open yet" in said.err
        assert "the same command completes it" in said.err
        proxy.clear()
        pushed = site.tip(site.fork)
        said = site.request()
    assert (said.json["outcome"], said.json["commit"]) == ("opened", pushed)


def test_a_forge_that_is_down_is_reported(site: Site) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
    said = site.request()
    assert (said.status, said.out) == (2, "")
    assert "no connection" in said.err


def test_a_redirect_to_elsewhere_never_gets_the_token(site: Site) -> None:
    with FaultProxy(site.server.url) as other, FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        proxy.add("GET", r"/info/refs", Status(301, {"Location": f"{other.url}/{site.ref.slug}.git/info/refs"}), 9)
        said = site.request()
        assert said.status == 2
        assert "change the address of the git remote" in said.err
        assert other.requests == []


# races


@pytest.mark.parametrize(
    ("method", "path"),
    # Git asks for the branch's tip, and then sends what should follow it.
    [("GET", r"/info/refs\?service=git-receive-pack$"), ("POST", r"/git-receive-pack$")],
    ids=["before the push", "during the push"],
)
def test_a_commit_that_somebody_pushes_meanwhile_is_not_lost(site: Site, method: str, path: str) -> None:
    """Before the push, it fails if a push replaces whatever the branch points to."""
    first = site.request()
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        hold = hold_at(proxy, method, path, after=False)
        process = site.start("--json", "--answers", site.answers(concurrent_users=6))
        assert hold.reached.wait(120)
        persons = site.commit_to_branch({"docs/support-chat.md": "How we use it.\n"}, "Tell how we use it")
        hold.release.set()
        said = site.end(process)
    assert said.status == 0, said.err
    assert "Looking again" in said.err
    commits = [commit["sha"] for commit in site.commits(first.json["number"])]
    assert commits == [said.json["commit"], persons, first.json["commit"]]


def test_a_request_that_is_merged_meanwhile_leads_to_a_new_one_on_the_new_base(site: Site) -> None:
    first = site.request()
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        hold = hold_at(proxy, "POST", r"/git-receive-pack$", after=False)
        process = site.start("--json", "--answers", site.answers(concurrent_users=6))
        assert hold.reached.wait(120)
        site.merge()
        hold.release.set()
        said = site.end(process)
    assert said.status == 0, said.err
    assert said.json["outcome"] == "opened"
    assert said.json["number"] != first.json["number"]
    (commit,) = site.commits(said.json["number"])
    assert commit["parents"][0]["sha"] == site.main.run("rev-parse", "main") == said.json["base_commit"]


def test_two_runs_at_once_open_one_pull_request(site: Site) -> None:
    with ThreadPoolExecutor() as pool:
        both = [one.result() for one in [pool.submit(site.request) for _ in range(2)]]
    assert [said.status for said in both] == [0, 0], [said.err for said in both]
    pull = site.pull()
    assert {said.json["number"] for said in both} == {pull.number}
    assert len(site.commits(pull.number)) == 1


# secrets


def test_the_token_is_in_no_argument_and_in_no_file(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "arguments.log"
    real = shutil.which("git")
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nexec {real} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IEXEC)
    trace = tmp_path / "trace"
    site.environment = {
        "PATH": f"{wrapper.parent}:{os.environ['PATH']}",
        "GIT_TRACE_CURL": str(trace),
        "GIT_CURL_VERBOSE": "1",
        "GIT_TRACE_REDACT": "0",
    }
    process = site.start("--json", "--answers", site.answers())
    seen = set()
    while process.poll() is None:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    seen.add((folder / "cmdline").read_bytes())
                except OSError:
                    continue
    assert site.end(process).json["outcome"] == "opened"
    token = site.server.developer.secret
    forms = [token, base64.b64encode(f"x-access-token:{token}".encode()).decode()]
    arguments = log.read_text()
    assert "push --porcelain" in arguments
    assert any(b"neuroscale" in line for line in seen)
    for form in forms:
        assert form not in arguments
        assert not any(form.encode() in line for line in seen)
        assert not trace.exists() or form not in trace.read_text()
        for path in site.clone.root.rglob("*"):
            assert not path.is_file() or form.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("git@forge.example.com:o/r.git", "git@forge.example.com:alice/platform.git"),
        ("forge.example.com:o/r", "forge.example.com:alice/platform.git"),
        ("ssh://git@forge.example.com:2222/o/r.git", "ssh://git@forge.example.com:2222/alice/platform.git"),
        ("ssh://git:pass@forge.example.com/o/r/", "ssh://git@forge.example.com/alice/platform.git"),
    ],
)
def test_over_ssh_the_users_own_address_and_keys_are_used(remote: str, url: str) -> None:
    access = Access(remote, Token("0123456789abcdef"))
    ref = RepositoryRef("https://forge.example.com", "alice", "platform")
    assert access.url(ref) == url
    assert not any("xtraHeader" in value or "Basic" in value for value in access.environment(ref).values())


def test_a_password_in_the_remotes_address_is_not_used() -> None:
    access = Access("https://me:pass@forge.example.com/o/r.git", Token("0123456789abcdef"))
    ref = RepositoryRef("https://forge.example.com", "o", "r")
    assert access.url(ref) == "https://forge.example.com/o/r.git"
    assert "0123456789abcdef" not in repr(access)
    assert "pass" not in repr(access)


def test_a_template_that_names_no_usable_branch_is_refused(site: Site) -> None:
    path = "templates/llm-inference-service/template.yaml"
    text = (site.main.root / path).read_text()
    branch = "branchName: neuroscale/${{ parameters.environment }}/"
    for old, new, words in (
        (branch, "branchName: ${{ steps.plan.output.body.summary }}/", "steps.plan.output.body.summary has no value"),
        (branch, "branchName: ../${{ parameters.environment }}/", "not a valid branch name"),
        ("targetBranchName: main", "targetBranchName: trunk", "the forge's main branch is 'main'"),
    ):
        assert old in text
        site.push_main({path: text.replace(old, new)})
        said = site.request()
        assert said.status == 2
        assert words in said.err
    assert nothing_was_pushed(site)


def test_an_address_without_owner_and_repository_is_refused() -> None:
    with pytest.raises(InputError):
        Access("git@host", Token("0123456789abcdef")).url(RepositoryRef("https://x", "a", "b"))
