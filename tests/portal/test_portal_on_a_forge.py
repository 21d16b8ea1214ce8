"""The API of a portal with a real forge and the real gate: who asked, and by which main branch it is planned."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forge_server import ForgeServer
from neuroscale.forge.interface import Token
from plan_factory import ANSWERS
from portal_lab import running_server
from request_site import BRANCH, Site, make_platform, opened_site

pytestmark = pytest.mark.tools


@pytest.fixture
def site(
    forge_server: ForgeServer, kyverno_once: None, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[Site]:
    with opened_site(forge_server, make_platform(tmp_path_factory.mktemp("platform")), tmp_path) as made:
        yield made


def test_a_portal_asks_for_a_person_on_the_main_branch_of_now(site: Site) -> None:
    portal = site.folder / "portal-token"
    portal.write_text(secrets.token_hex(20))
    portal.chmod(0o600)
    own = site.server.token_file("developer")
    with running_server(site, "--portal-token-file", str(portal), "--token-file", str(own)) as server:

        def ask(answers: dict[str, Any], asked_by: str = "jane") -> httpx.Response:
            return httpx.post(
                f"{server.url}/api/v1/pull-request",
                json={"answers": answers, "asked_by": asked_by},
                headers={"Authorization": f"Bearer {portal.read_text()}"},
                timeout=120,
            )

        opened = ask(ANSWERS)
        assert (opened.status_code, opened.json()["outcome"]) == (200, "opened"), opened.text
        pull = site.pull()
        assert (pull.author, pull.head_branch) == ("developer", BRANCH)
        assert "`developer` asks, on behalf of `jane`, for a new service `dev/support-chat`." in pull.body
        assert site.commits(pull.number)[0]["commit"]["message"].rstrip().endswith("Asked-for-by: jane")
        assert ask(ANSWERS).json()["outcome"] == "unchanged"

        # The server's own checkout still has the team.
        site.push_main({"platform/catalog/teams/team-alpha.yaml": None}, "The team is gone")
        gone = ask({**ANSWERS, "service": "other-chat"})
        assert gone.status_code == 422
        assert [problem["field"] for problem in gone.json()["problems"]] == ["team"]
        assert len(site.pulls()) == 1
    assert all(secret not in "".join(server.printed) for secret in (portal.read_text(), own.read_text().strip()))


def test_who_may_not_read_the_repository_is_shown_nothing_of_it(site: Site) -> None:
    """Also if somebody who may has just looked."""
    assert site.server.api("PATCH", f"/repos/{site.ref.slug}", body={"private": True})[0] == 200
    with running_server(site) as server:

        def services(token: Token) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token.secret}"}
            return httpx.get(f"{server.url}/api/v1/services", headers=headers, timeout=60)

        shown = services(site.server.owner)
        assert (shown.status_code, "team-alpha" in shown.text) == (200, True), shown.text
        refused = services(site.server.developer)
        assert (refused.status_code, "does not let your token read" in refused.text) == (403, True)
        assert "team-alpha" not in refused.text
