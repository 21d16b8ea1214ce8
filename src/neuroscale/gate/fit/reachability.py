"""Checks that a server can be reached, stays up and asks for its key: ports, addresses, TLS files, variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from neuroscale.gate.fit.container_faults import ContainerFault
from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.planning.vllm_flags import MOUNTED_MODEL
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command import ServeCommand

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
