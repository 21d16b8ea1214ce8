"""Backstage and the pages beside the whole local platform: from sign-in to a service that answers, its change, and its
removal."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backstage_pages import FORM, Backstage, Person, chromium
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.interface import PullRequest
from neuroscale.forge.rest import Forge, wait_for_status
from neuroscale.local.forge_accounts import MAINTAINER
from neuroscale.local.forge_repository import REQUIRED_STATUS
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.state import State
from portal_lab import beside
from repositories import copy_of_the_example_repository
from waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]

SERVICE = "local/shop-chat"
_JUDGED, _READY = 300.0, 600


@dataclass(frozen=True)
class Platform:
    """A running local platform. `clone`: a person's clone, in which they type commands."""

    clone: Path
    state: Path
    backstage: Backstage
    pages: str
    token_file: Path

    def type(self, *words: str, expect: int | None = 0) -> str:
        """What a command prints."""
        command = [sys.executable, "-P", "-m", "neuroscale", *words, "--state", str(self.state)]
        done = subprocess.run(command, cwd=self.clone, capture_output=True, text=True, timeout=900, check=False)
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        return done.stdout

    def merge(self, url: str) -> PullRequest:
        """Wait until the forge's gate passes a pull request, approve and merge it as the owner, and pull."""
        forge = self._forge()
        pull = forge.pull(int(url.rsplit("/", 1)[1]))

        def has_passed() -> bool:
            said = wait_for_status(forge, pull.head_sha, REQUIRED_STATUS, _JUDGED)
            # A newer run of the gate ends an older one on the same commit.
            assert said.state == "success" or "cancelled" in said.description, said
            return said.state == "success"

        wait_for(has_passed, _JUDGED, "the gate passes")
        forge.approve(pull.number, pull.head_sha)
        forge.merge(pull.number, pull.head_sha)
        subprocess.run(["git", "pull", "--quiet", "local", "main"], cwd=self.clone, check=True, timeout=60)
        return forge.pull(pull.number)

    def status(self) -> dict[str, Any]:
        """The service's state, once it is ready."""
        found = json.loads(self.type("status", SERVICE, "--json", "--wait", str(_READY)))["services"]
        assert len(found) == 1
        return dict(found[0])

    def is_gone(self) -> bool:
        """Whether the cluster has the service no more."""
        found = json.loads(self.type("status", "--environment", "local", "--json", expect=None))["services"]
        return SERVICE not in [f"{one['environment']}/{one['name']}" for one in found]

    def _forge(self) -> Forge:
        state = State.read(self.state)
        assert state is not None
        local = LocalForge(state)
        return GiteaForge(local.platform, local.account(MAINTAINER).token())


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="neuroscale-live-") as scratch:
        Path(scratch).chmod(0o755)  # the forge's user enters it
        made = copy_of_the_example_repository(Path(scratch) / "clone")
        made.commit({})
        made.git.close()
        state = Path(scratch) / "state"

        def local(*words: str) -> str:
            command = [sys.executable, "-P", "-m", "neuroscale", "local", *words, "--state", str(state)]
            done = subprocess.run(command, cwd=made.root, capture_output=True, text=True, timeout=1200, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        try:
            told = local("up", "--with", "portal")
            pages = re.search(r"on a page: (http://\S+) \(sign in with the token in (\S+)\)", told)
            portal = re.search(r"in Backstage: (http://\S+) \(enter as a guest\)", told)
            remote = re.search(r"git remote add local (\S+)", told)
            assert pages is not None, told
            assert portal is not None, told
            assert remote is not None, told
            subprocess.run(["git", "remote", "add", "local", remote[1]], cwd=made.root, check=True)
            backstage = Backstage(portal[1])
            wait_for(backstage.is_ready, 120, "the template and the teams in the catalog")
            yield Platform(made.root, state, backstage, pages[1].rstrip("/"), Path(pages[2]))
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                local("down", "--delete")


def test_a_service_is_asked_for_answers_is_changed_and_retired(platform: Platform) -> None:
    with chromium() as page:
        person = Person(page, platform.backstage)

        # From the form to a model that answers.
        person.enter(FORM)
        page.get_by_text("Language model behind a URL").first.wait_for()
        person.fill_in(Service_name="shop-chat")
        person.choose("Model", "Tiny mixture of experts")
        person.choose("Team", "team-alpha")
        person.choose("Environment", "local")
        person.press("Next")
        person.fill_in(Concurrent_users="2", Longest_prompt="896", Longest_answer="256", Time_to_first_token="20")
        person.press("Review", "Create")
        address = person.opened()
        pull = beside(lambda: platform.merge(address))
        assert (pull.state, pull.author) == ("merged", "developer")
        first = platform.status()
        assert platform.type("query", SERVICE, "Hello", "--max-tokens", "8").strip()

        # Its change, by the link of its page in the catalog.
        wait_for(lambda: platform.backstage.entity("component", "shop-chat.local"), 60, "the service in the catalog")
        person.go("/catalog/default/component/shop-chat.local")
        own = str(person.page.get_by_role("link", name="State, history").get_attribute("href"))
        person.picture("live-service")
        person.follow("Change this service")
        person.press("Next")
        assert person.page.get_by_label("Concurrent users").first.input_value() == "2"
        person.fill_in(Concurrent_users="3")
        person.press("Review", "Create")
        address = person.opened()
        beside(lambda: platform.merge(address))
        second = platform.status()
        assert second["generation"] > first["generation"]
        assert (second["verdict"], second["replicas_ready"]) == ("ready", 1)

        # Its own page: what the cluster says of it, and its removal.
        page = person.page
        page.goto(f"{platform.pages}/sign-in")
        page.get_by_label("Token of the forge").fill(platform.token_file.read_text().strip())
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Signed in as developer").wait_for()
        page.goto(own)
        page.get_by_text("1 of 1 ready").wait_for()
        page.get_by_role("link", name="Retire").click()
        page.get_by_label("Reason").fill("The fair is over.")
        page.get_by_role("button", name="Open the pull request").click()
        page.wait_for_url("**/pull-requests/*", timeout=180_000)
        address = page.url
        beside(lambda: platform.merge(address))
        page.get_by_text("Merged. Argo CD carries it out").wait_for()
        gone = f"no service {SERVICE} any more"
        page.get_by_text(gone).wait_for()
        wait_for(lambda: platform.is_gone(), 180, "the service is gone from the cluster")
