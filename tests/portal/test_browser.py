"""The pages in a real browser, on a real forge: from the form to the pull request, a change and a removal."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_server import ForgeServer
from neuroscale.forge.main_protection import REQUIRED_CHECK
from neuroscale.portal.services import Figure, Measured, chart
from neuroscale.rendering.planning_inputs import PlanningInputs
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from portal_lab import DEVELOPER, FakePendingChanges, NoCluster, Server, beside, listening, running_server
from request_site import Site, make_platform, opened_site
from roots import CHECKOUT

pytestmark = [pytest.mark.browser, pytest.mark.tools]

AXE = CHECKOUT / "tests/node/node_modules/axe-core/axe.min.js"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PICTURES = os.environ.get("NEUROSCALE_PORTAL_PICTURES", "")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_platform(tmp_path_factory.mktemp("platform"))


@pytest.fixture
def site(forge_server: ForgeServer, kyverno_once: None, platform: Path, tmp_path: Path) -> Iterator[Site]:
    with opened_site(forge_server, platform, tmp_path) as made:
        yield made


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    with running_server(site) as running:
        yield running


@pytest.fixture
def browser(server: Server) -> Iterator[Any]:
    """It starts after everything that asks the forge: see `beside`."""
    with chromium() as launched:
        yield launched


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, found on the path."""
    program = shutil.which("chromium")
    assert program, "Chromium is missing: apt-get install chromium"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("Playwright is missing: run `make portal-test`, which installs it beside .venv")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


