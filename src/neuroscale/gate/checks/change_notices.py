"""The change check: shows everything that a change alters, and tells a reviewer what it loosens, widens or moves.

It refuses nothing but files that cannot be read: who may merge a change is the forge's affair. It also hands on the
objects of clusters that the change touches, which the checks of schemas, policies and the API server judge.
"""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from neuroscale.catalog.directions import Notice
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import counted, noun_for
from neuroscale.core.units import MIB
from neuroscale.gate.check import Altered, GateCheck, LeftOut, Run
from neuroscale.gate.checks.git_attributes import changed_lines
from neuroscale.gate.evaluation import Evaluation, file_finding, problem_findings
from neuroscale.gate.file_kinds import ELSEWHERE, KINDS, OTHER, OWNERS, WORKFLOWS, changed_files, kind_of
from neuroscale.gate.value_differences import JudgedDifference, changed_values, compared, entries_of, holds_objects
from neuroscale.gate.verdict import CHANGE_CHECK, Alterations, ChangedValue, Finding, Severity
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.repo.git import TooLargeError
from neuroscale.repo.layout import ALERT_TESTS, BUDGETS, EXAMPLES, POLICIES, POLICY_FILE, SETTINGS, SMOKE_TESTS, TEAMS
from neuroscale.repo.snapshot import MemorySnapshot

if TYPE_CHECKING:
    from neuroscale.gate.merged_change import Change

GATE = CHANGE_CHECK
_MOST_VALUES = 2_000  # that the verdict lists
_FEW, _MANY = 3, 20  # entries with notices of one place, and values of so few entries, that are told one by one
_NAMED = 12
_SHOWN = 6  # values of one place
_MOST_TESTS = 500
_MOST_OBJECTS = 2_000  # of clusters, and the bytes of their files
_MOST_BYTES = 4 * MIB
_NOT_THERE = "not there"
_PICTURES = (".cast", ".svg", ".md")  # beside workflows, and for people
FIXES: Mapping[Notice, str] = {
    Notice.REMOVED_POLICY: "Merge it only if nothing needs this policy any more: nothing refuses what it refused.",
    Notice.WEAKER_POLICY: "Merge it only if the policy is meant to refuse less.",
    Notice.REMOVED_ENVIRONMENT: "Merge it only if nobody depends on the environment any more.",
    Notice.WEAKER_RULE: "Merge it only if the rule is meant to refuse less from now on.",
    Notice.OWN_FACTS: "Merge the facts first, in a change of their own, where somebody judges them. Then they decide.",
    Notice.WIDER_ACCESS: "Check who gets which rights, and who agreed to that.",
    Notice.CHANGED_SOURCE: "Compare both sources letter by letter, and ask why it moves.",
    Notice.NOT_COMPARED: "Read the whole difference: the gate shows none of its values.",
    Notice.CHANGED_POLICY: "Read both texts: whether the policy refuses less cannot be told from them.",
    Notice.NEW_EXCEPTION: "Check who approved it, why, and until when it holds.",
    Notice.RAISED_BUDGET: "Check who agreed to the larger budget.",
    Notice.RAISED_QUOTA: "Check who agreed to the larger share, and that the cluster has it.",
    Notice.LOWERED_PRICE: "Check the price against its source: budgets hold more at a lower price.",
    Notice.MOVED_FACT: "Check the figure against its source: plans believe it, and a wrong one does not start.",
    Notice.WEAKER_TEST: "Read what is no longer tested.",
}
"""What a reviewer should do, by the notice. The notices are in the order of their danger."""


class ChangeCheck(GateCheck):
    """Lists what the change alters. Hands on the list, and the objects of clusters among it."""

    name = GATE
    title = "What the change alters"

    def __init__(self) -> None:
        self._without_schema: list[Manifest] = []

    def left_out(self, run: Run) -> LeftOut | None:
        return LeftOut() if run.change is None else None

    def evaluate(self, run: Run) -> Evaluation:
        change = run.change
        if change is None:
            raise UntrustedError("this run has no change.")
        caught = _caught()
        files = changed_files(change)
        values, unread = changed_values(change, run.after)
        findings = [*_notices_of(values), *_forge_files(change), *_not_compared(unread), *_weaker_tests(change)]
        objects, faults = _cluster_objects(change)
        known = run.schemas().kinds if objects else {}
        self._without_schema = [manifest for manifest in objects if (manifest.api_version, manifest.kind) not in known]
        listed, left_out = tuple(_listed(values)), max(0, len(values) - _MOST_VALUES)
        self.value = Altered(
            Alterations(files=files, values=listed, left_out=left_out),
            tuple(manifest for manifest in objects if (manifest.api_version, manifest.kind) in known),
        )
        count = len(change.paths)
        return Evaluation((*faults, *findings), sum(kind.count for kind in files), count, "files", caught, caught)

    def not_checked(self, run: Run) -> Iterable[str]:  # noqa: ARG002
        if self._without_schema:
            kinds = sorted({f"{manifest.api_version} {manifest.kind}" for manifest in self._without_schema})
            lead = "Objects of clusters whose kinds have no schema here, so that only their values are shown"
            yield f"{lead}: {', '.join(kinds)}."


