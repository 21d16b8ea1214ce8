"""Explains a log: the cause of a server's end, what ran by the plan, and the next configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.core.files import sha256
from neuroscale.explain.causes import load_causes
from neuroscale.explain.diagnosis import Diagnosis, diagnose
from neuroscale.explain.log_text import LogLine
from neuroscale.explain.next_configuration import Proposal, known, next_configuration
from neuroscale.explain.server_facts import ServerFacts, facts_of_log
from neuroscale.explain.slow_service import Serving
from neuroscale.planning.fit import PINNED, Fit
from neuroscale.planning.fit_question import Question, answer
from neuroscale.policies.description import refused_arguments
from neuroscale.repo.snapshot import Snapshot
from neuroscale.request.field_changes import FieldChanges

OVERRIDDEN = timedelta(days=30)
"""How long the overrides hold that it proposes: until the request itself is changed."""


@dataclass(frozen=True)
class Help:
    """A change of the request that a plan was made for; `sentence` says what it gives."""

    bound: str
    changes: FieldChanges
    sentence: str


@dataclass(frozen=True)
class ServingReport:
    """How a service serves, the changes that help by the plan, and why none does ("": there is one, or none is
    needed). `local`: the service runs on the local platform, whose forge commands then use."""

    serving: Serving
    helps: tuple[Help, ...] = ()
    no_help: str = ""
    service: str = ""
    local: bool = False


@dataclass(frozen=True)
class Explanation:
    """What a log says, what comes next (or why nothing was planned), and the fit of what ran (None: not judged).
    `until`: the last day of the overrides that `update` names. `edited`: fields in which the service is not what its
    plan renders, where `next` is that plan; `local`: it runs on the local platform, whose forge commands then use.
    `serving`: how its servers that answer serve (None: none was read). `unready`: why the pod of a server that started
    is not ready, as a clause ("": it is ready, or no pod was read)."""

    diagnosis: Diagnosis
    facts: ServerFacts
    next: Proposal | None
    no_next: str
    planned: Fit | None
    service: str = ""
    until: str = "YYYY-MM-DD"
    edited: str = ""
    local: bool = False
    serving: ServingReport | None = None
    log_digest: str = ""  # of the lines that were read, without secrets
    unready: str = ""

    @property
    def change(self) -> FieldChanges | None:
        """The change of the service's request that asks for the next configuration; None if no override of its plan
        does, or its plan asks for it already."""
        if self.next is None or self.edited or not self.next.overrides:
            return None
        reason = f"explain: {self.diagnosis.cause.name}" if self.diagnosis.cause else "explain"
        return FieldChanges(self.next.overrides, (), reason, self.until)


def explain_lines(
    lines: list[LogLine],
    options: Question,
    catalog: Catalog,
    service: str = "",
    asks: Callable[[Proposal], bool] = lambda _: True,
    policies: Snapshot | None = None,
) -> Explanation:
    """What a log says, and the next configuration. In `options`, an empty text or None is what the log tells. `asks`:
    whether the service's request can ask for a configuration. `policies`: the repository whose policies it keeps."""
    diagnosis, facts = diagnose(lines, load_causes()), facts_of_log(lines)
    judged = known(facts, options, catalog)
    proposal, planned, no_next = None, None, ""
    if judged.question is None:
        no_next = judged.lacks if diagnosis.next else ""
    elif diagnosis.verdict in ("cause", "healthy"):
        question = _judged(judged.question)
        unjudged = ""
        try:
            planned = answer(question, catalog)
        except InputError as error:
            problem = error.problems[0]
            unjudged = f"The plan cannot judge it: {problem.where} {problem.field} {problem.message}. {problem.fix}"
        refused = cache(lambda: refused_arguments(policies) if policies else {})
        proposal, no_next = next_configuration(diagnosis, question, catalog, asks, refused)
        no_next = no_next and (unjudged or no_next)
    until = (datetime.now(UTC).date() + OVERRIDDEN).isoformat()
    digest = sha256("\n".join(line.text for line in lines).encode())
    return Explanation(diagnosis, facts, proposal, no_next, planned, service, until, log_digest=digest)


def _judged(question: Question) -> Question:
    """The question for a version that the fit judges: what a log says of a build (0.16.0rc2.dev236+g3b30e6150) may be
    none."""
    version = question.vllm_version.partition("+")[0].partition("rc")[0].partition(".dev")[0].partition(".post")[0]
    return replace(question, vllm_version=version or PINNED)
