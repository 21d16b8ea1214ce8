"""Opens the cluster that a command's options choose, and finds the services that they name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from neuroscale.actions.progress import SILENT, Progress
from neuroscale.actions.workflow_environment import is_read_elsewhere, local_gateway
from neuroscale.catalog.settings import Environment, Settings
from neuroscale.cluster.command_lines import Way, curl_line, own_program
from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.cluster.service_status_reader import Question, Reader, deployed_environments
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import ASKED, InputError, NeuroscaleError, Problem, action_of, field_of
from neuroscale.core.validation import suggest
from neuroscale.kube.client import Cluster
from neuroscale.local.control_plane import control_plane, kubeconfig, kubeconfig_beside
from neuroscale.local.gateway import NAME, REDIRECT
from neuroscale.local.node.service import NODE
from neuroscale.local.process import is_running
from neuroscale.local.state import State
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.repo.git import Git
from neuroscale.repo.layout import LOCAL_STATE, MANIFESTS, REQUEST_FILE, ServicePath
from neuroscale.repo.services import parts_of

if TYPE_CHECKING:
    from neuroscale.actions.open_repository import Repository
    from neuroscale.forge.branches import Access
    from neuroscale.forge.interface import RepositoryRef


@dataclass(frozen=True)
class Service:
    """A service of a cluster. `live`: whether its InferenceService exists there."""

    name: str
    namespace: str
    environment: str
    live: bool


def services_asked(service: str, environment: str, inputs: PlanningInputs) -> Question:
    """The services to ask about: `service` is a name, ENVIRONMENT/NAME, a service's folder, or "" for all.

    Raises InputError if the environment is not one of the settings, or is named twice.
    """
    named, name = (parts_of(service) or ("", "")) if service else ("", "")
    if service and not name:
        raise InputError.at(
            ASKED, "service", f"{service!r} does not name a service", "Name it, or ENVIRONMENT/SERVICE."
        )
    if named:
        if environment not in ("", named):
            message = f"{service!r} is not in the environment {environment!r}"
            raise InputError.at(ASKED, "service", message, "Name the environment once.")
        environment = named
    if environment and environment not in inputs.settings.environments:
        message = f"{environment!r} is not an environment of the settings"
        fix = suggest(environment, inputs.settings.environments)
        raise InputError.at(ASKED, "environment", message, fix)
    namespaces = sorted({team.namespace for team in inputs.catalog.teams.values()})
    return Question(tuple(namespaces), environment, name)


def environment_of(question: Question, root: Path) -> str:
    """The environment of the service that is asked about: the named one, else the only one in which this checkout holds
    a service of its name; "" if there is none, or more than one.
    """
    if question.environment or not question.name:
        return question.environment
    holding = [path.parent.parent.name for path in root.glob(f"{MANIFESTS}/*/{question.name}/{REQUEST_FILE}")]
    return holding[0] if len(holding) == 1 else ""


def one_service(statuses: Sequence[ServiceStatus], name: str) -> Service:
    """The only service of the name. Raises InputError if there is none, or more than one."""
    present = [status for status in statuses if status.namespace]
    if len(present) > 1:
        places = sorted(f"{each.environment or '?'}/{each.name} (namespace {each.namespace})" for each in present)
        message = f"{name!r} is the name of several services: {', '.join(places)}"
        raise InputError.at(ASKED, "service", message, f"Add {field_of('environment')}.")
    if not present:
        request = f"Ask for it: {action_of('request')} {field_of('interactive')}"
        fix = next((status.next for status in statuses if status.next), request)
        raise InputError.at(ASKED, "service", f"{name!r} is not a service of this cluster", fix)
    (status,) = present
    return Service(status.name, status.namespace, status.environment, status.generation is not None)


_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Where:
    """The cluster to ask: a local platform's, or a context of a kubeconfig (None: the defaults)."""

    context: str | None = None
    kubeconfig: Path | None = None
    state: Path | None = None

    @property
    def options(self) -> list[str]:
        """The options that name it, for a command that a user pastes."""
        named = {
            "--state": self.state and self.state.absolute(),
            "--kubeconfig": self.kubeconfig and self.kubeconfig.absolute(),
            "--context": self.context,
        }
        return [f"{name}={value}" for name, value in named.items() if value]


def or_running(where: Where, root: Path, runs: Callable[[Path], bool]) -> Where:
    """`where`, or the own local platform of the repository at `root` if no option names a cluster and the platform
    `runs`, by its state folder."""
    folder = root / LOCAL_STATE
    try:
        return Where(state=folder) if where == Where() and runs(folder) else where
    except InputError:  # a platform of another version or user, which nobody named
        return where