def _listed(values: Sequence[JudgedDifference]) -> Iterator[ChangedValue]:
    """The values for the verdict: those with a notice first, by its danger."""
    order = {notice: number for number, notice in enumerate(FIXES)}

    def danger(value: JudgedDifference) -> tuple[int, int]:
        return order[value.row.notice] if value.row else len(order), KINDS.index(kind_of(value.file))

    known = sorted(values, key=danger)
    yield from (value.listed for value in known[:_MOST_VALUES])


def _notices_of(values: Iterable[JudgedDifference]) -> Iterator[Finding]:
    """A notice for each value that loosens, widens or moves something; one for many of the same place and kind.

    By the kind of object, so that many harmless ones do not hide another.
    """
    groups: dict[tuple[Notice, str, str, str], list[JudgedDifference]] = {}
    for value in values:
        if value.row is not None:
            key = value.row.notice, value.row.place, kind_of(value.file).noun, value.subject.partition(" ")[0]
            groups.setdefault(key, []).append(value)
    for (notice, _, noun, _), group in groups.items():
        entries = dict.fromkeys(value.subject or value.file.rpartition("/")[2].removesuffix(".yaml") for value in group)
        if len(entries) <= _FEW and len(group) <= _MANY:
            for value in group:
                yield _notice(notice, value.file, _in_words(value.listed), value.subject)
            continue
        names = ", ".join(list(entries)[:_NAMED]) + (
            f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
        )
        folder = os.path.commonpath([value.file for value in group])
        fields = " and ".join(dict.fromkeys(value.listed.field for value in group[:_MOST_VALUES]))
        what = fields if len(fields) < 80 else f"{fields[:77]}..."
        total = f"{len(entries):,} {noun_for(len(entries), noun)}"
        yield _notice(notice, folder, f"{total}, {what or 'all of it'}: {_moves(group)}: {names}")


def _in_words(value: ChangedValue) -> str:
    if not value.field and value.after is None:
        return f"the {value.kind} is removed" if not value.subject else "is removed"
    sides = [_NOT_THERE if side is None else f"`{side}`" for side in (value.before, value.after)]
    return f"{value.field}: {sides[0]} → {sides[1]}" if value.field else f"is new: {sides[1]}"


def _moves(group: Sequence[JudgedDifference]) -> str:
    """The values before and after of a group, each once; of addresses only the owners or hosts, if all differ."""
    pairs = [(value.before, value.after) for value in (changed.listed for changed in group)]
    if all(_owner(before) != _owner(after) for before, after in pairs):
        pairs = [(_owner(before), _owner(after)) for before, after in pairs]
    sides = []
    for side in zip(*pairs, strict=True):
        known = Counter(_NOT_THERE if text is None else f"`{text[:80]}`" for text in side)
        shown = [text + (f" ({number})" if len(known) > 1 else "") for text, number in known.most_common(_SHOWN)]
        sides.append(", ".join(shown) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""))
    return f"{sides[0]} → {sides[1]}"


_ADDRESS = re.compile(r"(?:[a-z]+://)?([^/\s]+)/\S+")


def _owner(text: str | None) -> str | None:
    address = _ADDRESS.fullmatch(text or "")
    return address[1] if address else text


def _notice(notice: Notice, file: str, message: str, subject: str = "") -> Finding:
    finding = file_finding(GATE, notice, file, message, FIXES[notice], severity=Severity.NOTICE)
    return finding.model_copy(update={"subject": subject})


