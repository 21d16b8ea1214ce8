"""The pages without a script and without a forge: what they show, whom they let in, and what they ask for."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import Request
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.forge.after_merge.comments import MARKER as SMOKE_MARKER
from neuroscale.forge.after_merge.comments import Record
from neuroscale.forge.interface import Account, Comment, CommitStatus
from neuroscale.forge.main_protection import REQUIRED_CHECK
from neuroscale.portal import exposure, kept_answers, rendering
from neuroscale.portal.app import create_app
from neuroscale.portal.exposure import exposure_at
from neuroscale.portal.form_fields import sheet
from neuroscale.portal.people import SESSION, People
from neuroscale.portal.plan_panel import live_panel
from neuroscale.portal.services import Figure, Measured, RemovalSentences, chart
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
    browser,
    finished,
    signed_in,
)
from waiting import wait_for

HOSTILE = "\"><script>alert(1)</script>'{{7*7}}\u202e"
INPUTS = PlanningInputs(CATALOG, SETTINGS, TEMPLATE)
PROXY = "10.0.0.5"
BEHIND = exposure_at("0.0.0.0", 8088, "https://models.example.com", (PROXY,), "X-User")


def send(client: Client, path: str, fields: dict[str, Any]) -> httpx.Response:
    return client.send_form(path, fields)


def test_the_form_asks_what_the_template_asks(pending_changes: FakePendingChanges) -> None:
    text = browser(pending_changes).get("/new").text
    for name, schema in TEMPLATE.form().items():
        assert f'<label for="{name}">{schema["title"]}' in text
        assert f'id="error-{name}"' in text
        for choice in schema.get("enum", ()):
            assert f'<option value="{choice}"' in text
    assert '<optgroup label="Gemma 4">' in text
    assert 'id="concurrent_users" name="concurrent_users" value="8"' in text
    assert " style=" not in text
    assert "<script src=" in text
    assert not re.search(r"<script(?! src)|\son[a-z]+=|<style", text)


def test_the_plan_changes_with_the_answers_and_a_refusal_names_what_works(pending_changes: FakePendingChanges) -> None:
    client = browser(pending_changes)
    answers = {name: str(value) for name, value in ANSWERS.items() if name not in ("service", "team")}
    made = send(client, "/plan", answers).text
    assert "Fits" in made
    assert "Price a month" in made
    assert "First token" in made
    refused = send(client, "/plan", {**answers, "longest_prompt_tokens": "1000000"}).text
    assert "Cannot be served" in refused
    fill = unescape(re.findall(r'name="fill" value="([^"]*)"', refused)[0])
    mended = send(client, "/new", {**answers, "longest_prompt_tokens": "1000000", "fill": fill}).text
    assert "Cannot be served" not in mended
    assert 'value="1000000"' not in mended
    assert pending_changes.brought == []


def test_a_mistake_stands_at_its_field(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    answer = send(client, "/new", {**ANSWERS, "p95_ttft_seconds": "soon", "service": "Not A Name", "do": "open"})
    assert answer.status_code == 422
    for name in ("p95_ttft_seconds", "service"):
        assert re.search(rf'id="{name}"[^>]*aria-describedby="[^"]*error-{name}"[^>]*aria-invalid="true"', answer.text)
        assert f'<a href="#{name}">' in answer.text
    assert 'role="alert" tabindex="-1" autofocus' in answer.text
    assert pending_changes.brought == []


def test_nobody_opens_a_pull_request_without_a_token_and_the_answers_stay(pending_changes: FakePendingChanges) -> None:
    client = browser(pending_changes)
    asked = send(client, "/new", {**ANSWERS, "do": "open"}).text
    carried = dict(re.findall(r'name="(answer\.[a-z0-9_]+)" value="([^"]*)"', asked))
    assert carried["answer.service"] == "support-chat"
    wrong = send(client, "/sign-in", {**carried, "token": "w" * 40})
    assert wrong.status_code == 422
    assert "w" * 40 not in wrong.text
    answer = send(client, "/sign-in", {**carried, "token": DEVELOPER})
    cookie = next(text for text in answer.headers.get_list("set-cookie") if text.startswith("neuroscale_session="))
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    again = client.get(answer.headers["location"])
    assert 'name="service" value="support-chat"' in again.text
    assert "Signed in as <strong>developer</strong>" in again.text
    assert DEVELOPER not in again.text + answer.headers["location"]
    finished(client, send(client, "/new", {**ANSWERS, "do": "open"}))
    (brought,) = pending_changes.brought
    assert (brought.person.name, brought.person.asked_by, brought.path.name) == ("developer", "", "dev/support-chat")


def test_a_change_is_refused_by_the_plan_of_main_and_shows_why(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    shown = finished(client, send(client, "/new", {**ANSWERS, "longest_prompt_tokens": "1000000", "do": "open"}))
    assert "Cannot be served" in shown
    place = re.search(r'href="(/new\?change=[^"]+)"', shown)
    assert place is not None
    assert 'value="1000000"' in client.get(place[1]).text


class SilentCluster(NoCluster):
    """A cluster that takes requests and does not answer them before it is let."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0

    def statuses(self, *_: object) -> list[ServiceStatus]:
        self.asked += 1
        self.answers.wait(30)
        return super().statuses(INPUTS, "", "")

    def metrics(self, *_: object) -> Measured:
        return super().metrics(INPUTS, str(len(self.statuses())), "")

    def retiring(self, reason: str) -> RemovalSentences:
        return lambda *_: [str(len(self.statuses()))]


