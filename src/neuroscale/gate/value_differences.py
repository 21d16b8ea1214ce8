"""Compares the values of settings, catalog, policies and cluster files before and after a change.

Entries are paired by their names, and objects by their identity, wherever their files lie. An entry that its type can
read is compared with the defaults filled in, so that a section that is left out counts as what it then means.

Says which changes of policies and of a cluster's files a reviewer must be told, in the form of `directions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from neuroscale.catalog.budgets import Budget, CostException
from neuroscale.catalog.directions import CATALOG_ROWS, DEEP, LEVELS, SETTINGS_ROWS, Direction, Notice, Row
from neuroscale.catalog.entries import ModelEntry
from neuroscale.catalog.loading import entry_of
from neuroscale.catalog.measurements import measurement_values
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.core.units import MIB
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import Path, decode, flow, read_documents
from neuroscale.gate.file_kinds import KINDS, kind_of
from neuroscale.gate.merged_change import Change
from neuroscale.gate.object_diff import ABSENT, in_words, raw_changes
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import ChangedValue
from neuroscale.manifests.objects import read_manifests
from neuroscale.manifests.pod_resources import quantity
from neuroscale.rendering.platform.files import is_rendered
from neuroscale.rendering.platform.monitoring import SCRAPE
from neuroscale.repo.git import TooLargeError
from neuroscale.repo.layout import ALERT_TESTS, POLICIES, POLICY_FILE
from neuroscale.repo.snapshot import Snapshot

POLICY_ROWS: tuple[Row, ...] = (
    Row("", Direction.REMOVED, Notice.REMOVED_POLICY),
    Row("kind", Direction.ANY, Notice.WEAKER_POLICY),
    Row("spec validationActions", Direction.FEWER, Notice.WEAKER_POLICY),
    Row("spec failurePolicy", Direction.LEVEL, Notice.WEAKER_POLICY),
    Row("spec matchConstraints matched", Direction.FEWER, Notice.WEAKER_POLICY),
    # Selectors, conditions and exclusions narrow what a policy judges.
    *(
        Row(f"spec {place}", Direction.ANY, Notice.WEAKER_POLICY)
        for place in (
            *("matchConditions", "evaluation", "autogen", "paramKind", "matchConstraints namespaceSelector"),
            *("matchConstraints objectSelector", "matchConstraints excludeResourceRules"),
            *("matchConstraints resourceRules", "matchConstraints matchPolicy"),
        )
    ),
    Row("spec validations", Direction.GONE, Notice.WEAKER_POLICY),
    # Whether another expression refuses less cannot be told from its text.
    Row("spec validations", Direction.ANY, Notice.CHANGED_POLICY),
    Row("spec variables", Direction.ANY, Notice.CHANGED_POLICY),
)
"""Of a policy, whose rules stand by what they match, and whose validations as text."""

_ACCESS = Notice.WIDER_ACCESS
_BY_KIND: Mapping[str, tuple[Row, ...]] = {
    "ResourceQuota": (
        Row("", Direction.REMOVED, Notice.RAISED_QUOTA),
        Row("spec hard *", Direction.LIMIT, Notice.RAISED_QUOTA),
        Row("spec scopes", Direction.ANY, Notice.RAISED_QUOTA),
        Row("spec scopeSelector", Direction.ANY, Notice.RAISED_QUOTA),
    ),
    "NetworkPolicy": (Row("", Direction.REMOVED, _ACCESS), Row("spec", Direction.ANY, _ACCESS)),
    "Namespace": (Row("metadata labels", Direction.ANY, _ACCESS),),
    "LimitRange": (Row("", Direction.REMOVED, Notice.RAISED_QUOTA), Row("spec", Direction.ANY, Notice.RAISED_QUOTA)),
    "ClusterServingRuntime": (Row("spec containers", Direction.ANY, Notice.CHANGED_SOURCE),),
    # What Argo CD may apply, and how requests come in.
    **dict.fromkeys(
        ("AppProject", "Gateway", "GatewayClass", "HTTPRoute", "BackendTrafficPolicy", "ClusterIssuer", "Certificate"),
        (Row("spec", Direction.ANY, _ACCESS),),
    ),
    **dict.fromkeys(
        ("Application", "ApplicationSet"),
        # What Argo CD applies, and what of it. Values of charts are only listed, unless a row below is about them.
        (
            *(Row("", direction, Notice.CHANGED_SOURCE) for direction in (Direction.ADDED, Direction.REMOVED)),
            *(
                Row(f"{spec} {place}", Direction.ANY, Notice.CHANGED_SOURCE)
                for spec in ("spec", "spec template spec")
                for place in (
                    *("source path", "source directory", "sources", "destination", "project"),
                    *("syncPolicy", "ignoreDifferences", "generators", "templatePatch"),
                )
            ),
        ),
    ),
    **dict.fromkeys(
        ("RoleBinding", "ClusterRoleBinding"),
        (
            Row("subjects", Direction.MORE, _ACCESS),
            Row("roleRef", Direction.ANY, _ACCESS),
        ),
    ),
    **dict.fromkeys(
        ("Role", "ClusterRole"),
        (
            Row("rules", Direction.ANY, _ACCESS),
            Row("aggregationRule", Direction.ANY, _ACCESS),
        ),
    ),
    **dict.fromkeys(
        ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        (Row("", Direction.REMOVED, Notice.REMOVED_POLICY), Row("spec", Direction.ANY, Notice.WEAKER_POLICY)),
    ),
}
_SOURCES_OF_CHARTS = (
    # Argo CD's configuration: who may log in, what it compares, and when it calls an object healthy.
    Row("configs", Direction.ANY, _ACCESS),
    # The program that refuses: with no replica, or with other arguments, it may refuse nothing.
    Row("** admissionController", Direction.ANY, Notice.CHANGED_POLICY),
)
_EVERY_OBJECT = (
    *(
        Row(f"** {name}", Direction.ANY, Notice.CHANGED_SOURCE)
        for name in ("repoURL", "repository", "targetRevision", "chart", "version", "image", "server")
    ),
    # Argo CD's own rights, and the namespaces and objects that Kyverno leaves alone.
    Row("** rbac", Direction.ANY, _ACCESS),
    *(Row(f"** {name}", Direction.ANY, _ACCESS) for name in ("oidc.config", "dex.config", "admin.enabled")),
    *(
        Row(f"** {name}", Direction.MORE, Notice.WEAKER_POLICY)
        for name in (
            *("webhooks namespaceSelector", "webhooks objectSelector", "resourceFilters", "resourceFiltersInclude"),
            *("excludeGroups", "excludeUsernames", "excludeRoles", "excludeClusterRoles"),
        )
    ),
    Row("** resourceFiltersExclude", Direction.FEWER, Notice.WEAKER_POLICY),
    Row("** features", Direction.ANY, Notice.CHANGED_POLICY),
    Row("** failurePolicy", Direction.LEVEL, Notice.WEAKER_POLICY),
)


def rows_of_object(kind: str) -> tuple[Row, ...]:
    """The rows of an object of a cluster by its kind, and of the sources that it is rendered from ("")."""
    if not kind:
        return (*_SOURCES_OF_CHARTS, *_EVERY_OBJECT)
    # Argo CD applies whatever is new in these folders, with all rights. Two kinds only limit what others may.
    new = () if kind in ("ResourceQuota", "LimitRange") else (Row("", Direction.ADDED, _ACCESS),)
    return (*_BY_KIND.get(kind, ()), *_EVERY_OBJECT, *new)


_MOST_FILES = 500  # that are compared; of the others the verdict says that they are not
_MOST_BYTES = 4 * MIB  # of the files that are compared
_MOST_VALUES = 100_000  # of one file
Key = tuple[str, ...]


@dataclass(frozen=True)
class ComparedEntry:
    """One entry or object of a file, as far as it is compared."""

    file: str
    value: Any
    rows: tuple[Row, ...]
    subject: str = ""  # the object's name


@dataclass(frozen=True)
class JudgedDifference:
    """A value that differs, and what that means."""

    file: str
    subject: str
    path: Path
    before: Any
    after: Any
    row: Row | None  # None: the direction of the difference is not known, or harmless

    @property
    def listed(self) -> ChangedValue:
        """The value as the verdict lists it."""
        words = in_words(self.path, self.before, self.after)
        return ChangedValue(
            kind=kind_of(self.file).noun,
            file=self.file,
            subject=self.subject,
            field=words.field,
            before=words.before,
            after=words.after,
            notice=self.row.notice if self.row else "",
        )


def changed_values(change: Change, after: PlatformSources) -> tuple[list[JudgedDifference], list[str]]:
    """Every value that differs, in the order of the files, and the paths of the files that cannot be compared."""
    paths = sorted(filter(is_compared, change.paths), key=lambda path: KINDS.index(kind_of(path)))
    before, unread = entries_of(change.before, paths[:_MOST_FILES])
    later, unread_after = after.read(lambda snapshot: entries_of(snapshot, paths[:_MOST_FILES]))
    values = list(compared(before, later))
    return values, [*dict.fromkeys((*unread, *unread_after, *paths[_MOST_FILES:]))]


def holds_objects(path: str) -> bool:
    """Whether a file is one of those that hold a cluster's objects, as rendering writes them."""
    return is_rendered(path) and path != SCRAPE


