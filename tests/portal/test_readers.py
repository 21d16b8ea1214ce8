"""What each route of the application shows to somebody who may read the repository, and to those who may not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.forge.interface import Comment
from neuroscale.portal import kept_answers
from neuroscale.portal.app import create_app
from neuroscale.portal.services import Measured, RemovalSentences
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.report.markdown import MARKER
from plan_factory import ANSWERS
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from portal_lab import (
    ADDRESS,
    DEVELOPER,
    EXPOSURE,
    OTHER,
    OWN,
    PORTAL,
    PULL,
    Client,
    FakePendingChanges,
    NoCluster,
    finished,
)
from repositories import Repository

_OPEN = {
    "/healthz",
    "/",
    "/sign-in",
    "/sign-out",
    "/new",
    "/plan",
    "/api/v1/plan",
    "/api/v1/catalog",
}
"""The only routes for people who may not read the repository. They plan with what the server was started with."""
_SECRETS = ("secret-team", "secret-commit", "secret-pull", "secret-comment", "secret-state", "secret-figure")
"""One text each of main's catalog, its history, the forge, the cluster, and Prometheus."""
_REFUSED = {303, 401, 403}


class Cluster(NoCluster):
    """With one service, which answers."""

    def statuses(self, inputs: PlanningInputs, environment: str, service: str) -> list[ServiceStatus]:
        return [ServiceStatus("support-chat", "team-alpha", "dev", "ready", "secret-state", "")]

    def metrics(self, inputs: PlanningInputs, environment: str, service: str) -> Measured:
        return Measured("secret-figure")

    def retiring(self, reason: str) -> RemovalSentences:
        return lambda *_: ["secret-state"]


@pytest.fixture
def lab(clone: Path, tmp_path: Path) -> Iterator[FakePendingChanges]:
    """Main knows a team that the server's own checkout does not know."""
    shutil.copytree(clone, tmp_path / "clone", dirs_exist_ok=True)
    made = Repository(tmp_path / "clone")
    team = (made.root / "platform/catalog/teams/team-alpha.yaml").read_text(encoding="utf-8")
    form, request = "templates/llm-inference-service/template.yaml", "manifests/dev/support-chat/request.yaml"
    asked = (made.root / form).read_text(encoding="utf-8")
    made.commit(
        {
            "platform/catalog/teams/secret-team.yaml": team.replace("team-alpha", "secret-team"),
            form: asked.replace("            - team-beta\n", "            - team-beta\n            - secret-team\n"),
            request: (made.root / request).read_text(encoding="utf-8") + "# Again\n",
        },
        "secret-commit",
    )
    made.git.close()
    pending_changes = FakePendingChanges(made.root, PlanningInputs(CATALOG, SETTINGS, TEMPLATE))
    pending_changes.forge.now = replace(PULL, title="secret-pull")
    pending_changes.forge.said = [Comment(1, "gate", f"{MARKER}\n## secret-comment\n")]
    pending_changes.readers.discard(OTHER)
    yield pending_changes
    pending_changes.close()


@pytest.fixture
def app(lab: FakePendingChanges) -> FastAPI:
    return create_app(lab, Cluster(), EXPOSURE, OWN, PORTAL)


def person(app: FastAPI, token: str = "") -> Client:
    """Somebody who gave a token ("": nobody)."""
    client = Client(app, ADDRESS, "127.0.0.1")
    if token:
        assert client.send_form("/sign-in", {"token": token}).status_code == 303
    return client


def walk(app: FastAPI, client: Client, key: str) -> Iterator[tuple[APIRoute, str, httpx.Response]]:
    """What every route answers, as a page's link, its form, or a program would ask."""
    places = {"environment": "dev", "service": "support-chat", "number": "7", "key": key}
    form = {**ANSWERS, "team": "secret-team", "to": "prod", "reason": "x"}
    for route in app.routes:
        if isinstance(route, Mount):
            assert route.path == "/static", f"{route.path}: add it to this test"
            continue
        assert isinstance(route, APIRoute)
        path = re.sub(r"{(\w+)}", lambda found: places[found[1]], route.path)
        for method in sorted(route.methods or ()):
            if route.path in ("/sign-in", "/sign-out") and method == "POST":
                continue
            if method == "GET":
                query = {"answers": json.dumps(ANSWERS)} if route.path in ("/new", "/api/v1/plan") else {}
                yield route, method, client.ask(method, path, params=query)
            elif route.path.startswith("/api/"):
                content = json.dumps({"answers": ANSWERS} if "pull-request" in route.path else ANSWERS)
                headers = [("content-type", "application/json")]
                yield route, method, client.ask(method, path, content=content, headers=headers)
            else:
                for more in ({}, {"do": "open"}):
                    yield route, method, client.send_form(path, {**form, **more})


