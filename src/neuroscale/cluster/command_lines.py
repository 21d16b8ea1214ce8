"""Writes the beginnings of command lines that ask the same cluster as this command, as a user pastes them.

Writes a curl command that asks a service, for pasting into a shell.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from neuroscale.kube.client import Cluster

_QUESTION = "Say hello in one sentence."
_LONGEST = 64  # tokens


@dataclass(frozen=True)
class Way:
    """The way to a gateway whose hosts are not in DNS: its port on this machine, and the certificate authority (PEM) to
    trust. `redirect_port`: its port for plain HTTP (0: unknown)."""

    authority: Path
    port: int
    redirect_port: int = 0


def curl_line(url: str, model: str, key: Sequence[str], way: Way | None = None) -> str:
    """One line for a POSIX shell that sends a chat completion to the service at `url`.

    `key` is the command that writes the endpoint's key to its standard output. A pipe carries the key from there into
    curl: it never stands in an argument, which every user of the machine could see, or in a history. "" if the URL is
    not https: a key is sent only by TLS.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    asked = {"model": model, "messages": [{"role": "user", "content": _QUESTION}], "max_tokens": _LONGEST}
    command = ["curl", "--silent", "--show-error", "--header", "@-"]
    if way is not None:
        # A proxy would resolve the host itself.
        to = f"{parts.hostname}:{parts.port or 443}:127.0.0.1:{way.port}"
        command += ["--noproxy", "*", "--cacert", str(way.authority), "--connect-to", to]
    command.append(f"{url.rstrip('/')}/v1/{'chat/completions' if model else 'models'}")
    if model:
        command += ["--header", "Content-Type: application/json", "--data", json.dumps(asked)]
    return f"{{ printf 'Authorization: Bearer '; {shlex.join(key)}; }} | {shlex.join(command)}"


@dataclass(frozen=True)
class CommandLines:
    """`kubectl`: the program with its options for the cluster. `program`: this project's; `options`: its options for
    the cluster."""

    kubectl: str = "kubectl"
    program: str = "neuroscale"
    options: str = ""

    def own(self, words: str) -> str:
        """The line of a command of this project, such as `status chat`."""
        return " ".join(part for part in (self.program, words, self.options) if part)


ANY_CLUSTER = CommandLines()
"""The lines without options: for the cluster that the shell's own settings choose."""


def command_lines(cluster: Cluster | None) -> CommandLines:
    """The lines for a cluster. None: for no cluster in particular."""
    if cluster is None:
        return lines_with((), None)
    options = cluster.options if cluster.kubectl_options is None else cluster.kubectl_options
    return lines_with(options, cluster.own_options)


def lines_with(options: Sequence[str], own_options: Sequence[str] | None) -> CommandLines:
    """The lines with these options of kubectl, and of this project's commands (None: the same)."""
    return CommandLines(
        shlex.join([kubectl_program() or "kubectl", *options]),
        shlex.quote(own_program()),
        shlex.join(options if own_options is None else own_options),
    )


def own_program() -> str:
    """This project's program: its name if PATH has it, else the path of the one beside this Python."""
    name = "neuroscale"
    return name if shutil.which(name) else str(Path(sys.executable).with_name(name))


def kubectl_program() -> str | None:
    """kubectl: its name if PATH has it, else the path of the one beside this Python; None if there is none."""
    beside = Path(sys.executable).with_name("kubectl")
    return "kubectl" if shutil.which("kubectl") else str(beside) if os.access(beside, os.X_OK) else None
