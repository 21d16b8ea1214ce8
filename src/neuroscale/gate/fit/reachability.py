"""Checks that a server can be reached, stays up, asks for its key, and has time to start and to end.

It reads ports, addresses, TLS files, variables, probes and the time for open answers when the pod must end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.vllm_containers import ContainerFault
from neuroscale.planning.plan import Startup
from neuroscale.planning.startup import (
    DRAIN_SECONDS,
    ProbeJudgement,
    container_seconds,
    failures_for,
    judge_liveness,
    judge_probes,
    probe_period,
)
from neuroscale.planning.vllm_flags import MOUNTED_MODEL
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command import ServeCommand

_DRAIN = "shutdown_timeout"
_USUAL_GRACE = 30
"""Kubernetes' default of `terminationGracePeriodSeconds`."""

LEAST_START_SECONDS = 20
"""No vLLM is known to start faster, whatever it loads: the start of its processes alone took 35 s and more in public
logs (the catalog's runtimes name them), without loading, compiling and capturing."""
_USUAL_START_SECONDS = 600


def check_start(container: Mapping[str, Any], start: Startup, source: str) -> Iterator[ContainerFault]:
    """A fault if the probes of a server end it before its `start`, with files from `source`, is over."""
    judged = judge_probes(container, container_seconds(start, source))
    if not judged.enough:
        yield ContainerFault(
            "startup-probe-too-short", (f"{judged.kind}Probe",), judged.told, _longer(container, judged, start)
        )
    patient = judge_liveness(container.get("livenessProbe"))
    if not patient.enough and not (judged.kind == "liveness" and not judged.enough):
        fix = "Raise its failureThreshold or periodSeconds."
        yield ContainerFault("liveness-probe-impatient", ("livenessProbe",), patient.told, fix, refused=False)


def check_least_start(container: Mapping[str, Any]) -> Iterator[ContainerFault]:
    """A fault if the probes are too short for any start, for a server whose start time is unknown."""
    judged = judge_probes(container, LEAST_START_SECONDS)
    if not judged.enough:
        probe = f"{judged.kind}Probe"
        every = probe_period(container.get(probe))
        failures = failures_for(_USUAL_START_SECONDS, every)
        numbers = (
            f"failureThreshold: {failures} with periodSeconds: {every}, which is {_USUAL_START_SECONDS // 60} minutes"
        )
        fix = f"Give it a startupProbe that waits for the load, such as {numbers}."
        told = judged.told.replace("about", "at least")
        yield ContainerFault("startup-probe-too-short", (probe,), told, fix)


def waits_for(container: Mapping[str, Any], starts: Iterable[Startup], source: str) -> bool:
    """Whether the probes wait for each of these starts; False if there are no starts and a probe could end the server.

    If no probe could end the server, the answer does not depend on the starts.
    """
    least = judge_probes(container, 0)
    if least.allowed_seconds is None:
        return least.enough
    slowest = max((container_seconds(start, source) for start in starts), default=None)
    return slowest is not None and judge_probes(container, slowest).enough


def _longer(container: Mapping[str, Any], judged: ProbeJudgement, start: Startup) -> str:
    measured = "If you measured faster loads, write that into platform/settings.yaml (throughput_mib_s)."
    if judged.kind == "liveness":
        return f"Add a startupProbe that waits {start.probe_budget_seconds} s. {measured}"
    every = probe_period(container.get("startupProbe"))
    failures = failures_for(start.probe_budget_seconds, every)
    return f"Give it failureThreshold: {failures} with periodSeconds: {every}. {measured}"


