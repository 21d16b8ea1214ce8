"""What Argo CD of the local platform deploys: the same files as on a real cluster, read from the local forge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.cluster.install import install
from neuroscale.kube.client import Object
from neuroscale.local.argocd import ArgoCD
from neuroscale.local.control_plane import cluster
from neuroscale.local.seed import LocalForge
from neuroscale.platform.argocd import ENVIRONMENT_LABEL, environment_objects, render
from neuroscale.platform.charts import load_charts
from neuroscale.settings import load_settings
from neuroscale.snapshot import FolderSnapshot
from neuroscale.toolcache import REPOSITORY

ENVIRONMENT = "local"
"""The environment that the cluster is. Services of others may be deployed onto it too, onto simulated nodes."""

_SERVICES = "services.yaml"


def deploy(forge: LocalForge, checkout: Path | None, tell: Callable[[str], None]) -> None:
    """Tell Argo CD what to deploy. Running twice changes nothing. Raises what `install` raises."""
    snapshot = FolderSnapshot(checkout or REPOSITORY)
    settings, catalog, charts = load_settings(snapshot), load_catalog(snapshot), load_charts(snapshot)
    source, branch = forge.platform.clone_url, settings.repository.default_branch

    def files(environment: str) -> dict[str, str]:
        return render(settings, catalog, charts, environment, source, branch)

    wanted = environment_objects(files(ENVIRONMENT))
    for environment in forge.state.instance.environments:
        if environment != ENVIRONMENT:
            wanted += [_adopted(one) for one in environment_objects({_SERVICES: files(environment)[_SERVICES]})]
    argocd = ArgoCD(forge.state)
    forge.register_webhooks(argocd.webhooks, argocd.webhook_secret())
    with cluster(forge.state) as live:
        done = install(live, ENVIRONMENT, wanted)
    if changed := [str(one.identity) for one in done.applied if one.result != "unchanged"]:
        tell(f"Argo CD deploys {source}: {', '.join(changed)}.")


def _adopted(application_set: Object) -> Object:
    """The application set of another environment, as one of this cluster's."""
    metadata = application_set["metadata"]
    return {
        **application_set,
        "metadata": {**metadata, "labels": {**metadata["labels"], ENVIRONMENT_LABEL: ENVIRONMENT}},
    }
