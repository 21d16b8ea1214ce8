"""The platform check: the files that a cluster gets are exactly those that the settings and the catalog render to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import neuroscale.rendering.platform
from neuroscale.catalog.settings import domain_notes, image_notes, load_settings
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation, problem_findings
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.rendering.platform.files import SOURCES, differences, render_repository
from neuroscale.rendering.platform.policy_lists import delivered_policies, differences_of_policies
from neuroscale.repo.layout import CATALOG, CODE_OWNERS, OWN_CODE, PIN, POLICIES, REQUIREMENTS, SETTINGS
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot
from neuroscale.repo.tool_pin import is_running, read_pin

GATE = "platform"
LOOKS_AT = (CATALOG, SETTINGS, CODE_OWNERS, PIN, REQUIREMENTS, *SOURCES)
"""The check runs if a change touches one of these: nobody answers for faults that others left on main."""

_RENDERER = "src/neuroscale/rendering/platform"
_FILE = "platform/tenancy/tripwire/quota.yaml"


class PlatformFilesCheck(GateCheck):
    """Whether a change of the platform, its settings or its catalog also brings the files that they render to."""

    name = GATE
    title = "What clusters get"

    def left_out(self, run: Run) -> LeftOut | None:
        change = run.change
        if change is None:
            return LeftOut()
        if not change.touches(*LOOKS_AT) and not (change.touches(POLICIES) and change.after.entries(PIN)):
            return LeftOut()
        if change.before.entries(OWN_CODE) and not is_renderer_of(change):
            return LeftOut("the change alters the code that renders it: the change's own gate runs this check")
        return None

    def evaluate(self, run: Run) -> Evaluation:
        evaluation = evaluate_platform(run.given.snapshot)
        if run.change is None or not run.change.touches(SETTINGS, f"{CATALOG}/runtimes/"):
            return evaluation
        notes = (note.model_copy(update={"severity": Severity.NOTICE}) for note in _notes(run))
        return replace(evaluation, findings=(*evaluation.findings, *notes))


def _notes(run: Run) -> list[Finding]:
    try:
        settings, catalog = run.after.settings(), run.after.catalog()
    except InputError:
        return []  # the catalog check reports it
    images = problem_findings(GATE, "image-not-allowed", image_notes(settings, catalog))
    return [*problem_findings(GATE, "shared-domain", domain_notes(settings)), *images]


def evaluate_platform(snapshot: Snapshot) -> Evaluation:
    """Compare every rendered file. Raises UntrustedError if the comparison does not see a known difference."""
    caught = sum(1 for _ in _tripwires())
    try:
        rendered = render_repository(snapshot)
        policies = _delivered_policies(snapshot)
    except InputError as error:
        return Evaluation(tuple(problem_findings(GATE, "invalid", error)), 1, 1, "repository", caught, caught)
    findings = tuple(problem_findings(GATE, "not-rendered", differences(snapshot, rendered)))
    not_delivered = [] if policies is None else differences_of_policies(snapshot, policies)
    findings += tuple(problem_findings(GATE, "not-delivered", not_delivered))
    number = len(rendered) + len(policies or ())
    return Evaluation(findings, number, number, "files", caught, caught)


def _delivered_policies(snapshot: Snapshot) -> dict[str, bytes] | None:
    """The policies that this tool delivers to a repository that pins it, by path; None for any other repository."""
    try:
        pin = None if snapshot.entries(OWN_CODE) else read_pin(snapshot)
    except InputError:
        return None  # the pin check reports it
    return None if pin is None or not is_running(pin) else delivered_policies(load_settings(snapshot))


def is_renderer_of(change: Change) -> bool:
    """Whether this process renders as the change will once it is merged.

    The base's gate cannot render a change's own templates; the change's gate, which runs beside it, can. A change that
    pins a tool in place of the code has no gate beside it.
    """
    is_pinned = change.after.entries(PIN) and not change.after.entries(OWN_CODE)
    if is_pinned or not change.touches(_RENDERER):
        return True
    here = Path(neuroscale.rendering.platform.__file__).parent
    theirs = {
        entry.path.removeprefix(f"{_RENDERER}/"): change.after.read(entry.path)
        for entry in change.after.entries(_RENDERER)
    }
    ours = {path.relative_to(here).as_posix(): path for path in here.rglob("*") if path.suffix in (".py", ".yaml")}
    return set(ours) == set(theirs) and all(path.read_bytes() == theirs[name] for name, path in ours.items())


def _tripwires() -> Iterator[None]:
    """Check known differences, which the comparison must see."""
    good = "kind: ResourceQuota\nspec: {}\n"
    for bad in (
        MemorySnapshot({_FILE: good.replace("{}", "{a: 1}").encode()}),
        MemorySnapshot({_FILE: good.replace("\n", "\r\n").encode()}),
        MemorySnapshot({_FILE: good.encode(), _FILE.replace("quota", "other"): b"kind: Role\n"}),
        MemorySnapshot({_FILE: good.encode()}, {_FILE: "symlink"}),
        MemorySnapshot({}),
    ):
        if not differences(bad, {_FILE: good}):
            raise UntrustedError(f"the platform check did not see what is wrong with {bad.entries()}.")
        yield
    policy, known = f"{POLICIES}/tripwire/policy.yaml", b"kind: ValidatingPolicy\n"
    others = (MemorySnapshot({policy: known + b"#\n"}), MemorySnapshot({}))
    if not all(differences_of_policies(other, {policy: known}) for other in others):
        raise UntrustedError("the platform check did not see a policy that differs, or one that is missing.")
    yield
