"""Writes the title and the description of a service's pull request.

The description is one section between hidden markers. Text that people write around it stays, and so does a title that
somebody changed. Text from outside (names, reasons) can become neither Markdown nor HTML, and mentions nobody.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import counted, one_line
from neuroscale.core.printable import markdown as prose
from neuroscale.core.printable import markdown_code as code
from neuroscale.forge.interface import PullRequest, RepositoryRef
from neuroscale.gate.verdict import ServiceReport
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import VERDICTS
from neuroscale.planning.rejected_choices import Considered, NotChosen
from neuroscale.rendering.scaffolder.form import FORM_FIELDS
from neuroscale.report import change_phrases, phrases
from neuroscale.request.service_request import Request, changed_answers

LONGEST_TITLE = 200
_LONGEST = 50_000  # characters of the section; forges take 65,536 of a description
_MOST = 40  # entries of a list
_SECTION = re.compile(
    r"^<!-- neuroscale-request (?P<title>[0-9a-f]{16}) -->\n.*?^<!-- /neuroscale-request -->$", re.DOTALL | re.MULTILINE
)
_ASKED_FOR = re.compile(r"^.* asks, on behalf of (?P<fence>`+)(?P<person>.+?)(?P=fence), for ")


@dataclass(frozen=True)
class Subject:
    """The content of a pull request: the request, its plan, the plan at the base (None for a new service), and the
    choices that were not made. `asked_before`: the request at the base. `quota`: the most accelerators of the plan's
    resource that the team's quota holds. `same_pods`: whether the pods stay as they are. `unfinished`: whether
    pods of an earlier version serve, since the newest does not run yet. None: not known."""

    request: Request
    plan: Plan
    before: Plan | None
    not_chosen: NotChosen
    is_new: bool
    asked_before: Request | None = None
    quota: int | None = None
    same_pods: bool | None = None
    unfinished: bool | None = None

    @cached_property
    def report(self) -> ServiceReport:
        """What the gate would say of the service."""
        before, plan = self.asked_before, self.plan
        return ServiceReport(
            environment=plan.environment,
            name=plan.service,
            change="added" if self.is_new else "changed",
            plan=plan,
            plan_before=self.before,
            answers=changed_answers(before, self.request) if before is not None else (),
            same_pods=self.same_pods,
            quota=self.quota,
            unfinished=self.unfinished,
        )


def title_of_change(name: str, before: Request, after: Request) -> str:
    """The title of a pull request that changes a service of main, by the fields that change; "" where none does."""
    fields = changed_answers(before, after)
    told = ", ".join(f"{one.field} {'left out' if one.after is None else one.after}" for one in fields)
    return f"Change {name}: {told}" if told else ""


def title(text: str) -> str:
    """A template's title as one line that a forge accepts."""
    return one_line(text, LONGEST_TITLE)


@dataclass(frozen=True)
class Description:
    """The description of a pull request, made before anything is pushed. Who asks, and from which repository, is known
    only then."""

    title: str
    asks_for: str  # what follows `LOGIN asks for`; "": nobody asks
    parts: tuple[str, ...]  # Markdown, the most important first
    branch: str = ""  # for the commands that look at it; "": none are shown
    asked_for: str = ""  # the person for whom the account asks; "": for nobody else

    def section(self, asked_by: str, head: RepositoryRef) -> str:
        """The text between the markers by which `updated` finds it again. `asked_by` is the account's login."""
        person = f", on behalf of {code(self.asked_for, 100)}," if self.asked_for else ""
        lead = f"{code(asked_by, 80)} asks{person} for {self.asks_for}." if self.asks_for else ""
        look = _look(head, self.branch) if self.branch else ""
        text = "\n\n".join(part for part in (lead, *self.parts, look) if part)
        if len(text) > _LONGEST:
            text = "\n\n".join([lead, *self.parts[:1], "The rest is too long to be shown here.", look])
        return f"<!-- neuroscale-request {_digest(self.title)} -->\n{text}\n<!-- /neuroscale-request -->"


def describe(subject: Subject, title_text: str, branch: str, said: Iterable[str] = ()) -> Description:
    """The description of a service's change, which `title_text` and the `branch` of the pull request name. `said`:
    sentences that come first."""
    request = subject.request
    what = "a new service" if subject.is_new else "a change of the service"
    asked, changes = _asked(request), change_phrases.of_change(subject.report)
    first = "### What changes\n\n" + "\n\n".join(changes) if changes else asked
    parts = (
        "\n\n".join(filter(None, (listed(said), first))),
        _plan(subject),
        asked if changes else "",
        _why(subject),
        _not_chosen(subject.plan, subject.not_chosen.choices),
    )
    asks_for = f"{what} {code(f'{request.environment}/{request.service}', 120)}"
    return Description(title_text, asks_for, parts, branch)


