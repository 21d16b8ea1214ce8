"""Runs an API server for the length of one run: etcd and kube-apiserver, without controllers.

It listens on the loopback, trusts only clients of its own authority, and calls nothing: admission that would ask
webhooks, or look at other objects of a cluster, is off. So its answer on an object depends only on that object.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from neuroscale.core.money_and_time import duration
from neuroscale.core.waiting import attempts, repeatedly
from neuroscale.kube.client import Cluster, KubernetesError, Object
from neuroscale.kube.control_plane import ADMINISTRATOR, ControlPlane, Ports
from neuroscale.kube.stored_definitions import store_definitions

_KEEPER = Path(__file__).with_name("keeper.py")
_STARTS_WITHIN = 120.0  # seconds; about four on two idle cores
_STOPS_WITHIN = 15.0
_ANSWERS_WITHIN = 30.0
_PAUSE = 0.05
_ATTEMPTS = 3
_SHOWN = 1500  # characters of a log that a message quotes
_ENDED = "The run ended before its API server was ready."
_PORT_TAKEN = "address already in use"
_WITHOUT_ADMISSION = (
    # These call other programs, or evaluate stored objects.
    *("MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"),
    # These refuse or alter an object because of other objects, which do not exist here.
    *("NamespaceLifecycle", "LimitRanger", "ResourceQuota", "PodSecurity", "Priority", "RuntimeClass"),
    *("DefaultStorageClass", "DefaultIngressClass"),
)
# They live for seconds: to collect their garbage as often as by default takes a quarter of their CPU time.
_RARE_GARBAGE_COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
# The administrator is its only client: roles, and shares for each client, take a third of its CPU time.
_FOR_ONE_CLIENT = ("--authorization-mode=AlwaysAllow", "--enable-priority-and-fairness=false")
# Nobody needs priorities of pods.
_READY = "/readyz?exclude=poststarthook/scheduling/bootstrap-system-priority-classes"


class EphemeralServer:
    """Entering it starts nothing; `start` does, in any thread. Leaving it ends everything, even an unfinished start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = False
        self._life: _Life | None = None

    def __enter__(self) -> EphemeralServer:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._left = True
            life, self._life = self._life, None
        if life is not None:
            life.end()

    def start(self, definitions: Sequence[Object] = ()) -> Cluster:
        """Start the server with these CustomResourceDefinitions, and return it once it answers.

        It may take a moment longer until it answers for the kinds of the definitions. Raises KubernetesError with its
        logs if it does not start, and UntrustedError if its programs are missing.
        """
        return repeatedly(
            lambda: self._start_once(definitions),
            attempts=_ATTEMPTS,
            again=lambda error: isinstance(error, _PortTakenError),
        )

    def _start_once(self, definitions: Sequence[Object]) -> Cluster:
        with self._lock:
            if self._left:
                raise KubernetesError(_ENDED)
            if self._life is not None:
                self._life.end()
            life = self._life = _Life()
        try:
            return life.start(definitions)
        except _PortTakenError:
            # Another program took one of the ports that were free a moment ago.
            life.end()
            raise
        except Exception as error:
            if not self._left:
                raise
            life.end()  # removes the files that this thread wrote after the end
            raise KubernetesError(_ENDED) from error

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, for other programs. Raises KubernetesError before it."""
        with self._lock:
            life = self._life
        if life is None:
            raise KubernetesError("The API server was not started, so it has no kubeconfig.")
        return life.kubeconfig

    def logs(self) -> str:
        """The ends of the processes' logs, for a message on a failure, and which of them ended."""
        with self._lock:
            life = self._life
        return "" if life is None else life.logs()


class _PortTakenError(KubernetesError):
    """Another program took a port."""


class _Life:
    """The processes of one attempt, in a folder of their own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="neuroscale-api-server-"))
        self._plane = ControlPlane(self.folder / "control-plane", Ports.free())
        self._cluster: Cluster | None = None
        try:
            # In a session of its own, so that a terminal's signals to its foreground do not reach it.
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", str(_KEEPER), str(self.folder)],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        assert self._keeper.stdout is not None
        os.set_blocking(self._keeper.stdout.fileno(), False)

    def start(self, definitions: Sequence[Object]) -> Cluster:
        """Start both processes, and wait until they are ready. Raises KubernetesError and UntrustedError."""
        plane = self._plane
        try:
            plane.prepare()
            self._run("etcd", plane.etcd_argv(), plane.etcd_problem)
            store_definitions(plane, definitions)
            argv = [one for one in plane.api_server_argv() if not one.startswith("--authorization-mode=")]
            argv += _FOR_ONE_CLIENT
            argv.append(f"--disable-admission-plugins={','.join(_WITHOUT_ADMISSION)}")
            context = plane.client_context(ADMINISTRATOR)
            client = httpx.Client(base_url=plane.url, verify=context, timeout=_ANSWERS_WITHIN, trust_env=False)
            self._cluster = Cluster(plane.url, client, "the API server of this run")
            self._run("kube-apiserver", argv, lambda: _problem(client))
        except OSError as error:  # its folder or its keeper is gone
            raise KubernetesError(f"The API server could not be started: {error}.{self.logs()}") from error
        return self._cluster

    @property
    def kubeconfig(self) -> Path:
        return self._plane.kubeconfig

    def end(self) -> None:
        """End everything, and leave nothing behind."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        try:
            self._keeper.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()
        if self._cluster is not None:
            self._cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> str:
        """The last output of the processes."""
        told = ""
        for path in sorted(self.folder.glob("*.log")):
            with contextlib.suppress(OSError):
                told += f"\n{path.stem} said: {path.read_text(errors='replace')[-_SHOWN:].strip() or 'nothing'}"
        return told

    def _run(self, name: str, argv: Sequence[str], problem: Callable[[], str | None]) -> None:
        """Have the keeper start a process, and wait until it can be used."""
        # They get none of the caller's settings: etcd, for example, also reads every option from the environment.
        own = {"HOME": str(self.folder), "TMPDIR": str(self.folder), "PATH": os.defpath}
        environment = {**own, **_RARE_GARBAGE_COLLECTION}
        wanted = {"name": name, "argv": list(argv), "environment": environment}
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._keeper.stdin.flush()
        for _ in attempts(_STARTS_WITHIN, _PAUSE):
            if (why := problem()) is None:
                return
            logs = self.logs()
            if self._keeper.poll() is not None or self._told():
                kind = _PortTakenError if _PORT_TAKEN in logs else KubernetesError
                raise kind(f"{name} ended before it was ready.{logs}")
        raise KubernetesError(f"{name} was not ready within {duration(_STARTS_WITHIN)}: {why}.{logs}")

    def _told(self) -> bytes:
        assert self._keeper.stdout is not None
        return self._keeper.stdout.read() or b""


def _problem(client: httpx.Client) -> str | None:
    """Why the API server cannot be used yet, or None."""
    try:
        answer = client.get(_READY, timeout=3.0)
    except httpx.HTTPError as error:
        return f"it does not answer ({type(error).__name__})"
    return None if answer.status_code == 200 else f"it answers {answer.status_code}: {answer.text.strip()[-200:]}"
