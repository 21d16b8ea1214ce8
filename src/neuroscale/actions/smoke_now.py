"""Runs the smoke tests now: finds the cluster, the commit and the ways to the services, and names the causes of what
does not run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from neuroscale.actions.chosen_cluster import (
    Where,
    asked_cluster,
    clone_for,
    gateway_way,
    local_state,
    open_cluster,
    way_to_the_local_forge,
)
from neuroscale.actions.explained_service import told_of
from neuroscale.actions.open_repository import open_repository
from neuroscale.actions.progress import SILENT, Progress
from neuroscale.catalog.settings import load_settings
from neuroscale.cluster.endpoint.key import KEY_FILE_VARIABLE, KEY_VARIABLE
from neuroscale.cluster.endpoint.routes import read_rules
from neuroscale.core.addresses import checked_address
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.validation import part
from neuroscale.kube.client import Cluster, KubernetesError
from neuroscale.rendering.platform.argocd import NAMESPACE, SERVICE_LABEL
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, find_root
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.smoke.expected_services import load_target
from neuroscale.smoke.results import Report, Result, from_record
from neuroscale.smoke.runner import Spec, run_and_confirm

_BEFORE = 300.0  # seconds for the checks of the whole environment
_CAUSE_SECONDS = 30.0  # in which the causes of services that do not run are looked up
_REQUESTS = 30  # the most requests that a service's checks send one after the other


@dataclass(frozen=True)
class Question:
    """The services to test: an environment's, or one of them; `base_url` is the address of that one for its clients.

    `revision`: the commit whose facts count ("": the newest one of the default branch). `patience`: seconds that the
    first part of an answer may take. `within`: seconds after which the tests are stopped and their report is written
    (0: by the number of services). `connect_to`: the ways to hosts, as curl takes them (none: the gateway of the
    local platform, if that is asked). `pause`: seconds until services to which only the way failed are tested anew.
    """

    environment: str
    service: str = ""
    base_url: str = ""
    revision: str = ""
    patience: float = 60.0
    within: float = 0.0
    connect_to: tuple[str, ...] = ()
    pause: float = 60.0


def smoke_report(
    question: Question,
    where: Where,
    repository: Path | None,
    keep: Callable[[Report], None] = lambda _: None,
    tell: Callable[[Result], None] = lambda _: None,
    progress: Progress = SILENT,
) -> Report:
    """Run the smoke tests; their results, which `keep` gets before their causes are known, and `tell` as they come.

    Raises InputError and NeuroscaleError where they cannot be run.
    """
    began = time.monotonic()
    root = find_root(repository or Path.cwd())
    where = asked_cluster(where, root, question.environment, progress)
    with open_cluster(where) as cluster:
        revision, fetch, sources = _revision(where, root, question.revision, cluster)
        kubeconfig, context = cluster.kubeconfig, cluster.context
        own_options, kubectl_options = cluster.own_options, cluster.kubectl_options
    target = load_target(root, question.environment, revision, question.service, fetch)
    if not target.services:
        place = f"{MANIFESTS}/{question.environment} at {revision[:10]}"
        raise UntrustedError(
            f"There is no service in {place}: nothing was tested. Check that the environment is right."
        )
    if question.base_url:
        checked_address(question.base_url, "--base-url", "the key")
    connect_to, authority = _ways(question, where, root)
    alone = question.base_url or any(os.environ.get(name) for name in (KEY_VARIABLE, KEY_FILE_VARIABLE))
    if alone and len(target.services) > 1:
        message = f"an address or a key belongs to one service, but {question.environment} has {len(target.services)}"
        raise InputError.at("the command line", "--service", message, "Name the service with --service.")
    address, variables = way_to_the_local_forge(where)
    spec = Spec(
        repository=str(root),
        environment=question.environment,
        revision=revision,
        services=tuple(service.name for service in target.services),
        base_url=question.base_url,
        connect_to=connect_to,
        authority=authority,
        kubeconfig="" if kubeconfig is None else str(kubeconfig.resolve()),
        context=context or "",
        own_options=own_options,
        kubectl_options=kubectl_options,
        fetch=fetch,
        sources=(*sources, *address),
        patience=question.patience,
    )

    def journal(kind: str, fields: dict[str, Any]) -> None:
        if kind == "result":
            tell(from_record(fields))

    within = _BEFORE + question.pause + len(spec.services) * _REQUESTS * question.patience
    if question.within:
        within = max(1.0, question.within - (time.monotonic() - began))
    report = run_and_confirm(spec, journal, within=within, pause=question.pause, variables=variables)
    keep(report)
    return with_causes(report, where, root)


def with_causes(report: Report, where: Where, root: Path) -> Report:
    """The report with the cause and the next configuration of each service that does not run: who reads it in a pull
    request's comment may not ask the cluster."""
    if not any(_does_not_run(result) for result in report.checks):
        return report

    try:
        opened = open_repository(root)
    except InputError:  # the gate tells what is wrong with it
        return report
    checks, until = [], time.monotonic() + _CAUSE_SECONDS
    for result in report.checks:
        if _does_not_run(result) and time.monotonic() < until:
            cause, following = told_of(f"{report.environment}/{result.service}", where, opened)
            message = result.message if not cause or cause in result.message else f"{result.message}. {cause}"
            result = replace(result, message=message, next="; ".join(filter(None, (result.next, following))))
        checks.append(result)
    return replace(report, checks=tuple(checks))


def _does_not_run(result: Result) -> bool:
    return result.check == "ready" and result.outcome == "failed" and bool(result.service)


def _ways(question: Question, where: Where, root: Path) -> tuple[tuple[str, ...], str]:
    """The ways to the hosts of services, and the file of what signs their certificates: the named ones, else those to
    the gateway of the local platform that is asked, for hosts of the platform.
    """
    read_rules(question.connect_to)  # a wrong one is refused before anything is done
    if question.connect_to:
        return question.connect_to, ""
    state = local_state(where)
    way = None if state is None else gateway_way(state)
    domain = load_settings(FolderSnapshot(root)).domain
    host = urlsplit(question.base_url).hostname or domain
    if way is None or not f".{host}".endswith(f".{domain}"):
        return (), ""
    ports = {443: way.port, 80: way.redirect_port}
    return tuple(f":{port}:127.0.0.1:{to}" for port, to in ports.items() if to), str(way.authority)


def _revision(where: Where, root: Path, named: str, cluster: Cluster) -> tuple[str, str, tuple[str, ...]]:
    """The commit whose facts count: the named one, or the default branch's newest in this clone; the command that
    fetches what Argo CD reads, and the remotes and addresses that may have it.
    """
    clone = clone_for(where, root, load_settings(FolderSnapshot(root)).repository.default_branch)
    try:
        clone.follow(_source(cluster))
        tip, fetch, sources = clone.tip, clone.fetch_line, clone.sources
    finally:
        clone.close()
    if named:
        git = Git(root)
        try:
            return git.commit(named, "--revision"), fetch, sources
        finally:
            git.close()
    if tip is None:
        raise InputError.at(str(root), "", "is not a clone with a commit", "Run it in a clone of the repository.")
    return tip, fetch, sources


def _source(cluster: Cluster) -> str:
    """The address that the cluster's Argo CD reads; "" if the cluster cannot be asked, which a check will report."""
    try:
        applications = cluster.list("argoproj.io/v1alpha1", "Application", NAMESPACE, SERVICE_LABEL)
    except KubernetesError:
        return ""
    return next((str(part(application, "spec", "source").get("repoURL") or "") for application in applications), "")