def local_kubeconfig(root: Path, environment: str) -> Path | None:
    """The kubeconfig of the repository's local platform; None if that has no cluster, or not this environment."""
    state = State.read(root / LOCAL_STATE)
    here = state is not None and state.instance.cluster and environment in state.instance.environments
    return kubeconfig(state) if state is not None and here else None


def asked_cluster(where: Where, root: Path, environment: str = "", progress: Progress = SILENT) -> Where:
    """`where`, or the repository's local platform if it runs, has the environment ("": any), and neither an option nor
    $KUBECONFIG names another cluster. A note says that it is asked."""

    def runs(folder: Path) -> bool:
        state = State.read(folder)
        if state is None or not state.instance.cluster or not state.instance.ports or not is_running(state):
            return False
        named = os.environ.get("KUBECONFIG")
        here = not named or Path(named).resolve() == kubeconfig(state).resolve()
        return here and environment in ("", *state.instance.environments)

    chosen = or_running(where, root, runs)
    if chosen != where:
        progress.note(f"Asking the local platform in {LOCAL_STATE}; --context names another cluster.")
    return chosen


def local_state(where: Where) -> State | None:
    """The chosen local platform; None for another cluster. Raises InputError if the platform has no cluster."""
    if where.state is None:
        return None
    if where.kubeconfig is not None or where.context is not None:
        message = "names two clusters"
        raise InputError.at(
            ASKED, "state", message, f"Give {field_of('state')}, or {field_of('context')} and {field_of('kubeconfig')}."
        )
    state = State.read(where.state)
    if state is None or not state.instance.cluster or not state.instance.ports:
        raise _no_cluster(where.state)
    return state


def clone_for(where: Where, root: Path, branch: str) -> Clone:
    """The clone at `root`, which the caller closes. Where a local platform is asked, it has the newest commit of that
    platform's forge: Argo CD reads it there, and the clone has no remote for it. The clone only gains objects.
    """
    state = local_state(where)
    if state is None:
        return Clone(root, branch)
    clone = Clone(root, branch, partial(_from_the_local_forge, state, branch))
    clone.fetch()
    return clone


def _from_the_local_forge(state: State, branch: str, git: Git) -> str | None:
    """The branch's newest commit, which the clone has afterwards; None if the forge does not answer."""
    from neuroscale.forge.branches import Branches

    try:
        access = _access(state)
        return None if access is None else Branches(git, access[1]).fetch(access[0], branch)
    except NeuroscaleError:
        return None


def _access(state: State) -> tuple[RepositoryRef, Access] | None:
    """The platform's repository on a local forge, and the way in; None if this platform has no forge."""
    from neuroscale.forge.branches import Access
    from neuroscale.local.forge_accounts import DEVELOPER
    from neuroscale.local.forge_setup import LocalForge
    from neuroscale.local.gitea import NAME as FORGE

    if FORGE not in state.instance.ports:
        return None
    forge = LocalForge(state)
    return forge.platform, Access(forge.platform.clone_url, forge.account(DEVELOPER).token())


def way_to_the_local_forge(where: Where) -> tuple[tuple[str, ...], dict[str, str]]:
    """The address of the local platform's repository, and the variables that let git log in there; both empty where no
    local platform is asked, or its forge cannot be."""
    state = local_state(where)
    try:
        access = None if state is None else _access(state)
    except NeuroscaleError:
        access = None
    return ((), {}) if access is None else ((access[0].clone_url,), access[1].environment(access[0]))


def gateway_way(state: State) -> Way | None:
    """The way to the hosts of a local platform's services; None without a gateway."""
    ports = state.instance.ports
    return Way(control_plane(state).authority_file, ports[NAME], ports.get(REDIRECT, 0)) if NAME in ports else None


def open_cluster(where: Where) -> Cluster:
    """The cluster, which the caller closes. Raises InputError if there is none."""
    state = local_state(where)
    if state is None:
        cluster = Cluster.of_kubeconfig(where.kubeconfig, where.context)
        if is_read_elsewhere(os.environ):
            cluster.own_options, cluster.kubectl_options = _of_readers()
        return cluster
    path = kubeconfig(state)
    if not path.exists():
        raise _no_cluster(state.folder)
    cluster = Cluster.of_kubeconfig(path, None)
    cluster.own_options = (f"--state={state.folder}",)
    return cluster


def statuses_in(where: Where, root: Path, inputs: PlanningInputs, question: Question) -> tuple[ServiceStatus, ...]:
    """The services that are asked about, as a cluster has them. Raises InputError and KubernetesError."""
    clone = clone_for(where, root, inputs.settings.repository.default_branch)
    with contextlib.closing(clone), open_cluster(where) as cluster:
        return Reader(cluster, clone, inputs.settings).ask(question).services


