"""Renders Argo CD's configuration: projects, the applications of the platform, and one application a service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import read_mapping
from neuroscale.rendering.object_names import application_name
from neuroscale.rendering.platform import monitoring
from neuroscale.rendering.platform.charts import Chart, upstream_folder
from neuroscale.rendering.platform.filling import Object, filled, objects
from neuroscale.rendering.platform.tenancy import teams_folder
from neuroscale.repo.layout import CATALOG_INFO, MANIFESTS, PLAN_FILE, POSSIBLE_KINDS, RENDERED_KINDS, REQUEST_FILE

NAMESPACE = "argocd"
FOLDER = "platform/argocd"
VALUES = f"{FOLDER}/values.yaml"
ENVIRONMENT_LABEL = "neuroscale.dev/environment"
SERVICE_LABEL = "neuroscale.dev/service"

# The API group of each kind that a service consists of.
_GROUPS = {
    "InferenceService": "serving.kserve.io",
    "NetworkPolicy": "networking.k8s.io",
    "PodDisruptionBudget": "policy",
    "ExternalSecret": "external-secrets.io",
}
# The ConfigMap for each part of the values.
_CONFIG_MAPS = {"cm": "argocd-cm", "params": "argocd-cmd-params-cm", "rbac": "argocd-rbac-cm"}


def render(
    settings: Settings,
    catalog: Catalog,
    charts: tuple[Chart, ...],
    environment: str,
    repository: str | None = None,
    revision: str | None = None,
) -> dict[str, str]:
    """The files of an environment, by name: projects.yaml, root.yaml, services.yaml.

    `repository` and `revision` are what Argo CD reads (None: those of the settings). Raises KeyError for an environment
    that the settings lack.
    """
    url = repository or settings.repository.url
    branch = revision or settings.repository.default_branch
    where = {"repository": url, "revision": branch, "environment": environment}
    cluster = settings.environments[environment].cluster
    kinds = RENDERED_KINDS if settings.environments[environment].secret_store is None else POSSIBLE_KINDS
    used = sorted({chart.repository for chart in charts if cluster in chart.clusters})
    return {
        "projects.yaml": filled(
            "projects.yaml",
            repository=url,
            chart_repositories=used,
            namespaces=sorted(team.namespace for team in catalog.teams.values()),
            kinds=[{"name": _GROUPS[kind], "value": kind} for kind in kinds.values()],
        ),
        "root.yaml": filled("root.yaml", parts=_parts(settings, environment), **where),
        "services.yaml": filled(
            "services.yaml",
            name=f"services-{environment}",
            folders=f"{MANIFESTS}/{environment}/*",
            application=application_name(environment, "{{ .path.basename }}"),
            exclude=f"{{{REQUEST_FILE},{PLAN_FILE},{CATALOG_INFO}}}",
            include=f"{{{','.join(kinds)}}}",
            **where,
        ),
    }


def _parts(settings: Settings, environment: str) -> list[dict[str, str]]:
    cluster = settings.environments[environment].cluster
    upstream = {"name": "platform-upstream", "path": upstream_folder(settings, environment), "include": "*.yaml"}
    watched = {"name": "platform-monitoring", "path": f"{monitoring.FOLDER}/{environment}", "include": "*.yaml"}
    teams = {"name": "platform-teams", "path": teams_folder(environment), "include": "*.yaml"}
    return [
        *([] if cluster == "local" else [upstream, watched]),
        *([teams] if settings.environments[environment].has_files_of_teams else []),
        {"name": "platform-runtimes", "path": "platform/serving/runtimes", "include": "*.yaml"},
        {"name": "platform-tenancy", "path": "platform/tenancy", "include": "*.yaml"},
        # Only the policies: neither their tests with good and bad resources, nor the tripwires.
        {"name": "platform-policies", "path": "policies", "include": "*/policy.yaml"},
    ]


def config_maps(values: str) -> list[Object]:
    """The ConfigMaps of Argo CD that platform/argocd/values.yaml holds. Raises InputError."""
    value: Any = read_mapping(values, VALUES).value
    parts: Any = value.get("configs")
    if set(value) != {"configs"} or not isinstance(parts, dict) or not set(parts) <= set(_CONFIG_MAPS):
        known = ", ".join(f"configs.{name}" for name in _CONFIG_MAPS)
        raise InputError.at(VALUES, "", "holds unknown keys", f"Keep only {known}.")
    found: list[Object] = []
    for part, data in parts.items():
        if not isinstance(data, Mapping) or not all(isinstance(text, str) for text in data.values()):
            raise InputError.at(VALUES, f"configs.{part}", "is not a mapping of text", 'Quote each value: "true".')
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": _CONFIG_MAPS[part],
                    "namespace": NAMESPACE,
                    # Argo CD reads only ConfigMaps with this label.
                    "labels": {"app.kubernetes.io/name": _CONFIG_MAPS[part], "app.kubernetes.io/part-of": "argocd"},
                },
                "data": dict(data),
            }
        )
    return found


def environment_objects(files: Mapping[str, str]) -> list[Object]:
    """The objects of `render`, in the order in which to apply them."""
    return [found for name, text in files.items() for found in objects(text, name)]
