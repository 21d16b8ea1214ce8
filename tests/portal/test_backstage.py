"""Backstage itself, in a real browser, on a real forge: a dry run, the form, its pull request, a change, a refusal."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from backstage import NODE
from backstage_pages import FORM, Backstage, Person, chromium
from forge_server import ForgeServer
from plan_factory import pull_request_for
from platform_repository import PLATFORM, TEMPLATE
from portal_lab import beside, running_server
from request_site import Site, make_platform, opened_site
from roots import ROOT
from waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.tools]

PORTAL = ROOT / "platform/portal"
# A form has no overrides.
EXAMPLES = [
    path for path in sorted((ROOT / "templates/examples").glob("*.yaml")) if "\noverrides:" not in path.read_text()
]


@pytest.fixture(scope="module")
def site(forge_server: ForgeServer, kyverno_once: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("backstage")
    with opened_site(forge_server, make_platform(folder), folder) as made:
        yield made


@pytest.fixture(scope="module")
def backstage(site: Site) -> Iterator[Backstage]:
    assert (PORTAL / "app/dist/index.html").exists(), "Backstage is missing: python3 scripts/setup.py --for portal"
    token = site.folder / "portal-token"
    token.write_text("a-token-of-the-portal-in-this-test\n")
    token.chmod(0o600)
    own = site.folder / "own.yaml"
    own.write_text(
        yaml.safe_dump(
            {"neuroscale": {"token": {"$file": str(token)}, "refreshSeconds": 2, "pagesUrl": "http://pages.test/"}}
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found, written = Backstage(f"http://127.0.0.1:{port}"), site.folder / "backstage.log"
    forge = site.server.url
    options = ("--token-file", str(site.server.token_file("developer")), "--portal-token-file", str(token))
    with running_server(site, *options) as server, written.open("w") as log:
        environment = {
            "NEUROSCALE_PORTAL_URL": found.url,
            "NEUROSCALE_PORTAL_PORT": str(port),
            "NEUROSCALE_PORTAL_DATA": str(site.folder / "backstage-data"),
            "NEUROSCALE_SERVE_URL": server.url,
            "NEUROSCALE_FORGE_HOST": forge.removeprefix("http://"),
            "NEUROSCALE_FORGE_URL": forge,
            "NEUROSCALE_TEMPLATE_URL": f"{forge}/{site.ref.slug}/src/branch/main/{TEMPLATE.where}",
        }
        command = [str(NODE), "index.js", "--config", "app-config.yaml", "--config", str(own)]
        process = subprocess.Popen(
            command, cwd=PORTAL, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            wait_for(lambda: process.poll() is not None or found.is_ready(), 180, "Backstage's template")
            assert process.poll() is None, written.read_text()[-3000:]
            yield found
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_dry_run_makes_the_files_of_the_command_line(backstage: Backstage, example: Path) -> None:
    answers = yaml.safe_load(example.read_text())
    answer = backstage.dry_run(answers)
    assert answer.status_code == 200, answer.text
    made = {file["path"]: base64.b64decode(file["base64Content"]) for file in answer.json()["directoryContents"]}
    assert made == {path: text.encode() for path, text in pull_request_for(answers, PLATFORM).files.items()}


def test_a_refusal_ends_a_dry_run_with_the_planners_sentence(backstage: Backstage) -> None:
    answers = yaml.safe_load(EXAMPLES[1].read_text()) | {"longest_prompt_tokens": 1_000_000}
    answer = backstage.dry_run(answers)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "cannot be served" in message
    assert "What works: " in message


def test_a_person_asks_for_a_service_changes_it_and_reads_a_refusal(site: Site, backstage: Backstage) -> None:
    with chromium() as page:
        person = Person(page, backstage)

        # The form, as a stock Backstage draws it, from sign-in to the pull request.
        person.enter(FORM)
        page.get_by_text("Language model behind a URL").first.wait_for()
        person.fill_in(Service_name="support-chat")
        person.choose("Model", "Gemma 4 26B-A4B, instruction-tuned, QAT 4-bit")
        person.choose("Team", "team-alpha")
        person.choose("Environment", "dev")
        person.picture("form")
        person.press("Next")
        person.fill_in(Concurrent_users="4")
        person.press("Review")
        person.picture("review")
        person.press("Create")
        address = person.opened()
        person.picture("result")
        pull = beside(site.pull)
        assert (pull.author, pull.head_branch, pull.url) == ("developer", "neuroscale/dev/support-chat", address)
        assert "user:default/developer" in pull.body
        beside(site.merge)

        # The service in the catalog, soon after the merge, and the form with its present answers.
        wait_for(lambda: backstage.entity("component", "support-chat.dev"), 60, "the service in the catalog")
        person.go("/catalog/default/component/support-chat.dev")
        person.page.get_by_role("link", name="Change this service").wait_for()
        assert person.page.get_by_text("Depends on components").count() == 0
        own = person.page.get_by_role("link", name="State, history, promote, retire")
        assert str(own.get_attribute("href")).endswith("/services/dev/support-chat")
        person.picture("service")
        person.follow("Change this service")
        person.press("Next")
        assert person.page.get_by_label("Concurrent users").first.input_value() == "4"
        person.fill_in(Concurrent_users="6")
        person.press("Review", "Create")
        person.opened()
        assert beside(site.pull).title == "Change dev/support-chat: concurrent_users 6"

        # A refusal, in the planner's words alone.
        person.go(f"{FORM}?formData={json.dumps({**_answers(), 'longest_prompt_tokens': 1_000_000})}")
        person.press("Next", "Review", "Create")
        person.page.get_by_text("What works:").first.wait_for()
        person.picture("refusal")
        assert "client.js" not in person.page.content()


def test_it_starts_with_the_local_platform() -> None:
    with tempfile.TemporaryDirectory(prefix="neuroscale-portal-") as scratch:
        Path(scratch).chmod(0o755)  # the forge's user enters it
        platform = make_platform(Path(scratch))

        def local(*arguments: str) -> str:
            command = [sys.executable, "-P", "-m", "neuroscale", "local", *arguments, "--state", f"{scratch}/state"]
            done = subprocess.run(command, cwd=platform, capture_output=True, text=True, timeout=400, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        try:
            told = local("up", "--no-cluster", "--with", "portal")
            found = re.search(r"in Backstage: (http://\S+) \(enter as a guest\)", told)
            assert found is not None, told
            running = Backstage(found[1])
            wait_for(running.is_ready, 120, "the template and the teams in the catalog")
            assert running.dry_run(_answers()).status_code == 200
            assert re.search(r"portal +\d+ +\d+ +\d+ +0 +healthy", local("status"))
        finally:
            local("down", "--delete")


def _answers() -> dict[str, Any]:
    answers: dict[str, Any] = yaml.safe_load(EXAMPLES[1].read_text())
    return answers
