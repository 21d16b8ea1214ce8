"""A running Backstage: its backend as the guest asks it, and its pages as a person in a browser uses them."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from platform_repository import TEMPLATE

FORM = "/create/templates/default/llm-inference-service"
_PICTURES = os.environ.get("NEUROSCALE_PORTAL_PICTURES", "")
_OPENS_WITHIN = 180_000  # milliseconds until a pull request is open: the gate judges the change first


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

    def is_ready(self) -> bool:
        """Whether its catalog has the template and the teams."""
        try:
            return all(
                self.entity(kind, name)
                for kind, name in (("template", "llm-inference-service"), ("group", "team-alpha"))
            )
        except (httpx.HTTPError, ValueError, KeyError):
            return False

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


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A page of Debian's Chromium, found on the path. What asks the forge meanwhile goes through `beside`."""
    program = shutil.which("chromium")
    assert program, "Chromium is missing: apt-get install chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(60_000)
        try:
            yield context.new_page()
        except Exception:
            for tab in context.pages:
                print(f"{tab.url} shows:\n{tab.locator('body').inner_text()[-3000:]}")
            raise
        finally:
            browser.close()


@dataclass
class Person:
    """Somebody in front of Backstage's pages. `page` is the tab that they look at."""

    page: Any
    backstage: Backstage

    def enter(self, path: str) -> None:
        """Open a page, and sign in as the guest."""
        self.page.goto(f"{self.backstage.url}{path}")
        self.page.get_by_role("button", name="Enter").click()

    def go(self, path: str) -> None:
        """Open a page."""
        self.page.goto(f"{self.backstage.url}{path}")

    def picture(self, name: str) -> None:
        """Keep a picture, where somebody wants some."""
        if _PICTURES:
            self.page.mouse.move(700, 5)  # away from Backstage's menu, which unfolds under a mouse
            self.page.wait_for_timeout(800)
            self.page.screenshot(path=f"{_PICTURES}/backstage-{name}.png", full_page=True)

    def fill_in(self, **answers: str) -> None:
        """Write answers into fields, by the beginning of their labels with `_` for spaces."""
        for label, answer in answers.items():
            self._labelled(label.replace("_", " ")).fill(answer)

    def choose(self, label: str, choice: str) -> None:
        """Choose an answer of a list."""
        self._labelled(label).click()
        self.page.get_by_role("option").filter(has_text=choice).first.click()

    def _labelled(self, beginning: str) -> Any:
        # From the beginning: a list's own label holds the choice, too.
        return self.page.get_by_label(re.compile(f"^{re.escape(beginning)}")).first

    def press(self, *buttons: str) -> None:
        """Press buttons, each as it appears."""
        for button in buttons:
            self.page.get_by_role("button", name=button).click()

    def opened(self) -> str:
        """The address of the pull request, once it is open."""
        link = self.page.get_by_role("link", name="Pull request")
        link.wait_for(timeout=_OPENS_WITHIN)
        return str(link.get_attribute("href"))

    def follow(self, link: str) -> None:
        """Follow a link that opens a tab of its own, and look at that."""
        with self.page.expect_popup() as tab:
            self.page.get_by_role("link", name=link).click()
        self.page = tab.value