def unfinished_in(where: Where, root: Path) -> Callable[[ServicePath], bool | None]:
    """Says whether an earlier version of a service still serves, since the newest does not run yet, by the cluster that
    options name, else by the local platform while it runs the service's environment; None where neither is known."""

    def unfinished(path: ServicePath) -> bool | None:
        from neuroscale.actions.open_repository import open_repository

        chosen = asked_cluster(where, root, path.environment)
        if chosen == Where():
            return None
        opened = open_repository(root)
        try:
            statuses = statuses_in(chosen, root, opened, services_asked(path.name, "", opened))
        except NeuroscaleError:
            if where != Where():
                raise
            return None  # nobody named the local platform
        return next((status.unfinished for status in statuses if status.environment == path.environment), None)

    return unfinished


def environments_in(where: Where, root: Path, *, local: bool) -> frozenset[str] | None:
    """The environments that Argo CD deploys to the cluster that options name, else, with `local`, to the running local
    platform; None where that is not known. Raises InputError and KubernetesError for a cluster that an option names."""
    chosen = asked_cluster(where, root) if local else where
    if chosen == Where():
        return None
    try:
        with open_cluster(chosen) as cluster:
            return deployed_environments(cluster)
    except NeuroscaleError:
        if where != Where():
            raise
        return None


def with_curl(status: ServiceStatus, where: Where, state: State | None, repository: Path | None) -> ServiceStatus:
    """Add a command that asks the service, if one of its pods answers and its URL has TLS."""
    answering = [pod for pod in status.pods if pod.state == "ready"]
    if not answering or not status.url:
        return status
    way = None
    if state is not None:
        if not any(pod.node == NODE for pod in answering):
            return replace(status, notes=(*status.notes, "Its pods are simulated: no server answers at its URL."))
        way = gateway_way(state)
        if way is None:
            return status
    return replace(status, curl=curl_line(status.url, status.model, _key_command(status, where, repository), way))


def _key_command(status: ServiceStatus, where: Where, repository: Path | None) -> list[str]:
    """The command that writes the service's key, with the options of this command."""
    environment = [f"--environment={status.environment}"] if status.environment else []
    place = [f"--repository={repository.absolute()}"] if repository else []
    return [own_program(), "key", status.name, "--print", *environment, *where.options, *place]


def _of_readers() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options by which those who read a workflow's reports ask its cluster with this project's commands and with
    kubectl: none, for their own kubeconfig's, or those of the local platform."""
    way, folder = local_gateway(os.environ)
    if way is None:
        return (), ()
    return (f"--state={folder}",), (f"--kubeconfig={kubeconfig_beside(way.authority)}",)


@dataclass(frozen=True)
class OpenService:
    """A service with the open cluster that has it. `statuses`: of all services that its name may mean. `asked_in`: the
    environment that was named, else the only one in which this checkout holds the service ("": neither). `clone`: where
    its files are read."""

    cluster: Cluster
    clone: Clone
    service: Service
    statuses: tuple[ServiceStatus, ...]
    asked_in: str


@contextlib.contextmanager
def opened_service(
    service: str, environment: str, where: Where, opened: Repository, progress: Progress = SILENT
) -> Iterator[OpenService]:
    """The only service of a name, for as long as the context lasts. Raises InputError for a name that none has, or more
    than one, and KubernetesError."""
    question = services_asked(service, environment, opened)
    asked_in = environment_of(question, opened.root)
    where = asked_cluster(where, opened.root, asked_in, progress)
    clone = clone_for(where, opened.root, opened.settings.repository.default_branch)
    with contextlib.closing(clone), open_cluster(where) as cluster:
        statuses = tuple(Reader(cluster, clone, opened.settings).ask(question).services)
        yield OpenService(cluster, clone, one_service(statuses, question.name), statuses, asked_in)


def configured(
    environment: str, settings: Settings, of: Callable[[Environment], _Part], program: str, ambiguous: Problem
) -> tuple[str, _Part]:
    """The environment whose `program` is asked ("": the one that all clusters share), and where its settings name it.

    Raises InputError, with the field and the fix of `ambiguous`, where none is named and the environments differ.
    """
    if environment:
        return environment, of(settings.environments[environment])
    known = {name: of(each) for name, each in settings.environments.items() if each.cluster != "local"}
    if len(set(known.values())) > 1:
        raise InputError(replace(ambiguous, message=f"the environments have different {program} Services"))
    first = next(iter(settings.environments))
    return next(iter(known.items()), (first, of(settings.environments[first])))


def _no_cluster(folder: Path) -> InputError:
    return InputError.at(str(folder), "", "does not hold a cluster", "Start one: neuroscale local up --cluster")
