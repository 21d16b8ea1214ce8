"""Backstage itself, in a real browser, on a real forge: a dry run, the form, its pull request, a change, a refusal."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from backstage import NODE
from forge_server import ForgeServer
from plan_factory import pull_request_for
from platform_repository import PLATFORM, TEMPLATE
from portal_lab import beside, running_server
from request_site import Site, make_platform, opened_site
from waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.tools]

ROOT = Path(__file__).resolve().parents[2]
PORTAL = ROOT / "platform/portal"
PICTURES = os.environ.get("NEUROSCALE_PORTAL_PICTURES", "")
FORM = "/create/templates/default/llm-inference-service"
# A form has no overrides.
EXAMPLES = [
    path for path in sorted((ROOT / "templates/examples").glob("*.yaml")) if "\noverrides:" not in path.read_text()
]


@dataclass(frozen=True)
class Backstage:
    """A running Backstage, whose guest is the forge's `developer`."""

    url: str

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask its backend as the guest."""
        identity = httpx.post(f"{self.url}/api/auth/guest/refresh", json={}).json()["backstageIdentity"]
        headers = {"authorization": f"Bearer {identity['token']}"}
        return httpx.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=60)

    def entity(self, kind: str, name: str) -> dict[str, Any] | None:
        """An entity of its catalog."""
        answer = self.ask("GET", f"/api/catalog/entities/by-name/{kind}/default/{name}")
        return answer.json() if answer.status_code == 200 else None

    def dry_run(self, answers: Any) -> httpx.Response:
        """A dry run of the template as its catalog has it."""
        template = self.entity("template", "llm-inference-service")
        assert template is not None
        files = [
            {"path": path, "base64Content": base64.b64encode(text.encode()).decode(), "executable": False}
            for path, text in TEMPLATE.files.items()
        ]
        body = {"template": template, "values": answers, "secrets": {}, "directoryContents": files}
        return self.ask("POST", "/api/scaffolder/v2/dry-run", body)


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
    own.write_text(yaml.safe_dump({"neuroscale": {"token": {"$file": str(token)}, "refreshSeconds": 2}}))
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
            wait_for(lambda: process.poll() is not None or _ready(found), 180, "Backstage's template")
            assert process.poll() is None, written.read_text()[-3000:]
            yield found
        finally:
            process.terminate()
            process.wait(60)


def _ready(backstage: Backstage) -> bool:
    try:
        return all(
            backstage.entity(kind, name)
            for kind, name in (("template", "llm-inference-service"), ("group", "team-alpha"))
        )
    except (httpx.HTTPError, ValueError, KeyError):
        return False


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
    program = shutil.which("chromium")
    assert program, "Chromium is missing: apt-get install chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.set_default_timeout(60_000)
            _story(site, backstage, page)
        finally:
            browser.close()


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
            wait_for(lambda: _ready(running), 120, "the template and the teams in the catalog")
            assert running.dry_run(_answers()).status_code == 200
            assert re.search(r"portal +\d+ +\d+ +\d+ +0 +healthy", local("status"))
        finally:
            local("down", "--delete")


def _story(site: Site, backstage: Backstage, page: Any) -> None:
    def picture(name: str) -> None:
        if PICTURES:
            page.mouse.move(700, 5)  # away from Backstage's menu, which unfolds under a mouse
            page.wait_for_timeout(800)
            page.screenshot(path=f"{PICTURES}/backstage-{name}.png", full_page=True)

    def fill_in(**answers: str) -> None:
        for label, answer in answers.items():
            page.get_by_label(label.replace("_", " ")).first.fill(answer)

    def choose(label: str, choice: str) -> None:
        page.get_by_label(label, exact=False).first.click()
        page.get_by_role("option").filter(has_text=choice).first.click()

    # The form, as a stock Backstage draws it, from sign-in to the pull request.
    page.goto(f"{backstage.url}{FORM}")
    page.get_by_role("button", name="Enter").click()
    page.get_by_text("Language model behind a URL").first.wait_for()
    fill_in(Service_name="support-chat")
    choose("Model", "Gemma 4 26B-A4B, instruction-tuned, QAT 4-bit")
    choose("Team", "team-alpha")
    choose("Environment", "dev")
    picture("form")
    page.get_by_role("button", name="Next").click()
    fill_in(Concurrent_users="4")
    picture("traffic")
    page.get_by_role("button", name="Review").click()
    picture("review")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="Pull request").wait_for(timeout=180_000)
    picture("result")
    pull = beside(site.pull)
    assert (pull.author, pull.head_branch) == ("developer", "neuroscale/dev/support-chat")
    assert "user:default/developer" in pull.body
    assert page.get_by_role("link", name="Pull request").get_attribute("href") == pull.url
    beside(site.merge)

    # The service in the catalog, soon after the merge, and the form with its present answers.
    wait_for(lambda: backstage.entity("component", "support-chat.dev"), 60, "the service in the catalog")
    page.goto(f"{backstage.url}/catalog/default/component/support-chat.dev")
    page.get_by_role("link", name="Change this service").wait_for()
    picture("service")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Change this service").click()
    page = opened.value
    page.get_by_role("button", name="Next").click()
    assert page.get_by_label("Concurrent users").first.input_value() == "4"
    fill_in(Concurrent_users="6")
    page.get_by_role("button", name="Review").click()
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="Pull request").wait_for(timeout=180_000)
    assert beside(site.pull).title == "Change dev/support-chat: concurrent_users 6"

    # A refusal, in the planner's words.
    page.goto(f"{backstage.url}{FORM}?formData={json.dumps({**_answers(), 'longest_prompt_tokens': 1_000_000})}")
    for button in ("Next", "Review", "Create"):
        page.get_by_role("button", name=button).click()
    page.get_by_text("What works:").first.wait_for()
    picture("refusal")


def _answers() -> dict[str, Any]:
    answers: dict[str, Any] = yaml.safe_load(EXAMPLES[1].read_text())
    return answers