def is_compared(path: str) -> bool:
    """Whether a file holds values that are compared."""
    kind = kind_of(path).entries
    if kind == "policies":
        return path.endswith(f"/{POLICY_FILE}")
    return bool(kind) and path.endswith((".yaml", ".yml", ".json")) and path != ALERT_TESTS


def entries_of(snapshot: Snapshot, paths: Iterable[str]) -> tuple[dict[Key, ComparedEntry], list[str]]:
    """The entries of the files that are there, by their names, and the paths of files that cannot be read."""
    entries: dict[Key, ComparedEntry] = {}
    unread: list[str] = []
    room = _MOST_BYTES
    for path in paths:
        try:
            data = snapshot.read(path)
            if data is None:
                continue
            room -= len(data)
            if len(data) > MIB or room < 0:
                unread.append(path)
                continue
            for key, entry in _read(path, data):
                again = sum(other[: len(key)] == key for other in entries) if key in entries else 0
                entries[(*key, str(again)) if again else key] = entry
        except (InputError, TooLargeError):
            unread.append(path)
    return entries, unread


def _read(path: str, data: bytes) -> Iterator[tuple[Key, ComparedEntry]]:
    kind, text = kind_of(path).entries, decode(data, path)
    if holds_objects(path):
        for manifest in read_manifests(data, path):
            key = ("object", *_place(path), *manifest.identity)
            yield key, ComparedEntry(path, manifest.value, rows_of_object(manifest.kind), manifest.subject)
        return
    documents = [document.value for document in read_documents(text, path, _MOST_VALUES)]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        for number, document in enumerate(documents):
            yield (kind, path, str(number)), ComparedEntry(path, document, rows_of_object(""))
        return
    (value,) = documents
    if kind == "policies":
        yield (kind, path), ComparedEntry(path, _policy(value), POLICY_ROWS)
    elif kind in ("cluster", "settings"):
        rows = SETTINGS_ROWS if kind == "settings" else rows_of_object("")
        yield (kind, path), ComparedEntry(path, _typed(kind, text, path, value), rows)
    else:
        value = _typed(kind, text, path, value)
        name = value.get("name") or value.get("cost_center") or path
        yield (kind, str(path if kind == "exceptions" else name)), ComparedEntry(path, value, CATALOG_ROWS[kind])


