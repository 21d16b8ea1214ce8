"""The owners check: the labels of an object charge the team that it belongs to.

Showback divides costs by the labels `app.kubernetes.io/owner` and `cost-center` of pods. The policy ownership-labels
demands them, and that all labels of an object say the same; this check compares them with the teams of the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from neuroscale.catalog import Quota, Team
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import shortened
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation, manifest_finding
from neuroscale.gate.platform_sources import UNREADABLE
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import COST_CENTER, OWNER, Manifest, tripwire

GATE = "owners"
UNKNOWN, OTHER_CENTER, OTHER_NAMESPACE = "unknown-owner", "other-cost-center", "other-namespace"
_NEW = "new-team"
_FIX = "Write the owner and the cost_center of the team's entry in platform/catalog/teams/."
_FIX_OF_RENAMED = (
    "The base's teams decide, and this team of the change shares a name with one of them. Give it an owner, a cost "
    "centre and a namespace that the base does not have, or merge its entry first and what belongs to it afterwards."
)
_LABELS = ("metadata", "labels")


class OwnersCheck(GateCheck):
    """Whether the owner of each object is a team of the catalog, with its cost centre and in its namespace."""

    name = GATE
    title = "Owners"
    needs = ("files", "effects")

    def left_out(self, run: Run) -> LeftOut | None:
        if not any(map(_labels, run.judged)):
            return LeftOut()
        try:
            _teams(run)
        except InputError:
            return LeftOut(UNREADABLE)
        return None

    def evaluate(self, run: Run) -> Evaluation:
        _must_be_caught()
        known, after = _teams(run)
        labelled = [one for one in run.judged if _labels(one)]
        imagined = set(map(id, run.anew.imagined if run.anew else ()))
        findings = tuple(
            finding
            for one in labelled
            for finding in judge_owner(one, known, after, strict=run.subject.strict, exists=id(one) not in imagined)
        )
        count, traps = len(labelled), len(_TRIPWIRES)
        return Evaluation(findings, count, count, "objects", traps, traps)

    def not_checked(self, run: Run) -> Iterable[str]:
        result = run.result(self.name)
        unknown = [one for one in result.findings if one.rule == UNKNOWN] if result else []
        if files := sorted({one.file for one in unknown if one.severity is Severity.NOTICE}):
            shown = shortened(files, 3, "file")
            yield f"Who pays for objects whose owner is not in the catalog (see the notices), in {shown}."


def _teams(run: Run) -> tuple[list[Team], list[Team]]:
    """The teams of the side that judges, and those of the change. Raises InputError if the first cannot be read."""
    known = list(run.judge.catalog().teams.values())
    try:
        return known, list(run.after.catalog().teams.values())
    except InputError:  # the catalog check reports it
        return known, known


def judge_owner(
    manifest: Manifest, known: Sequence[Team], after: Sequence[Team], *, strict: bool, exists: bool = True
) -> Iterator[Finding]:
    """The findings about the labels of one object. `known`: the teams that decide; `after`: those of the change.

    An owner that the catalog does not have is a notice if not `strict` and if nothing else of the object belongs to a
    known team: the object may be of another platform. Labels of a team that only `after` has are a notice. A changed
    entry of a known team decides nothing: a team could leave its cost centre, and so its budget, unseen. An object of
    an example, which exists nowhere, may have the labels of either side.
    """
    findings = list(_judge(manifest, known, strict=strict))
    suits_the_change = bool(findings) and not list(_judge(manifest, after, strict=True))
    if suits_the_change and (not exists or _of_nobody(manifest, known)):
        told = "only the catalog of this change itself has the team, cost centre or namespace that the labels charge"
        fix = "Review the team's entry in the catalog first."
        yield manifest_finding(GATE, _NEW, manifest, (*_LABELS, OWNER), told, fix, severity=Severity.NOTICE)
        return
    yield from (one.model_copy(update={"fix": _FIX_OF_RENAMED}) for one in findings) if suits_the_change else findings


def _of_nobody(manifest: Manifest, known: Sequence[Team]) -> bool:
    """Whether no known team has the owner, the cost centre or the namespace of the object."""
    labels = _labels(manifest)
    charged = (labels.get(OWNER), labels.get(COST_CENTER), manifest.namespace)
    return not any(name in charged for team in known for name in (team.owner, team.cost_center, team.namespace))


def _judge(manifest: Manifest, known: Sequence[Team], *, strict: bool) -> Iterator[Finding]:
    labels = _labels(manifest)
    owner, center = labels.get(OWNER, ""), labels.get(COST_CENTER)
    teams = [team for team in known if team.owner == owner]
    here = next((team for team in known if team.namespace == manifest.namespace), None)
    payer = next((team for team in known if team.cost_center == center), None)
    if not teams:
        told = f"the catalog has no team with the owner {owner!r:.80}"
        if payer is not None:
            told += f", and the cost centre is that of {payer.owner}"
        elif here is not None:
            told += f", and the namespace is that of {here.owner}"
        error = strict or manifest.service is not None or payer is not None or here is not None
        severity = Severity.ERROR if error else Severity.NOTICE
        yield manifest_finding(GATE, UNKNOWN, manifest, (*_LABELS, OWNER), told, _FIX, severity=severity)
        return
    if center is not None and center not in {team.cost_center for team in teams}:
        told = f"the cost centre {center!r:.80} is not that of {owner}, which is {teams[0].cost_center}"
        yield manifest_finding(GATE, OTHER_CENTER, manifest, (*_LABELS, COST_CENTER), told, _FIX)
    if here is not None and here.owner != owner:
        told = f"the namespace {manifest.namespace} belongs to {here.owner}, and the labels charge {owner}"
        yield manifest_finding(GATE, OTHER_NAMESPACE, manifest, (*_LABELS, OWNER), told, _FIX)


def _labels(manifest: Manifest) -> dict[str, str]:
    """The labels of an object that names an owner; none of one that does not."""
    labels = manifest.value["metadata"].get("labels")
    if not isinstance(labels, dict) or labels.get(OWNER) is None:
        return {}
    return {str(key): str(value) for key, value in labels.items() if value is not None}


_TEAMS = [
    Team(name=name, owner=name, cost_center=f"cc-{name}", namespace=name, contact="tripwire", quota=Quota())
    for name in ("one", "two")
]
_TRIPWIRES = {
    UNKNOWN: ("three", "cc-three", "elsewhere"),
    OTHER_CENTER: ("one", "cc-two", "one"),
    OTHER_NAMESPACE: ("one", "cc-one", "two"),
}
"""By the rule that must find it, a known-bad object's owner, cost centre and namespace."""


def _must_be_caught() -> None:
    for rule, (owner, center, namespace) in _TRIPWIRES.items():
        trap = tripwire("v1", "Pod", {"namespace": namespace, "labels": {OWNER: owner, COST_CENTER: center}})
        found = [(one.rule, one.severity) for one in judge_owner(trap, _TEAMS, (), strict=True)]
        if found != [(rule, Severity.ERROR)]:
            raise UntrustedError(f"the owners check did not find its tripwire for the rule {rule!r}.")