_TELLS = {
    OWNERS: "decides who must approve a change",
    WORKFLOWS: "decides what runs with the repository's rights",
    ELSEWHERE: "decides what runs outside clusters with somebody's credential",
    OTHER: "is of no kind that the gate knows",
}


def _forge_files(change: Change) -> Iterator[Finding]:
    """A notice with the changed lines of each file by which people approve or programs run, and that no check reads."""
    order = list(_TELLS)
    decisive = [path for path in change.paths if kind_of(path) in order and not _is_for_readers(path)]
    # New files last, so that many of them hide no other.
    decisive.sort(key=lambda path: (order.index(kind_of(path)), change.states[path] == "A"))
    for path in decisive[:_MANY]:
        message = f"{_TELLS[kind_of(path)]}, and changes: {changed_lines(change, path)}"
        yield _notice(Notice.WIDER_ACCESS, path, message)
    if len(decisive) > _MANY:
        message = f"and {counted(len(decisive) - _MANY - 1, 'more file')} of such kinds change"
        yield _notice(Notice.WIDER_ACCESS, decisive[_MANY], message)


def _is_for_readers(path: str) -> bool:
    return path.endswith(_PICTURES if kind_of(path) is WORKFLOWS else ".md")


def _not_compared(paths: Sequence[str]) -> Iterator[Finding]:
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        why = f"cannot be read, or are too many, so that their values are not shown: {', '.join(paths[:_NAMED])}{more}"
        yield _notice(Notice.NOT_COMPARED, os.path.commonpath(paths), f"{counted(len(paths), 'file')} {why}")


def _cluster_objects(change: Change) -> tuple[list[Manifest], list[Finding]]:
    """The objects of clusters in the files that the change touches, and the faults of those that cannot be read."""
    objects: list[Manifest] = []
    faults: list[Finding] = []
    room = _MOST_BYTES
    for path in filter(holds_objects, change.paths):
        try:
            data = change.after.read(path)
            room -= len(data or b"")
            if room < 0 or len(objects) > _MOST_OBJECTS:
                message = "and the files for clusters after it are not read: the change holds too many of them"
                faults.append(file_finding(GATE, "too-much", path, message, "Bring smaller changes."))
                break
            objects += read_manifests(data, path) if data is not None else []
        except InputError as error:
            faults += problem_findings(GATE, "unreadable", error)
    return objects, faults


# Tests.

_TEST = re.compile(r"([ \t]*)(?:async )?def (test_\w+)")
_DEMANDS = re.compile(r"\b(?:assert(?! *(?:True|1)\b)|raises)\b")
_SKIPPED = re.compile(
    r"\b(?:skip|skipif|xfail|importorskip|collect_ignore\w*|pytest_(?:ignore_collect|collection\w*))\b"
)


def _weaker_tests(change: Change) -> Iterator[Finding]:
    """A notice for each file of tests that is gone, shorter or skipped; one for many of them."""
    policies = [
        path for path in change.paths if kind_of(path).entries == "policies" and path.endswith(f"/{POLICY_FILE}")
    ]
    removed = {path.rpartition("/")[0] for path in policies if change.after.read(path) is None}
    paths = [path for path in change.paths if _holds_tests(path) and "/".join(path.split("/")[:2]) not in removed]
    weaker: list[tuple[str, str]] = []
    for path in paths[:_MOST_TESTS]:
        try:
            sides = [side.read(path) for side in (change.before, change.after)]
        except TooLargeError:
            sides = [None, bytes(MIB + 1)]
        if any(side is not None and len(side) > MIB for side in sides):
            weaker.append((path, "is too large to compare"))
            continue
        before, after = (None if side is None else side.decode("utf-8", "replace") for side in sides)
        if before is not None and (why := weaker_test(before, after)):
            weaker.append((path, why))
    if len(paths) > _MOST_TESTS:
        weaker.append((paths[_MOST_TESTS], f"and {len(paths) - _MOST_TESTS - 1} more files of tests are not compared"))
    if len(weaker) <= _FEW:
        yield from (_notice(Notice.WEAKER_TEST, path, why) for path, why in weaker)
        return
    names = ", ".join(f"{path} {why}" for path, why in weaker[:_NAMED])
    more = f" and {len(weaker) - _NAMED} more" if len(weaker) > _NAMED else ""
    folder = os.path.commonpath([path for path, _ in weaker])
    yield _notice(Notice.WEAKER_TEST, folder, f"{counted(len(weaker), 'file')} of tests: {names}{more}")


