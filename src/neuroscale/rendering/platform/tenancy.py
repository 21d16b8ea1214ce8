"""Renders a team's place in a cluster from its entry in the catalog: namespace, quota, network, access and tests.

Refuses a team in a namespace that Kyverno leaves alone.
"""

from __future__ import annotations

from typing import Any

from neuroscale.catalog import Catalog, Team
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import quoted, read_mapping
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.repo.layout import CATALOG, TENANCY
from neuroscale.repo.snapshot import Snapshot, read_text

SMOKE_TESTS = "neuroscale:smoke-tests"
"""The group that may test running services, as the templates name it."""


def render_tenancy(catalog: Catalog) -> dict[str, str]:
    """The files of every team and of the group that tests its services, by their path in the repository."""
    resources = sorted({entry.resource for entry in catalog.accelerators.values() if entry.resource})
    files = {f"{TENANCY}/smoke-tests.yaml": filled("smoke-tests-cluster.yaml", group=SMOKE_TESTS)}
    for team in catalog.teams.values():
        named = {"namespace": team.namespace, "cost_center": team.cost_center}
        of_team = {
            "namespace.yaml": filled("namespace.yaml", team=team.name, owner=team.owner, contact=team.contact, **named),
            "quota.yaml": filled("quota.yaml", **_share(team, resources), **named),
            "network.yaml": filled("network.yaml", **named),
            "access.yaml": filled("access.yaml", namespace=team.namespace, group=team.group or team.owner),
            "smoke-tests.yaml": filled("smoke-tests.yaml", namespace=team.namespace, group=SMOKE_TESTS),
        }
        files |= {f"{TENANCY}/{team.name}/{name}": text for name, text in of_team.items()}
    return files


def _share(team: Team, resources: list[str]) -> dict[str, object]:
    quota = team.quota
    counts = {name: quota.accelerators.get(name, 0) for name in sorted({*resources, *quota.accelerators})}
    return {
        "pods": _count(quota.pods),
        "cpu": _count(quota.cpu),
        "memory": f"{quota.memory_gib // 1024}Ti" if quota.memory_gib % 1024 == 0 else f"{quota.memory_gib}Gi",
        # Kubernetes counts an extended resource only by its requests.
        "accelerators": [{"name": f"requests.{name}", "value": _count(count)} for name, count in counts.items()],
    }


def _count(number: int) -> Verbatim:
    """A quantity as text, as Kubernetes itself would write it."""
    return Verbatim(quoted(f"{number // 1000}k" if number and number % 1000 == 0 else str(number)))


KYVERNO = "platform/serving/kyverno.yaml"


def system_namespaces(values: Any) -> tuple[str, ...]:
    """The namespaces that Kyverno's webhooks leave alone, from its values. Raises InputError."""
    try:
        (rule,) = values["config"]["webhooks"]["namespaceSelector"]["matchExpressions"]
        if (rule["key"], rule["operator"]) == ("kubernetes.io/metadata.name", "NotIn"):
            return tuple(rule["values"])
    except (KeyError, TypeError, ValueError):
        pass
    field = "config.webhooks.namespaceSelector.matchExpressions"
    raise InputError.at(KYVERNO, field, "is not one list of names", "Write one kubernetes.io/metadata.name NotIn.")


def check_namespaces(snapshot: Snapshot, catalog: Catalog) -> None:
    """Refuse a team in a namespace that Kyverno leaves alone: no policy would judge its objects."""
    spared = system_namespaces(read_mapping(read_text(snapshot, KYVERNO), KYVERNO).value)
    problems = [
        Problem(
            f"{CATALOG}/teams/{team.name}.yaml",
            "namespace",
            f"{team.namespace!r} is a namespace that Kyverno leaves alone ({KYVERNO})",
            "Give the team a namespace of its own.",
        )
        for team in catalog.teams.values()
        if team.namespace in spared
    ]
    if problems:
        raise InputError(problems)
