"""The routes for a portal: who may open a pull request, in whose name, and what an answer says."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from plan_factory import ANSWERS
from portal_lab import DEVELOPER, OWN, PORTAL, FakePendingChanges, browser

ROUTE = "/api/v1/pull-request"


def ask(pending_changes: FakePendingChanges, token: str = "", **body: Any) -> httpx.Response:
    headers = [("content-type", "application/json")]
    headers += [("authorization", f"Bearer {token}")] if token else []
    content = json.dumps({"answers": ANSWERS, **body})
    return browser(pending_changes).ask("POST", ROUTE, content=content, headers=headers)


def test_a_persons_token_opens_it_as_that_person(pending_changes: FakePendingChanges) -> None:
    changed = {**ANSWERS, "concurrent_users": 6}
    answer = ask(pending_changes, DEVELOPER, answers=changed)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert {name: body[name] for name in ("outcome", "environment", "service", "number", "url", "branch")} == {
        "outcome": "opened",
        "environment": "dev",
        "service": "support-chat",
        "number": 7,
        "url": "https://forge.example/7",
        "branch": "neuroscale/dev/support-chat",
    }
    (brought,) = pending_changes.brought
    assert (brought.person.name, brought.person.asked_by) == ("developer", "")


def test_the_portals_token_opens_it_for_the_person_that_it_names(pending_changes: FakePendingChanges) -> None:
    assert ask(pending_changes, PORTAL.secret, asked_by="user:default/jane").status_code == 200
    (brought,) = pending_changes.brought
    assert (brought.person.token, brought.person.asked_by) == (OWN, "user:default/jane")


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        ("", {}, 401),
        ("", {"asked_by": "jane"}, 401),
        ("w" * 40, {}, 502),
        ("short", {}, 422),
        (PORTAL.secret, {}, 422),
        (PORTAL.secret, {"asked_by": "a\nb"}, 422),
        (PORTAL.secret, {"asked_by": ["jane"]}, 422),
        (DEVELOPER, {"asked_by": "jane"}, 422),
        (DEVELOPER, {"answers": []}, 422),
        (DEVELOPER, {"answers": {**ANSWERS, "model": "nobody-knows-it"}}, 422),
        (DEVELOPER, {"answers": {**ANSWERS, "overrides": []}}, 422),
        (DEVELOPER, {"force": True}, 422),
    ],
)
def test_nobody_else_opens_one(
    pending_changes: FakePendingChanges, token: str, body: dict[str, Any], status: int
) -> None:
    answer = ask(pending_changes, token, **body)
    assert answer.status_code == status
    assert list(answer.json())[:4] == ["message", "schema_version", "verdict", "problems"]
    assert "Traceback" not in answer.text
    assert not token or token not in answer.text
    assert pending_changes.brought == []


def test_a_refusal_is_the_planners_sentence_with_what_works(pending_changes: FakePendingChanges) -> None:
    answer = ask(pending_changes, DEVELOPER, answers={**ANSWERS, "longest_prompt_tokens": 1_000_000})
    assert answer.status_code == 422
    body = answer.json()
    assert body["verdict"] == "refused"
    assert body["message"].startswith("support-chat cannot be served: ")
    (first, *_) = body["plan"]["alternatives"]
    mended = {**ANSWERS, "longest_prompt_tokens": 1_000_000, **first["answers"]}
    assert ask(pending_changes, DEVELOPER, answers=mended).status_code == 200


def test_a_services_answers_fill_a_form_in(pending_changes: FakePendingChanges) -> None:
    place = "/api/v1/services/dev/support-chat/answers"
    client = browser(pending_changes)
    assert client.get(place).status_code == 401
    for token in (DEVELOPER, PORTAL.secret):
        client.headers = [("authorization", f"Bearer {token}")]
        assert client.get(place).json()["answers"] == ANSWERS
    assert client.get("/api/v1/services/dev/nobody/answers").status_code == 404