def _holds_tests(path: str) -> bool:
    if path.startswith(f"{POLICIES}/"):
        return (
            path.endswith((".yaml", ".yml"))
            and kind_of(path).entries == "policies"
            and not path.endswith(f"/{POLICY_FILE}")
        )
    if path.startswith(f"{EXAMPLES}/"):  # the gate renders them to show what a change does
        return True
    return path == ALERT_TESTS or (path.startswith((f"{SMOKE_TESTS}/", "tests/")) and path.endswith(".py"))


def weaker_test(before: str, after: str | None) -> str:
    """What a file of tests no longer tests, as far as its text shows that; "" if it shows nothing."""
    if after is None:
        return "is removed"
    then, now = _tests(before), _tests(after)
    if gone := [name for name in then if name not in now]:
        return f"no longer has {', '.join(gone[:_FEW])}" + (f" and {len(gone) - _FEW} more" if len(gone) > _FEW else "")
    if shorter := [name for name in then if now[name] < then[name]]:
        name = min(shorter, key=lambda test: now[test] - then[test])
        more = f", and {len(shorter) - 1} more are shorter" if len(shorter) > 1 else ""
        return f"is shorter: {name} from {counted(then[name], 'line')} to {now[name]}{more}"
    if (held := len(_DEMANDS.findall(before))) > len(_DEMANDS.findall(after)):
        return f"has fewer assertions: {len(_DEMANDS.findall(after))} of {held}"
    if len(_SKIPPED.findall(after)) > len(_SKIPPED.findall(before)):
        return "skips more than before"
    sizes = [_lines(text.splitlines()) for text in (before, after)]
    if not then and sizes[1] < sizes[0]:
        return f"is shorter: from {counted(sizes[0], 'line')} to {sizes[1]}"
    return ""


def _tests(text: str) -> dict[str, int]:
    """The lines of each test of a Python file, without empty lines, comments and what stands behind it."""
    tests = {}
    rows = text.splitlines()
    for number, row in enumerate(rows):
        if start := _TEST.match(row):
            body = tuple(f"{start[1]}{sign}" for sign in " \t)")  # a long signature ends with a line of its own
            inside = takewhile(partial(_is_inside, body), (rows[at] for at in range(number + 1, len(rows))))
            tests[start[2]] = _lines((row, *inside))
    return tests


def _is_inside(starts: tuple[str, ...], line: str) -> bool:
    return not line.strip() or line.startswith(starts)


def _lines(rows: Iterable[str]) -> int:
    return sum(1 for row in rows if row.strip() and not row.lstrip().startswith("#"))


# Known weakenings, which the comparison must see.

_TRAPS = (
    (SETTINGS, "costs: {over_budget: block}", "costs: {}", Notice.WEAKER_RULE),
    (SETTINGS, "production: {environments: [prod]}", "production: {environments: []}", Notice.REMOVED_ENVIRONMENT),
    (
        f"{BUDGETS}/tripwire.yaml",
        "cost_center: a\nmonthly_usd: '1'",
        "cost_center: a\nmonthly_usd: '2'",
        Notice.RAISED_BUDGET,
    ),
    (f"{TEAMS}/tripwire.yaml", "name: a\ngroup: a", "name: a\ngroup: everyone", Notice.WIDER_ACCESS),
    (f"{POLICIES}/tripwire/{POLICY_FILE}", "spec: {validationActions: [Deny]}", "spec: {}", Notice.WEAKER_POLICY),
    (
        "platform/catalog/models/a.yaml",
        "name: a\nweights: {path: a/b}",
        "name: a\nweights: {path: b/b}",
        Notice.CHANGED_SOURCE,
    ),
)


def _caught() -> int:
    """How many known weakenings are told. Raises UntrustedError if one is not."""
    for path, before, after, notice in _TRAPS:
        sides = [entries_of(MemorySnapshot({path: text.encode()}), [path])[0] for text in (before, after)]
        notices = [value.row.notice for value in compared(*sides) if value.row is not None]
        if notices != [notice]:
            raise UntrustedError(f"the change check did not tell of its tripwire in {path}.")
    if not weaker_test("def test_a():\n    assert f()\n    assert g()\n", "def test_a():\n    pass\n"):
        raise UntrustedError("the change check did not tell of its tripwire, a test that is shorter.")
    return len(_TRAPS) + 1