def test_a_cluster_that_does_not_answer_holds_up_no_page(
    pending_changes: FakePendingChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "_WAITS", 0.3)
    cluster = SilentCluster()
    client = Client(create_app(pending_changes, cluster, EXPOSURE), ADDRESS, "127.0.0.1")
    assert client.send_form("/sign-in", {"token": DEVELOPER}).status_code == 303
    place = "/services/dev/support-chat"
    try:
        for _ in range(2):
            listed = client.get("/services/states").text
            assert "team-alpha" in listed
            assert "States are not known: no answer came within 0.3 s" in listed
            for part in ("state", "metrics"):
                assert "Not known: no answer came within 0.3 s" in client.get(f"{place}/{part}").text
            assert "is not known: no answer came within 0.3 s" in client.get(f"{place}/retire").text
        assert cluster.asked == 4  # each question once
    finally:
        cluster.answers.set()
    wait_for(lambda: "cannot be asked" in client.get(f"{place}/state").text, what="what the cluster says in the end")


def test_a_figures_course_is_drawn_and_told(pending_changes: FakePendingChanges) -> None:
    class Cluster(NoCluster):
        def metrics(self, *_: object) -> Measured:
            drawn = chart([None, 1.0, 4.0, None, 0.0, 2.0], "15 min", lambda value: f"{value:g} s")
            return Measured("It answers", "15 min", (Figure(HOSTILE, "1 s", "2 s", "4 s", drawn),))

    client = Client(create_app(pending_changes, Cluster(), EXPOSURE), ADDRESS, "127.0.0.1")
    assert client.send_form("/sign-in", {"token": DEVELOPER}).status_code == 303
    text = client.get("/services/dev/support-chat/metrics").text
    assert re.findall(r'<polyline points="([^"]*)">', text) == [
        "60.0,30.0 90.0,30.0 110.0,0.0 140.0,0.0",
        "210.0,40.0 240.0,40.0 260.0,20.0 290.0,20.0",
    ]
    assert "over 15 min: lowest 0 s, highest 4 s; nothing measured in 2 of 6 parts" in text
    assert not re.search(r"<script|style=|[▁-█]", text)
    assert chart([None, None], "15 min", str).told == "over 15 min; nothing measured in 2 of 2 parts"
    assert chart([0.0], "15 min", str).lines == ("60.0,40.0 240.0,40.0",)


