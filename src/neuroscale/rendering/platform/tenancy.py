"""Renders a team's place in a cluster: namespace, quota, network, access and tests, from its entry in the catalog."""

from __future__ import annotations

from neuroscale.catalog import Catalog, Team
from neuroscale.core.yaml_io import quoted
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.repo.layout import TENANCY

FOLDER = TENANCY
SMOKE_TESTS = "neuroscale:smoke-tests"
"""The group that may test running services, as the templates name it."""


def render(catalog: Catalog) -> dict[str, str]:
    """The files of every team and of the group that tests its services, by their path in the repository."""
    resources = sorted({entry.resource for entry in catalog.accelerators.values() if entry.resource})
    files = {f"{FOLDER}/smoke-tests.yaml": filled("smoke-tests-cluster.yaml", group=SMOKE_TESTS)}
    for team in catalog.teams.values():
        named = {"namespace": team.namespace, "cost_center": team.cost_center}
        of_team = {
            "namespace.yaml": filled("namespace.yaml", team=team.name, owner=team.owner, contact=team.contact, **named),
            "quota.yaml": filled("quota.yaml", **_share(team, resources), **named),
            "network.yaml": filled("network.yaml", **named),
            "access.yaml": filled("access.yaml", namespace=team.namespace, group=team.group or team.owner),
            "smoke-tests.yaml": filled("smoke-tests.yaml", namespace=team.namespace, group=SMOKE_TESTS),
        }
        files |= {f"{FOLDER}/{team.name}/{name}": text for name, text in of_team.items()}
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