def listed(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    return "\n".join(f"- {prose(sentence, 1000)}" for sentence in sentences)


def updated(pull: PullRequest, title_text: str, wanted: str) -> tuple[str, str]:
    """Title and body that an open pull request should have: its section renewed, and text by people kept."""
    body = pull.body.replace("\r\n", "\n")
    there = _SECTION.search(body)
    if there is None:
        return pull.title, f"{body.rstrip()}\n\n{wanted}".lstrip()
    ours = there["title"] == _digest(pull.title)
    return (title_text if ours else pull.title), body[: there.start()] + wanted + body[there.end() :]


def inside(pull: PullRequest) -> str:
    """The generated section of a description, without its markers."""
    there = _SECTION.search(pull.body.replace("\r\n", "\n"))
    return "" if there is None else "\n".join(there[0].split("\n")[1:-1]).strip()


def said(pull: PullRequest) -> tuple[str, ...]:
    """The sentences with which the generated section begins, as plain text."""
    first = inside(pull).split("\n### ")[0].split("\n")
    plain = (re.sub(r"<!-- ?-->", "", line) for line in first if line.startswith("- "))
    return tuple(re.sub(r"\\(?=[!-/:-@\[-`{-~])", "", line.removeprefix("- ")) for line in plain)


def asked_for(pull: PullRequest) -> str:
    """The person for whom the pull request's account asked, as the description says; "" for nobody else."""
    there = _ASKED_FOR.match(inside(pull))
    return "" if there is None else there["person"].strip()


def around(pull: PullRequest) -> str:
    """What people wrote into a description, without the generated section."""
    return _SECTION.sub("", pull.body.replace("\r\n", "\n"))


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:16]


def _asked(request: Request) -> str:
    answers = request.model_dump(mode="json")
    rows = [
        f"- {change_phrases.LABELS.get(name, name)}: {code(str(answers[name]), 120)}"
        for name in FORM_FIELDS
        if name in change_phrases.LABELS and name in answers
    ]
    return _section("What is asked for", rows)


def _plan(subject: Subject) -> str:
    plan = subject.plan
    rows = [f"**Price** {change_phrases.money(subject.report, plan)}"]
    rows += [f"**{label}** {text}" for label, text in phrases.rows(plan, code)[1:]]
    rows += [f"**Override** {phrases.override(override, code, prose)}" for override in plan.overrides]
    return "\n\n".join(
        [
            f"### The plan: {VERDICTS[plan.verdict]} (confidence {plan.confidence})",
            change_phrases.placed(subject.report, plan),
            "<br>".join(rows),
        ]
    )


def _why(subject: Subject) -> str:
    told = subject.not_chosen.told
    reasons = change_phrases.reasons(subject.plan)
    return _section("Why this plan", (f"- {prose(reason)}" for reason in reasons if reason not in told))


def _not_chosen(plan: Plan, choices: Iterable[Considered]) -> str:
    rows = [f"- {_choice(plan, choice)}" for choice in choices]
    rows += [f"- {phrases.alternative(alternative, code, prose)}" for alternative in plan.alternatives]
    return _section("What was not chosen", rows or ["- This environment does not offer another choice."])


def _choice(plan: Plan, choice: Considered) -> str:
    price = "price unknown" if choice.hourly is None else f"{usd(choice.hourly)} an hour"
    pods = f" with {counted(choice.replicas, 'replica')}" if choice.replicas > 1 else ""
    label = f"{code(choice.label, 120)}{pods}, {price}"
    if choice.against:
        return f"{label}: {prose(choice.against)}"
    not_sure = f" Not sure: {prose(', and '.join(choice.risks))}." if choice.risks else ""
    compared = " as well"
    if choice.hourly is None or plan.cost.hourly is None:
        compared = ", but its price cannot be compared"
    elif (more := choice.hourly - plan.cost.hourly) > 0:
        compared = f", but costs {usd(more)} an hour more"
    elif plan.overrides:
        compared = ", but is not the choice of the override"
    elif more < 0:
        compared = f", and costs {usd(-more)} an hour less"
    return f"{label}: works{compared}.{not_sure}"


def _look(head: RepositoryRef, branch: str) -> str:
    fetch = one_line(shlex.join(["git", "fetch", head.clone_url, branch]), 1000)
    # The branch is not checked out: `neuroscale` runs the code in the checkout, and the branch's author may have
    # changed it.
    lines = [fetch, "neuroscale gate --base origin/main --head FETCH_HEAD --only-read-head"]
    return "### Look at it\n\n```sh\n" + "\n".join(lines) + "\n```"


def _section(heading: str, rows: Iterable[str]) -> str:
    listed = list(rows)
    shown = listed[:_MOST] + ([f"- and {len(listed) - _MOST} more"] if len(listed) > _MOST else [])
    return f"### {heading}\n\n" + "\n".join(shown)