def secrets_in(answer: httpx.Response) -> set[str]:
    told = answer.text + str(answer.headers)
    return {one for one in _SECRETS if one in told} - set(re.findall(r"secret-\w+", answer.request.content.decode()))


def bearer(app: FastAPI, token: str) -> Client:
    client = person(app)
    client.headers = [("authorization", f"Bearer {token}")]
    return client


def test_every_route_shows_a_reader_something_and_nobody_else_anything(lab: FakePendingChanges, app: FastAPI) -> None:
    reader = person(app, DEVELOPER)
    changed = reader.send_form("/services/dev/support-chat/retire", {"reason": "secret-pull"})
    key = changed.headers["location"].rpartition("/")[2]
    finished(reader, changed)
    brought = len(lab.brought)

    seen: set[str] = set()
    for by, is_program in ((reader, False), (bearer(app, DEVELOPER), True)):
        for route, method, answer in walk(app, by, key):
            if method == "GET" and route.path not in _OPEN and route.path.startswith("/api/") == is_program:
                assert answer.status_code == 200, route.path
            seen |= secrets_in(answer)
            if answer.headers.get("location", "").startswith("/changes/"):
                finished(by, answer)
    assert seen == set(_SECRETS), "else this test would not see what is shown to others"
    assert len(lab.brought) > brought

    brought = len(lab.brought)
    for who in (person(app), person(app, OTHER), bearer(app, OTHER), bearer(app, "w" * 40)):
        for route, method, answer in walk(app, who, key):
            told = f"{method} {route.path}: {answer.status_code}"
            assert not secrets_in(answer), told
            if route.path not in _OPEN:
                assert answer.status_code in _REFUSED | {502}, told
                assert answer.status_code != 303 or answer.headers["location"].startswith("/sign-in"), told
    assert len(lab.brought) == brought


def test_a_new_route_is_closed_unless_it_is_named(lab: FakePendingChanges, app: FastAPI) -> None:
    app.add_api_route("/reports", lambda: "secret-state", methods=["GET"])
    assert person(app, DEVELOPER).get("/reports").status_code == 200
    assert person(app, OTHER).get("/reports").status_code == 403
    assert person(app).get("/reports").headers["location"].startswith("/sign-in")


def test_a_right_that_was_taken_away_ends_within_seconds(
    lab: FakePendingChanges, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = person(app, DEVELOPER)
    monkeypatch.setattr(kept_answers, "_KEPT", 60.0)
    assert client.get("/services").status_code == 200
    lab.readers.discard(DEVELOPER)
    assert client.get("/services").status_code == 200, "the forge was asked a moment ago"
    lapse(lab)
    refused = client.get("/services")
    assert (refused.status_code, "does not let your token read" in refused.text) == (403, True)
    assert not secrets_in(refused)


def test_nothing_is_shown_while_the_forge_does_not_say_who_may_read(lab: FakePendingChanges, app: FastAPI) -> None:
    client = person(app, DEVELOPER)
    assert client.get("/services").status_code == 200
    assert "secret-team" in client.get("/new").text
    lab.is_down = True
    lapse(lab)
    for path in ("/services", "/services/states", "/services/dev/support-chat/metrics", "/new"):
        answer = client.get(path)
        assert (answer.status_code, secrets_in(answer)) == (200 if path == "/new" else 502, set()), path
    lab.is_down = False
    assert client.get("/services").status_code == 200, "an error is not kept"


def lapse(lab: FakePendingChanges) -> None:
    """Make every kept answer of who may read too old."""
    for question in lab._readers._questions.values():
        question.again_from = 0.0