def _place(path: str) -> tuple[str, ...]:
    """The cluster of a rendered file: each gets an object of the same identity."""
    parts = path.split("/")
    return tuple(parts[1:3]) if parts[1] in ("argocd", "clusters", "monitoring") else ()


def _typed(kind: str, text: str, path: str, value: dict[str, Any]) -> dict[str, Any]:
    """The entry with its defaults; `value`, as it is in the file, if its type cannot read it."""
    try:
        if kind == "settings":
            return parse(Settings, text, path).model_dump(mode="json")
        if kind == "budgets":
            return parse(Budget, text, path).model_dump(mode="json")
        if kind == "exceptions" and not path.startswith(f"{POLICIES}/"):
            return parse(CostException, text, path).model_dump(mode="json")
        if kind in ("cluster", "exceptions"):
            return value
        entry = entry_of(kind, text, path)
        # What only a newer version knows, where that is left out, differs all the same.
        unknown = value.keys() - type(entry).model_fields.keys()
        read = {name: value[name] for name in unknown} | entry.model_dump(mode="json")
    except InputError:
        return value
    if isinstance(entry, ModelEntry):
        read["measurements"] = {one.title: measurement_values(one) for one in entry.measurements}
    if kind == "prices":
        read["prices"] = {
            " ".join(
                filter(None, (f"{price['accelerator']} x {price['count']}", (price["instance"] or {}).get("name")))
            ): price
            for price in read["prices"]
        }
    return read


