"""Lets Argo CD of the local platform deploy the same files as on a real cluster, read from the local forge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings, local_environment
from neuroscale.cluster.platform_install import install
from neuroscale.core import delivered
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import one_line
from neuroscale.core.waiting import attempts
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local.argocd import ArgoCD
from neuroscale.local.control_plane import cluster
from neuroscale.local.forge_repository import MAIN
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.kyverno import await_policies
from neuroscale.local.state import LocalError
from neuroscale.policies.policy_set import load_policy_set
from neuroscale.rendering.platform.argocd import ENVIRONMENT_LABEL, environment_objects, render
from neuroscale.rendering.platform.charts import load_charts
from neuroscale.repo.snapshot import FolderSnapshot

_SERVICES = "services.yaml"
_APPLICATION = "Application"
_WITHIN = 300.0  # seconds


def deploy(forge: LocalForge, checkout: Path | None, tell: Callable[[str], None]) -> None:
    """Configure Argo CD's deployments. Safe to repeat. Raises the errors of `install`.

    The cluster gets the files of the settings' local environment. Services of other environments may be deployed to it
    too, on simulated nodes.
    """
    snapshot = FolderSnapshot(checkout or delivered.FOLDER)
    settings, catalog, charts = load_settings(snapshot), load_catalog(snapshot), load_charts(snapshot)
    source, own = forge.platform.clone_url, local_environment(settings)

    def files(environment: str) -> dict[str, str]:
        return render(settings, catalog, charts, environment, source, MAIN)

    wanted = environment_objects(files(own))
    for environment in forge.state.instance.environments:
        if environment != own:
            wanted += [_adopted(one, own) for one in environment_objects({_SERVICES: files(environment)[_SERVICES]})]
    argocd = ArgoCD(forge.state)
    forge.register_webhooks(argocd.webhooks, argocd.webhook_secret())
    with cluster(forge.state) as live:
        done = install(live, own, wanted)
        _await_synced(live, [Identity.of(one) for one in wanted if one["kind"] == _APPLICATION], tell)
        await_policies(live, load_policy_set(snapshot), _WITHIN)
    if changed := [str(one.identity) for one in done.applied if one.result != "unchanged"]:
        tell(f"Argo CD deploys {source}: {', '.join(changed)}.")


def _await_synced(live: Cluster, applications: list[Identity], tell: Callable[[str], None]) -> None:
    """Wait for the objects that every service needs: runtimes, the teams' namespaces, policies. Raises LocalError."""
    tell("Waiting until Argo CD has deployed runtimes, teams' namespaces and policies.")
    for _ in attempts(_WITHIN, pause=0.2):
        waiting = {name: state for one in applications for name, state in [_state(live, one)] if state}
        if not waiting:
            return
    told = "; ".join(f"{name}: {state}" for name, state in waiting.items())
    raise LocalError(f"Argo CD did not deploy the platform within {duration(_WITHIN)}. {told}")


def _state(live: Cluster, application: Identity) -> tuple[str, str]:
    """Why the application is not deployed yet; empty if it is."""
    found = live.get(application.group_version, application.kind, application.name, application.namespace) or {}
    status = found.get("status") or {}
    operation = status.get("operationState") or {}
    if operation.get("phase") == "Succeeded" and (status.get("sync") or {}).get("status") == "Synced":
        return application.name, ""
    told = [one["message"] for one in status.get("conditions") or ()]
    return application.name, one_line(" ".join([operation.get("message", "not synced"), *told]), 300)


def _adopted(application_set: Object, environment: str) -> Object:
    """The application set of another environment, changed to deploy to the cluster of this one."""
    metadata = application_set["metadata"]
    return {
        **application_set,
        "metadata": {**metadata, "labels": {**metadata["labels"], ENVIRONMENT_LABEL: environment}},
    }