def test_a_page_names_its_own_fields_where_a_command_names_its_options(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    place = "/services/dev/support-chat/promote"
    refused = send(client, place, {"to": "mars", "availability": "high", "reason": ""})
    ended = finished(client, send(client, place, {"to": "dev", "availability": "high", "reason": ""}))
    for page, words in ((refused.text, "is not an environment"), (ended, "is in dev already")):
        assert "<code>Environment</code>" in page
        assert words in page
        assert not re.search(r"--to|command line|neuroscale request|[\ue000\ue001]", page)


def test_a_service_is_shown_changed_promoted_and_retired(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    listed = client.get("/services").text
    assert "asking" in listed
    assert "team-alpha" in listed
    states = client.get("/services/states").text
    assert "not known" in states
    assert "cannot be asked" in states
    page = client.get("/services/dev/support-chat").text
    assert "/services/dev/support-chat/edit" in page
    assert "Not known" in client.get("/services/dev/support-chat/state").text
    assert "Not known" in client.get("/services/dev/support-chat/metrics").text
    assert "Serve it" in client.get("/services/dev/support-chat/history").text
    edit = client.get("/services/dev/support-chat/edit").text
    assert 'name="concurrent_users" value="4"' in edit
    assert "<output>support-chat</output>" in edit

    place = "/services/dev/support-chat"
    fields = {name: str(value) for name, value in ANSWERS.items()}
    nothing = send(client, f"{place}/edit", {**fields, "do": "open"})
    assert (nothing.status_code, "changes nothing" in nothing.text) == (422, True)
    plan = send(client, f"{place}/plan", {**fields, "concurrent_users": "6"}).text
    assert "What changes" in plan
    assert "The merge:" in plan
    # Which service it is does not change, whatever is sent.
    changed = {**fields, "concurrent_users": "6", "service": "other", "team": "team-beta", "reason": "A fair."}
    finished(client, send(client, f"{place}/edit", {**changed, "do": "open"}))
    finished(client, send(client, f"{place}/promote", {"to": "prod", "availability": "high", "reason": ""}))
    finished(client, send(client, f"{place}/retire", {"reason": "Nobody asks it."}))
    first, second, third = pending_changes.brought
    assert first.request is not None
    assert first.request.model_dump(include={"service", "team", "concurrent_users"}) == {
        "service": "support-chat",
        "team": "team-alpha",
        "concurrent_users": 6,
    }
    assert "Why: A fair." in first.message
    assert second.request is not None
    assert (second.path.name, second.request.availability) == ("prod/support-chat", "high")
    assert (third.path.name, third.request) == ("dev/support-chat", None)
    assert "Why: Nobody asks it." in third.message


def test_a_pull_request_shows_its_checks_as_they_arrive(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    assert "The gate is judging it" in client.get("/pull-requests/7").text
    gate = REQUIRED_CHECK["gitea"]
    pending_changes.forge.reported = [CommitStatus(gate, "failure", "Has been cancelled", "")]
    text = client.get("/pull-requests/7/state").text
    assert ("A run of the gate was cancelled" in text, "The gate refuses it" in text) == (True, False)
    pending_changes.forge.reported = [CommitStatus(gate, "failure", HOSTILE, "https://forge.example/log")]
    pending_changes.forge.said = [Comment(1, "gate", f"{MARKER}\n## \N{CROSS MARK} 2 findings refuse it\n")]
    text = client.get("/pull-requests/7/state").text
    assert "The gate refuses it" in text
    assert "2 findings refuse it" in text
    assert "<script>alert" not in text


@pytest.mark.parametrize(("service", "leads"), [("support-chat", True), ("retired-chat", False)])
def test_a_merged_pull_request_leads_to_its_service_while_there_is_one(
    pending_changes: FakePendingChanges, service: str, leads: bool
) -> None:
    client = signed_in(pending_changes)
    merged = replace(PULL, state="merged", head_branch=f"neuroscale/dev/{service}")
    pending_changes.forge.now = merged
    text = client.get("/pull-requests/7").text
    assert "Merged. Argo CD carries it out" in text
    assert (f'href="/services/dev/{service}"' in text) == leads
    assert (f"no service dev/{service} any more" in text) != leads


def test_a_merged_pull_request_is_asked_for_seldom_until_it_is_tested(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    pending_changes.forge.now = replace(PULL, state="merged", head_branch="neuroscale/dev/support-chat")
    for outcome, waits in ((None, True), ("waiting", True), ("passed", False), ("failed", False)):
        if outcome is not None:
            record = Record({"dev/support-chat": (outcome, ())}).line()
            body = f"{SMOKE_MARKER}\n## Smoke tests\n{record}\n"
            pending_changes.forge.said = [Comment(1, "smoke", body)]
        text = client.get("/pull-requests/7/state").text
        assert ("data-wait=" in text, "data-over" in text) == (waits, not waits), outcome


def test_the_services_are_shown_while_the_forge_does_not_answer(
    pending_changes: FakePendingChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = signed_in(pending_changes)
    pending_changes.is_down = True
    failed = client.get("/services")
    assert (failed.status_code, "does not answer" in failed.text) == (502, True)
    pending_changes.is_down = False
    assert client.get("/services").status_code == 200
    pending_changes.is_down = True
    monkeypatch.setattr("neuroscale.portal.pending_changes._FRESH", 0.0)
    shown = client.get("/services")
    assert (shown.status_code, "Pull requests are not known: The forge does not" in shown.text) == (200, True)
    assert "dev/support-chat" in shown.text


@pytest.mark.parametrize("path", ["/services", "/services/dev/support-chat", "/pull-requests/7", "/changes/x"])
def test_a_stranger_is_asked_to_sign_in(pending_changes: FakePendingChanges, path: str) -> None:
    answer = browser(pending_changes).get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sign-in?to={path}")


def test_a_change_is_shown_to_nobody_else(pending_changes: FakePendingChanges) -> None:
    place = send(signed_in(pending_changes), "/new", {**ANSWERS, "do": "open"}).headers["location"]
    app_of_other = signed_in(pending_changes, OTHER)
    assert app_of_other.get(place).status_code == 404


def test_an_account_that_signs_in_again_and_again_signs_out_nobody_else() -> None:
    people = People(EXPOSURE, lambda token: Account(token.secret[:16], "", ""))

    def is_signed_in(session: str) -> bool:
        return (
            people.of(Request({"type": "http", "headers": [(b"cookie", f"{SESSION}={session}".encode())]})) is not None
        )

    first = people.sign_in("jane" * 10)
    own = [people.sign_in("mallory." * 5) for _ in range(1500)]
    assert is_signed_in(first)
    assert [is_signed_in(one) for one in own[-20:]] == [True] * 20
    assert sum(map(is_signed_in, own)) == 20
    for number in range(2000):
        people.sign_in(f"somebody-{number:07}")
    assert not is_signed_in(first), "the memory is bounded all the same"


_PLANNING: list[tuple[str, str]] = [
    ("GET", "/new"),
    ("POST", "/new"),
    ("POST", "/plan"),
    ("GET", "/api/v1/plan"),
    ("POST", "/api/v1/plan"),
    ("POST", "/services/dev/support-chat/plan"),
    ("POST", "/services/dev/support-chat/edit"),
]


@pytest.mark.parametrize(("method", "path"), _PLANNING)
def test_who_lets_the_server_plan_without_end_waits_and_nobody_else(
    pending_changes: FakePendingChanges, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    app = create_app(pending_changes, NoCluster(), EXPOSURE, OWN, PORTAL)
    monkeypatch.setattr(exposure, "PLANS_AT_ONCE", 0.0)
    monkeypatch.setattr(exposure, "PLANS_LATER", 1e-6)
    answers = {**ANSWERS, "concurrent_users": "6"}

    def ask(client: Client) -> httpx.Response:
        if method == "GET":
            return client.ask(method, path, params={"answers": json.dumps(ANSWERS)})
        if path.startswith("/api/"):
            headers = [("content-type", "application/json")]
            return client.ask(method, path, content=json.dumps(ANSWERS), headers=headers)
        return client.send_form(path, answers)

    somebody, other = Client(app, ADDRESS, "127.0.0.1"), Client(app, ADDRESS, "127.0.0.2")
    if path.startswith("/services"):
        for client, token in ((somebody, DEVELOPER), (other, OTHER)):
            assert client.send_form("/sign-in", {"token": token}).status_code == 303
    assert ask(somebody).status_code == 200
    refused = ask(somebody)
    assert (refused.status_code, "Ask again in" in refused.text) == (429, True)
    assert int(refused.headers["retry-after"]) > 0
    assert ask(other).status_code == 200


def test_planning_time_is_forgiven_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [1000.0], [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: used[0])
    monkeypatch.setattr(exposure, "time", clock)
    allowance = exposure.Allowance()

    def plan(seconds: float) -> None:
        with allowance.planning("somebody"):
            used[0] += seconds

    plan(exposure.PLANS_AT_ONCE + 1)
    with pytest.raises(exposure.TooMuchError) as refused:
        plan(1)
    now[0] += refused.value.seconds
    plan(1)
    with allowance.planning("other"):
        pass


def test_signing_out_ends_the_session(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    session = str(client.cookies.get("neuroscale_session"))
    assert send(client, "/sign-out", {}).status_code == 303
    client.cookies.set("neuroscale_session", session)
    assert client.get("/services").status_code == 303


def test_a_person_waits_for_their_own_changes_first(pending_changes: FakePendingChanges) -> None:
    client = signed_in(pending_changes)
    pending_changes.waits = threading.Event()
    try:
        answers = [send(client, "/new", {**ANSWERS, "service": f"s{index}", "do": "open"}) for index in range(4)]
    finally:
        pending_changes.waits.set()
    assert [one.status_code for one in answers] == [303, 303, 303, 503]
    assert 'name="service" value="s3"' in answers[3].text


# a proxy that says who asks


def test_the_person_whom_the_proxy_names_stands_in_the_pull_request(pending_changes: FakePendingChanges) -> None:
    client = browser(pending_changes, BEHIND, "https://models.example.com", PROXY)
    client.headers = [("X-User", "jane")]
    page = client.get("/new")
    assert "Signed in as <strong>jane</strong>" in page.text
    assert "; secure" in page.headers["set-cookie"].lower()
    finished(client, send(client, "/new", {**ANSWERS, "do": "open"}))
    (brought,) = pending_changes.brought
    assert (brought.person.token, brought.person.asked_by) == (OWN, "jane")


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("10.0.0.6", [("X-User", "jane")], 403),
        ("127.0.0.1", [("X-User", "jane")], 403),
        (PROXY, [], 403),
        (PROXY, [("X-User", "jane"), ("X-User", "root")], 422),
        (PROXY, [("X-User", "a" * 101)], 422),
        (PROXY, [("X-User", " ")], 422),
    ],
)
def test_nobody_else_names_a_person(
    pending_changes: FakePendingChanges, peer: str, headers: list[tuple[str, str]], status: int
) -> None:
    client = browser(pending_changes, BEHIND, "https://models.example.com", peer)
    client.headers = headers
    assert client.get("/services").status_code == status


def test_a_proxy_is_known_by_its_address_in_either_form_and_anybody_may_ask_whether_the_server_lives(
    pending_changes: FakePendingChanges,
) -> None:
    client = browser(pending_changes, BEHIND, "https://models.example.com", f"::ffff:{PROXY}")
    client.headers = [("X-User", "jane")]
    assert client.get("/new").status_code == 200
    assert browser(pending_changes, BEHIND, "http://10.9.9.9:8088", "10.9.9.1").get("/healthz").status_code == 200


# texts from outside


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(ANSWERS)), st.text(max_size=40) | st.just(HOSTILE), min_size=1))
def test_no_answer_becomes_markup(changes: dict[str, str]) -> None:
    answers = {**ANSWERS, **changes}
    renderer = rendering.Renderer(People(EXPOSURE, lambda _: None), secure=False)  # type: ignore[arg-type, return-value]
    inputs_panel = live_panel(answers, INPUTS)
    shown = sheet(TEMPLATE, answers)
    page = renderer.page(
        _Plain(),  # type: ignore[arg-type]
        "form.html",
        title=HOSTILE,
        sheet=shown,
        panel=inputs_panel,
        titles=shown.titles,
        action="/new",
        plan_at="/plan",
        submit="Open",
        missing="",
        person=None,
    )
    text = bytes(page.body).decode()
    usual = _tags()
    assert set(re.findall(r"<\s*[a-zA-Z!/][^\s>]*", text)) <= usual
    assert "\u202e" not in text


class _Plain:
    cookies = {"neuroscale_visit": "visit"}  # noqa: RUF012
    url = type("Url", (), {"path": "/new"})()


def _tags() -> set[str]:
    """Every tag that stands in a template."""
    found: set[str] = set()
    for file in (rendering.STATIC.parent / "templates").glob("*.html"):
        found |= set(re.findall(r"<\s*[a-zA-Z!/][^\s>{]*", file.read_text(encoding="utf-8")))
    return found | {"<code", "</code"}
