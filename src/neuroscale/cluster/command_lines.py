"""Writes the beginnings of command lines that ask the same cluster as this command, as a user pastes them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neuroscale.kube.client import Cluster


@dataclass(frozen=True)
class CommandLines:
    """`kubectl`: the program with its options for the cluster. `program`: this project's; `options`: its options for
    the cluster.
    """

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
    return lines_with((), None) if cluster is None else lines_with(cluster.options, cluster.own_options)


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
