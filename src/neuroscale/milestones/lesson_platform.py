"""Finds or starts the local platform for the lessons that need one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroscale.catalog.settings import load_settings, local_environment
from neuroscale.core.errors import UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.local.control_plane import kubeconfig
from neuroscale.local.process import is_running
from neuroscale.local.start_and_stop import Options, down, up
from neuroscale.local.state import State
from neuroscale.manifests.objects import read_manifests
from neuroscale.repo.layout import MANIFESTS, SERVICE_FILE
from neuroscale.repo.snapshot import FolderSnapshot

_PARTS = (
    "a forge with its runner, and a cluster: etcd, the API server, controller manager, scheduler, KServe, Kyverno, "
    "Argo CD, the gateway and Prometheus"
)


def running_cluster(folder: Path, root: Path) -> Path:
    """The administrator's kubeconfig of the local platform whose state folder this is.

    Raises UntrustedError if it does not run, or does not deploy the services of the local environment of the
    repository `root`.
    """
    environment = _local_environment(root)
    state = State.read(folder)
    if state is None or not is_running(state) or not state.instance.cluster:
        raise UntrustedError(f"No local cluster runs in {folder}: `neuroscale local up --cluster`.")
    if environment not in state.instance.environments:
        fix = f"`neuroscale local up --environment {environment}`"
        raise UntrustedError(f"The platform in {folder} does not deploy the environment {environment}: {fix}.")
    return kubeconfig(state)


def local_service(root: Path) -> tuple[str, str]:
    """The name and the namespace of the first service that the repository `root` has for its local platform.

    Raises UntrustedError if it has none.
    """
    folder, files = f"{MANIFESTS}/{_local_environment(root)}", FolderSnapshot(root)
    for entry in files.entries(folder):
        if entry.path.endswith(f"/{SERVICE_FILE}") and (data := files.read(entry.path)):
            metadata = read_manifests(data, entry.path)[0].value["metadata"]
            return metadata["name"], metadata["namespace"]
    raise UntrustedError(f"{root / folder} holds no service. Ask for one and merge it: `neuroscale request`.")


def _local_environment(root: Path) -> str:
    return local_environment(load_settings(FolderSnapshot(root)))


@contextmanager
def lesson_platform(usual: Path, own: Path, root: Path, tell: Callable[[str], None]) -> Iterator[Path]:
    """The state folder of a local platform that deploys the services of the repository `root`.

    It is `usual` where a platform runs there, which stays as it is. Otherwise one is started in `own`, and ends with
    the block; then its folder is removed. After a failed start the folder stays, for its logs. Raises the errors of
    `up`.
    """
    try:
        running_cluster(usual, root)
    except UntrustedError:
        pass
    else:
        tell(f"The lessons use the local platform that runs in {usual}.")
        yield usual
        return
    if own.exists():
        tell(f"The platform of an earlier run in {own} is removed.")
        down(own, tell, delete=True)
    tell(f"No local platform runs, so one starts in {own} until the lessons end: {_PARTS}.")
    began = time.monotonic()
    up(own, root, Options(cluster=True, environments=(_local_environment(root),), cost=False), tell)
    try:
        tell(f"The local platform is healthy after {duration(time.monotonic() - began)}.")
        yield own
    finally:
        tell("The local platform of the lessons is stopped and removed.")
        down(own, lambda _: None, delete=True)
