"""`neuroscale smoke`: runs the smoke tests against live services, and writes their results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from neuroscale.catalog.settings import load_settings
from neuroscale.cli.chosen_cluster import (
    Where,
    asked_cluster,
    clone_for,
    gateway_way,
    local_state,
    open_cluster,
    way_to_the_local_forge,
)
from neuroscale.cli.options import (
    ClusterStateOption,
    ContextOption,
    KubeconfigOption,
    Reports,
    RepositoryOption,
    write_whole,
)
from neuroscale.cluster.endpoint.key import KEY_FILE_VARIABLE, KEY_VARIABLE
from neuroscale.cluster.endpoint.routes import read_rules
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError, UntrustedError
from neuroscale.core.validation import checked_address, part
from neuroscale.kube.client import Cluster, KubernetesError
from neuroscale.rendering.platform.argocd import NAMESPACE, SERVICE_LABEL
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, find_root
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.smoke.expected_services import load_target
from neuroscale.smoke.results import Report, Result, from_record, line, print_table, to_json, to_junit, to_markdown
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


def run_smoke_tests(question: Question, where: Where, repository: Path | None, reports: Reports) -> int:
    """Run the tests, report, and return the exit status: 0 only if every check ran and passed.

    Raises InputError for options that cannot be used, UntrustedError if there is nothing to test.
    """
    for path in (reports.json, reports.junit, reports.markdown):
        if path is not None:
            path.unlink(missing_ok=True)  # an older run's report must never be taken for this run's
    started = datetime.now(UTC)
    try:
        # It is written before the causes are looked up, too: a command that is ended meanwhile leaves its report.
        report = smoke_report(question, where, repository, lambda tested: _write(tested, reports))
    except NeuroscaleError as error:
        if error.exit_status is not ExitStatus.UNTRUSTED:
            raise
        when = started.isoformat(timespec="seconds").replace("+00:00", "Z")
        report = Report(question.environment, question.revision, when, 0.0, (), (str(error),))
    _write(report, reports)
    from rich.console import Console

    print_table(report, Console(highlight=False, soft_wrap=True))
    return report.status


def smoke_report(
    question: Question, where: Where, repository: Path | None, keep: Callable[[Report], None] = lambda _: None
) -> Report:
    """Run the smoke tests; their results, which `keep` gets before their causes are known.

    Raises InputError and NeuroscaleError where they cannot be run.
    """
    began = time.monotonic()
    root = find_root(repository or Path.cwd())
    where = asked_cluster(where, root, question.environment)
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
        services=tuple(one.name for one in target.services),
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
    within = _BEFORE + question.pause + len(spec.services) * _REQUESTS * question.patience
    if question.within:
        within = max(1.0, question.within - (time.monotonic() - began))
    report = run_and_confirm(spec, _progress, within=within, pause=question.pause, variables=variables)
    keep(report)
    return with_causes(report, where, root)


def with_causes(report: Report, where: Where, root: Path) -> Report:
    """The report with the cause and the next configuration of each service that does not run: who reads it in a pull
    request's comment may not ask the cluster."""
    if not any(_does_not_run(one) for one in report.checks):
        return report
    from neuroscale.cli.explained_service import told_of
    from neuroscale.cli.open_repository import open_repository

    try:
        opened = open_repository(root)
    except InputError:  # the gate tells what is wrong with it
        return report
    checks, until = [], time.monotonic() + _CAUSE_SECONDS
    for one in report.checks:
        if _does_not_run(one) and time.monotonic() < until:
            cause, following = told_of(f"{report.environment}/{one.service}", where, opened)
            message = one.message if not cause or cause in one.message else f"{one.message}. {cause}"
            one = replace(one, message=message, next="; ".join(filter(None, (one.next, following))))
        checks.append(one)
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
        found = cluster.list("argoproj.io/v1alpha1", "Application", NAMESPACE, SERVICE_LABEL)
    except KubernetesError:
        return ""
    return next((str(part(one, "spec", "source").get("repoURL") or "") for one in found), "")


def _progress(kind: str, fields: dict[str, Any]) -> None:
    if kind == "result":
        sys.stderr.write(f"{line(from_record(fields))}\n")
        sys.stderr.flush()


def _write(report: Report, reports: Reports) -> None:
    for path, text in ((reports.json, to_json), (reports.junit, to_junit), (reports.markdown, to_markdown)):
        if path is None:
            continue
        try:
            write_whole(path, text(report))
        except OSError as error:
            # The findings are not lost: the terminal shows them, and the exit status says that a report is missing.
            raise UntrustedError(f"{path}: the report cannot be written: {error.strerror}") from error


def look_at_services(
    environment: Annotated[str, typer.Option("--environment", help="The environment whose services are tested.")],
    service: Annotated[str, typer.Option("--service", help="Only this service.")] = "",
    base_url: Annotated[
        str, typer.Option("--base-url", help="The address of the one service for its clients. Default: a port-forward.")
    ] = "",
    connect_to: Annotated[
        list[str] | None,
        typer.Option(
            "--connect-to",
            help="Connect to HOST:PORT at ADDRESS:PORT, as curl does: HOST:PORT:ADDRESS:PORT. Without --base-url, the "
            "URL is the service's own. Default: the gateway of the local platform that --state names.",
        ),
    ] = None,
    revision: Annotated[
        str, typer.Option("--revision", help="The merged commit. Default: the default branch's newest here.")
    ] = "",
    patience: Annotated[
        float, typer.Option("--patience", help="Seconds that a first answer may take.", min=1, max=600)
    ] = 60.0,
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            help="Seconds after which the tests are stopped, and what is known is reported. Default: 300, and 30 times "
            "the patience for each service.",
            min=1,
        ),
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON here.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the result as JUnit XML here.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write the result as Markdown here.")] = None,
    repository: RepositoryOption = None,
) -> int:
    """Test whether deployed services match Git. Exit status: 0 all passed, 1 findings, 3 cannot be trusted."""

    question = Question(environment, service, base_url, revision, patience, within or 0.0, tuple(connect_to or ()))
    reports = Reports(json_file, junit_file, markdown_file)
    return run_smoke_tests(question, Where(context, kubeconfig, state), repository, reports)