class Visitor:
    """Somebody in front of a page. Every page is looked at by axe, wide and narrow, light and dark."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.on("console", lambda told: self.faults.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def go(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def check(self, name: str) -> None:
        """No violation, and nothing that is wider than the window; a picture where somebody wants one."""
        self.page.locator("[aria-busy=true]").wait_for(state="detached")  # the plan is faint while it is renewed
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            for size, word in ((WIDE, "wide"), (NARROW, "narrow")):
                self.page.set_viewport_size(size)
                if PICTURES:
                    self.page.screenshot(path=f"{PICTURES}/{name}-{word}-{scheme}.png", full_page=True)
                wider = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert wider <= 0, f"{name}, {word}: {wider} pixels wider than the window"
                self.page.evaluate(AXE.read_text(encoding="utf-8"))
                found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
                told = [(one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found]
                assert not told, f"{name}, {word}, {scheme}: {json.dumps(told, indent=1)}"
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size(WIDE)

    def sees_pull_request(self) -> None:
        """The change becomes a pull request, and the page goes on to that one."""
        try:
            self.page.wait_for_url("**/pull-requests/*", timeout=180_000)
        except Exception as error:
            raise AssertionError(self.page.locator("main").inner_text()) from error

    def plan_says(self, text: str) -> None:
        self.page.locator("#plan").get_by_text(text).first.wait_for()


@pytest.fixture
def visitor(browser: Any, server: Server) -> Iterator[Visitor]:
    # What the page itself may not load is in `faults`; axe is evaluated, which a page's policy does not forbid.
    context = browser.new_context(viewport=WIDE)
    context.set_default_timeout(30_000)
    visitor = Visitor(context.new_page(), server.url)
    yield visitor
    assert visitor.faults == []
    context.close()


def test_a_person_asks_for_a_service_changes_it_and_retires_it(site: Site, server: Server, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/new")
    visitor.check("form-empty")

    # The plan stands beside the form while one types, and a refusal is mended by a click.
    page.get_by_label("Service name").fill("support-chat")
    page.get_by_label("Model", exact=True).select_option("google/gemma-4-26B-A4B-it-qat-w4a16-ct")
    page.get_by_label("Team").select_option("team-alpha")
    page.get_by_label("Environment").select_option("dev")
    visitor.plan_says("Fits")
    price = page.locator("#plan").inner_text()
    page.get_by_label("Concurrent users").fill("64")
    page.wait_for_function("before => document.getElementById('plan').innerText !== before", arg=price)
    visitor.check("form-plan")
    page.get_by_label("Time to first token").fill("soon")
    page.get_by_label("Time to first token").blur()
    page.locator("#error-p95_ttft_seconds").get_by_text("Write seconds from 0.01 to 120").wait_for()
    assert page.get_by_label("Time to first token").get_attribute("aria-invalid") == "true"
    visitor.check("form-error")
    page.get_by_label("Time to first token").fill("2")
    page.get_by_label("Concurrent users").fill("4")
    page.get_by_label("Longest prompt").fill("1000000")
    visitor.plan_says("Cannot be served")
    visitor.check("form-refused")
    page.get_by_role("button", name="Use this").first.click()
    visitor.plan_says("Fits")
    assert page.get_by_label("Longest prompt").input_value() != "1000000"

    # Only somebody with a token opens pull requests; the answers stay meanwhile.
    page.get_by_role("button", name="Open the pull request").click()
    visitor.check("sign-in")
    page.get_by_label("Token of the forge").fill(site.server.developer.secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Signed in as developer").wait_for()
    assert page.get_by_label("Service name").input_value() == "support-chat"
    page.get_by_role("button", name="Open the pull request").click()
    visitor.check("change")
    visitor.sees_pull_request()
    pull = beside(site.pull)
    assert (pull.author, pull.head_branch) == ("developer", "neuroscale/dev/support-chat")
    page.get_by_text("The gate is judging it").wait_for()
    visitor.check("pull-request-waiting")
    status = {"context": REQUIRED_CHECK["gitea"], "state": "success", "description": "All checks passed"}
    beside(lambda: site.server.api("POST", f"/repos/{site.ref.slug}/statuses/{pull.head_sha}", body=status))
    page.get_by_text("The gate passed. It waits").wait_for()
    visitor.check("pull-request-green")
    beside(site.merge)
    page.get_by_text("Merged. Argo CD").wait_for()

    # The service, its state and its history.
    visitor.go("/services")
    page.get_by_text("States are not known").wait_for()
    visitor.check("services")
    page.get_by_role("link", name="dev/support-chat").click()
    page.get_by_text("Pull request 1").wait_for()
    page.get_by_text("Not known:").first.wait_for()
    visitor.check("service")

    # A change: the form holds the present answers.
    page.get_by_role("link", name="Change", exact=True).click()
    assert page.get_by_label("Concurrent users").input_value() == "4"
    page.get_by_label("Concurrent users").fill("6")
    visitor.plan_says("What changes")
    page.get_by_label("Reason").fill("The fair begins on Monday.")
    visitor.check("edit")
    page.get_by_role("button", name="Open the pull request").click()
    visitor.sees_pull_request()
    assert beside(site.pull).title == "Change dev/support-chat: concurrent_users 6"
    assert "The fair begins on Monday." in beside(site.pull).body
    beside(site.merge)

    visitor.go("/services/dev/support-chat/promote")
    visitor.check("promote")

    # The removal, without a mouse.
    visitor.go("/services/dev/support-chat/retire")
    visitor.check("retire")
    page.get_by_label("Reason").focus()
    page.keyboard.type("Nobody asks it.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    visitor.sees_pull_request()
    assert beside(site.pull).title == "Retire dev/support-chat"
    assert all(site.server.developer.secret not in line for line in server.printed)


class Cluster(NoCluster):
    """With figures that came, stayed away, and were nought."""

    def metrics(self, inputs: PlanningInputs, environment: str, service: str) -> Measured:
        waves: list[float | None] = [0.3 + number % 7 / 10 for number in range(30)]
        gaps: list[float | None] = [None] * 30
        courses: tuple[list[float | None], ...] = ([*gaps[:12], 0.9, *gaps[:5], *waves[18:]], waves, [0.0] * 30, gaps)
        names = ("first token p95", "tokens out", "requests waiting", "inter-token p50")
        values = (("1.23 s", "950 ms", "> 1.2 s"), ("1,234/s", "987/s", "1,500/s"), ("0",) * 3, ("no requests",) * 3)
        rows = (
            Figure(name, *words, chart(course, "15 min", lambda value: f"{value:.2g} s"))
            for name, words, course in zip(names, values, courses, strict=True)
        )
        return Measured("2 of 3 pods answer, newest sample 4 s ago", "15 min", tuple(rows))


def test_measured_figures_are_whole_wide_and_narrow(clone: Path) -> None:
    pending_changes = FakePendingChanges(clone, PlanningInputs(CATALOG, SETTINGS, TEMPLATE))
    with listening(pending_changes, Cluster()) as port, chromium() as launched:
        context = launched.new_context(viewport=WIDE)
        visitor = Visitor(context.new_page(), f"http://127.0.0.1:{port}")
        page = visitor.page
        visitor.go("/sign-in?to=/services/dev/support-chat")
        page.get_by_label("Token of the forge").fill(DEVELOPER)
        page.get_by_role("button", name="Sign in").click()
        told = "first token p95 over 15 min: lowest 0.3 s, highest 0.9 s; nothing measured in 17 of 30 parts"
        drawn = page.get_by_role("img", name=told)
        drawn.wait_for()
        assert drawn.locator("polyline").count() == 2
        for width in (1280, 400, 360):
            page.set_viewport_size({"width": width, "height": 900})
            table = page.get_by_role("region", name="Measured figures")
            hidden = table.evaluate("one => one.scrollWidth - one.clientWidth")
            assert hidden <= 0, f"{hidden} pixels of the table are cut off at {width}"
            sizes = [box.bounding_box() for box in table.get_by_role("img").all()]
            assert all(box["width"] >= 60 and 10 <= box["height"] <= 40 for box in sizes), sizes
        visitor.check("service-measured")
        assert visitor.faults == []
    pending_changes.close()


def test_the_form_works_without_a_script(browser: Any, server: Server) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{server.url}/new")
    page.get_by_label("Service name").fill("support-chat")
    page.get_by_label("Model", exact=True).select_option("google/gemma-4-26B-A4B-it-qat-w4a16-ct")
    page.get_by_label("Team").select_option("team-alpha")
    page.get_by_label("Environment").select_option("dev")
    page.get_by_label("Longest prompt").fill("1000000")
    page.get_by_label("Longest prompt").press("Enter")
    page.get_by_text("Cannot be served").wait_for()
    page.get_by_role("button", name="Use this").first.click()
    page.get_by_text("Fits").first.wait_for()
    page.get_by_label("Service name").fill("Not A Name")
    page.get_by_role("button", name="Open the pull request").click()
    fault = page.get_by_role("alert")
    fault.get_by_text("Write 1 to 40 lower-case letters").wait_for()
    context.close()