def check_end(parsed: Parsed, pod: Mapping[str, Any], place: Path) -> Iterator[ContainerFault]:
    """A fault if vLLM cuts off open answers when a pod ends. `place`: that of `--shutdown-timeout`, if it is given.

    By default vLLM drops open answers at once (`--shutdown-timeout` of 0), whatever the pod's grace period is.
    """
    if not parsed.exact or _DRAIN not in parsed.snapshot.arguments:
        return
    drain, room = parsed.value(_DRAIN), 2 * DRAIN_SECONDS
    if isinstance(drain, bool) or not isinstance(drain, int | float):
        return
    grace = pod.get("terminationGracePeriodSeconds")
    seconds = grace if isinstance(grace, int) and not isinstance(grace, bool) else _USUAL_GRACE
    if drain <= 0:
        message = "Without --shutdown-timeout vLLM drops open answers whenever a pod is replaced"
        fix = f"Set --shutdown-timeout to the longest answer's seconds; terminationGracePeriodSeconds {room} s higher."
        yield ContainerFault("answers-cut-off", place, message, fix, refused=False)
    elif drain >= seconds:
        message = (
            f"--shutdown-timeout={drain:g} is not less than the {seconds} s that the pod has to end: answers that are "
            "still open then are cut off"
        )
        fix = f"Set terminationGracePeriodSeconds to {math.ceil(drain) + room} or more."
        yield ContainerFault("answers-cut-off", place, message, fix, refused=False)


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
REACHED_BY = ("uds", "host", "port", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs")
"""Arguments that say how a server is reached."""
KEY = "VLLM_API_KEY"
HANDLER = "CUSTOM_FASTAPI_INVOCATION_HANDLER"
DEV_MODE = "VLLM_SERVER_DEV_MODE"
_LOOPBACK = ("localhost", "::1", "127.")
_OF_IMAGES = ("/etc/ssl/", "/etc/pki/", "/usr/")
_OF_KSERVE = "/var/run/kserve/"


def check_reach(
    container: Mapping[str, Any], parsed: Parsed, known: frozenset[str], *, by_kserve: bool
) -> Iterator[tuple[str, ContainerFault]]:
    """The faults, each with vLLM's name of the argument that it is about ("" for none).

    `known`: vLLM's names of the arguments whose value, or whose absence, can be read from the manifest. `by_kserve`:
    requests come through KServe's Service, which takes its port from the container's ports.
    """
    values = {dest: parsed.value(dest) for dest in known}
    probes = list(_asked(container))
    if uds := values.get("uds"):
        if probes or by_kserve:
            told = f"--uds={uds}: vLLM listens on that socket and on no port, so that nobody reaches it"
            yield "uds", ContainerFault("not-reachable", (), told, "Remove --uds.")
        return
    host = values.get("host")
    if host and str(host).startswith(_LOOPBACK) and (probes or by_kserve):
        told = f"--host={host}: vLLM answers only in its pod: neither callers nor probes reach it"
        yield "host", ContainerFault("not-reachable", (), told, "Remove --host, or write 0.0.0.0.")
    if isinstance(port := values.get("port"), int):
        yield from (("port", fault) for fault in _port(container, port, probes, by_kserve=by_kserve))
    if {"ssl_keyfile", "ssl_certfile"} <= set(values):
        yield from _tls(container, values, probes)


def check_command_ends(command: ServeCommand) -> Iterator[ContainerFault]:
    """A fault if another program ends the server after a while."""
    if command.ended:
        told = f"`{command.ended}` ends vLLM after that time, again and again"
        yield ContainerFault("ends-later", ("command",), told, "Remove it.")


def check_keyless(command: ServeCommand, *, whole: bool) -> Iterator[ContainerFault]:
    """Faults that let in callers without a key, if the server has one. `whole`: no unknown runtime adds arguments."""
    environment = command.environment
    if KEY not in {*environment, *command.hidden}:
        return  # the policies decide which servers need one
    if whole and HANDLER not in command.hidden and "" not in command.hidden and not environment.get(HANDLER):
        told = f"vLLM answers callers without a key on /invocations, unless {HANDLER} removes that path"
        fix = f"Set {HANDLER} as the runtimes of platform/catalog/ do."
        yield ContainerFault("keyless-path", ("env",), told, fix)
    mode = environment.get(DEV_MODE, "0")
    if mode.strip("0"):
        told = f"{DEV_MODE}={mode} opens paths that control the server to callers without a key"
        yield ContainerFault("keyless-path", ("env",), told, "Remove the variable.")


def untold_variables(command: ServeCommand) -> Iterator[str]:
    """Why the gate cannot judge whether a server with a key lets in callers without one."""
    for name in (HANDLER, DEV_MODE):
        if KEY in {*command.environment, *command.hidden} and name in command.hidden:
            yield f"whether its {name} lets in callers without a key cannot be judged: {command.hidden[name]}"


def _asked(container: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """The probes that connect to the pod's address: name, port and scheme."""
    for name in PROBES:
        probe = mapping(container.get(name), name)
        for kind in ("httpGet", "tcpSocket"):
            action = mapping(probe.get(kind), kind)
            if action and not action.get("host"):
                yield name, action.get("port"), str(action.get("scheme") or "HTTP") if kind == "httpGet" else ""


def _ports(container: Mapping[str, Any]) -> dict[Any, Any]:
    """The container's ports by their names, or by their numbers if they have no names."""
    ports = [mapping(one, "a port") for one in sequence(container.get("ports"), "ports")]
    return {one.get("name") or one.get("containerPort"): one.get("containerPort") for one in ports}


def _port(
    container: Mapping[str, Any], port: int, probes: list[tuple[str, Any, str]], *, by_kserve: bool
) -> Iterator[ContainerFault]:
    ports = _ports(container)
    for name, asked, _ in probes:
        number = ports.get(asked, asked)
        if isinstance(number, str) and number.isdigit():
            number = int(number)
        if isinstance(number, int) and number != port:
            told = f"vLLM listens on port {port}, and its {name} asks port {number}: it is never ready, or ended"
            yield ContainerFault("wrong-port", (name,), told, f"Write --port={number}, or {port} into the probe.")
            return
    if by_kserve and ports and port not in ports.values():
        listed = ", ".join(map(str, ports.values()))
        argument = f"--port={listed}" if len(ports) == 1 else "one of them as --port"
        told = f"vLLM listens on port {port}, and requests come to port {listed} (containerPort)"
        yield ContainerFault("wrong-port", ("ports",), told, f"Write {argument}, or containerPort: {port}.")


def _tls(
    container: Mapping[str, Any], values: Mapping[str, Any], probes: list[tuple[str, Any, str]]
) -> Iterator[tuple[str, ContainerFault]]:
    mounts = [mapping(one, "a mount") for one in sequence(container.get("volumeMounts"), "volumeMounts")]
    folders = [MOUNTED_MODEL, *(str(one.get("mountPath")) for one in mounts)]
    for dest in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"):
        file = str(values.get(dest) or "")
        if not file.startswith("/") or file.startswith((_OF_KSERVE, *(_OF_IMAGES if dest == "ssl_ca_certs" else ()))):
            continue
        if not any(PurePosixPath(file).is_relative_to(folder) for folder in folders):
            told = f"--{dest.replace('_', '-')}={file}: no volume is mounted there, so that vLLM ends"
            yield dest, ContainerFault("missing-file", (), told, "Mount a Secret with the file.")
    if values.get("ssl_keyfile") and values.get("ssl_certfile"):
        for name, _, scheme in probes:
            if scheme == "HTTP":
                told = f"vLLM answers with TLS, and its {name} uses HTTP (scheme: HTTP): it is never ready, or ended"
                yield "", ContainerFault("wrong-port", (name,), told, "Write scheme: HTTPS into the probe.")
                return
