"""Renders a team's place in a cluster from its entry in the catalog: namespace, quota, network, access and tests.

Refuses a team in a namespace that Kyverno leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neuroscale.catalog import Catalog, Team
from neuroscale.catalog.settings import Environment, Settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import quoted, read_mapping
from neuroscale.rendering.platform.charts import FOLDER, Chart, chart_values
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.repo.layout import CATALOG, SETTINGS, TENANCY
from neuroscale.repo.snapshot import Snapshot, read_text

SMOKE_TESTS = "neuroscale:smoke-tests"
"""The group that may test running services, as the templates name it."""
KYVERNO = "platform/serving/kyverno.yaml"


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


def render_for_clusters(catalog: Catalog, settings: Settings) -> dict[str, str]:
    """What a team gets in the cluster of one environment alone, one file a team, by its path in the repository: the
    ServiceAccount of pods that read the store, and Secrets out of the organisation's secret store."""
    return {
        f"{teams_folder(name)}/{team.name}.yaml": "---\n".join(_in_cluster(environment, team))
        for name, environment in settings.environments.items()
        if environment.has_files_of_teams
        for team in catalog.teams.values()
    }


def _in_cluster(environment: Environment, team: Team) -> Iterator[str]:
    named = {"namespace": team.namespace, "cost_center": team.cost_center}
    account, store = environment.service_account, environment.secret_store
    bucket = (account.bucket_secret if account is not None else None) or ""
    if account is not None:
        # KServe's copy takes the Secrets that the account names, and the account's annotations on a bucket.
        annotations = [{"name": key, "value": text} for key, text in sorted(account.annotations.items())]
        shown = {"annotations": annotations, "has_annotations": bool(annotations), "has_secret": bool(bucket)}
        yield filled("service-account.yaml", name=account.name, secret=bucket, **shown, **named)
    if store is not None:
        token = environment.token_secret
        entries = {bucket: ""} if bucket else {}
        entries |= {token.name: token.key} if environment.models.hub else {}
        for secret, entry in sorted(entries.items()):
            yield filled(
                "external-secret.yaml",
                secret=secret,
                store=store.store,
                store_kind=store.store_kind,
                key=store.key(team.namespace, secret),
                has_entry=bool(entry),
                entry=entry,
                **named,
            )


def teams_folder(environment: str) -> str:
    """The folder of what every team gets in one environment's cluster alone."""
    return f"{FOLDER}/{environment}/teams"


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


def system_namespaces(values: Any, where: str = KYVERNO, place: str = "") -> tuple[str, ...]:
    """The namespaces that Kyverno's webhooks leave alone, from its values, which `where` holds below the field `place`.
    Raises InputError."""
    try:
        (rule,) = values["config"]["webhooks"]["namespaceSelector"]["matchExpressions"]
        if (rule["key"], rule["operator"]) == ("kubernetes.io/metadata.name", "NotIn"):
            return tuple(rule["values"])
    except (KeyError, TypeError, ValueError):
        pass
    field = f"{place}config.webhooks.namespaceSelector.matchExpressions"
    raise InputError.at(where, field, "is not one list of names", "Write one kubernetes.io/metadata.name NotIn.")


def check_namespaces(snapshot: Snapshot, catalog: Catalog, charts: tuple[Chart, ...], settings: Settings) -> None:
    """Refuse a team in a namespace that Kyverno leaves alone, in every cluster or by the values that an environment
    gives Kyverno's chart: no policy would judge its objects. Raises InputError."""
    spared = dict.fromkeys(system_namespaces(read_mapping(read_text(snapshot, KYVERNO), KYVERNO).value), KYVERNO)
    for chart in (chart for chart in charts if KYVERNO in chart.values_files):
        for name, environment in settings.environments.items():
            if chart.name in environment.charts:
                place = f"environments.{name}.charts.{chart.name}"
                values = chart_values(chart, snapshot, settings, name)
                own = dict.fromkeys(system_namespaces(values, SETTINGS, f"{place}."), f"{SETTINGS}, {place}")
                spared = own | spared
    problems = [
        Problem(
            f"{CATALOG}/teams/{team.name}.yaml",
            "namespace",
            f"{team.namespace!r} is a namespace that Kyverno leaves alone ({spared[team.namespace]})",
            "Give the team a namespace of its own.",
        )
        for team in catalog.teams.values()
        if team.namespace in spared
    ]
    if problems:
        raise InputError(problems)