def _policy(value: dict[str, Any]) -> dict[str, Any]:
    """A policy with its rules by what they match, so that a matched kind that is left out shows as that."""
    spec = value.get("spec")
    constraints = spec.get("matchConstraints") if isinstance(spec, dict) else None
    rules = constraints.get("resourceRules") if isinstance(constraints, dict) else None
    if not isinstance(spec, dict) or not isinstance(constraints, dict) or not isinstance(rules, list):
        return value
    matched: list[str] = []
    for rule in rules:
        parts = [rule.get(name) if isinstance(rule, dict) else None for name in _RULE]
        if not all(isinstance(part, list) for part in parts):
            return value
        groups, versions, resources, operations = parts
        matched += [
            f"{operation} {resource}.{group}/{version}"
            for group in groups or ()
            for version in versions or ()
            for resource in resources or ()
            for operation in operations or ()
        ]
    validations = spec.get("validations")
    expressions = [flow(validation) for validation in validations] if isinstance(validations, list) else validations
    kept = {key: part for key, part in constraints.items() if key != "resourceRules"}
    shown = {**spec, "matchConstraints": {**kept, "matched": sorted(set(matched))}, "validations": expressions}
    return {**value, "spec": shown}


_RULE = ("apiGroups", "apiVersions", "resources", "operations")


def compared(before: Mapping[Key, ComparedEntry], after: Mapping[Key, ComparedEntry]) -> Iterator[JudgedDifference]:
    """Every value in which the entries differ."""
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        entry = new or old
        if entry is None:
            continue
        sides = old.value if old else ABSENT, new.value if new else ABSENT
        for path, left, right in raw_changes(*sides):
            for place, before_it, after_it, row in _judged(path, left, right, entry.rows):
                yield JudgedDifference(entry.file, entry.subject, place, before_it, after_it, row)


def _judged(path: Path, before: Any, after: Any, rows: tuple[Row, ...]) -> Iterator[tuple[Path, Any, Any, Row | None]]:
    """The difference with the row that tells of it. A part that is new or gone is split if rows tell of its parts."""
    row = next((row for row in rows if row.matches(path) and _possible(row.direction, before, after)), None)
    parts = next((side for side in (before, after) if isinstance(side, dict)), None)
    whole = row is not None and (row.direction in DEEP or row.direction in (Direction.ADDED, Direction.REMOVED))
    if path and parts and not whole:
        inner = [
            judged
            for key in parts
            for judged in _judged((*path, key), _part(before, key), _part(after, key), rows)
            if judged[3] is not None
        ]
        if inner:
            yield from inner
            return
    yield path, before, after, row if row is not None and _tells(row.direction, before, after) else None


def _possible(direction: Direction, before: Any, after: Any) -> bool:
    """Whether a row of this direction is about such a difference: a part that is new, one that is gone, or either."""
    if direction in (Direction.GONE, Direction.REMOVED):
        return after is ABSENT
    return direction is not Direction.ADDED or before is ABSENT


def _part(side: Any, key: str) -> Any:
    return side.get(key, ABSENT) if isinstance(side, dict) else ABSENT


def _tells(direction: Direction, before: Any, after: Any) -> bool:
    """Whether a change from one value to the other is one that the direction is about."""
    if direction is Direction.ANY:
        return True
    if direction in (Direction.MORE, Direction.ADDED):
        return before is ABSENT or (direction is Direction.MORE and after is not ABSENT)
    if direction in (Direction.FEWER, Direction.GONE, Direction.REMOVED):
        return after is ABSENT or (direction is Direction.FEWER and before is not ABSENT)
    if direction is Direction.LEVEL:
        order = next((levels for levels in LEVELS if before in levels and after in levels), None)
        return order is None or order.index(after) < order.index(before)
    old, new_value = _number(before, direction), _number(after, direction)
    if old is None or new_value is None:
        return True  # a value that is no number of any kind
    return new_value < old if direction is Direction.LOWER else new_value > old


def _number(value: Any, direction: Direction) -> Decimal | None:
    if value is ABSENT or value is None:
        return Decimal("Infinity") if direction is Direction.LIMIT else Decimal("-Infinity")
    try:
        if direction is Direction.LATER:
            return Decimal(date.fromisoformat(str(value)).toordinal())
        return quantity(value)
    except ValueError:
        return None
