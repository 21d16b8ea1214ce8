"""Finds the upstream tools that set-up built."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError

ToolName = Literal[
    "actionlint",
    "argocd",
    "caddy",
    "etcd",
    "gitea",
    "gitea-runner",
    "gitleaks",
    "helm",
    "kserve-controller",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-state-metrics",
    "kubeconform",
    "kwok",
    "kyverno",
    "kyverno-controller",
    "opencost",
    "prometheus",
    "promtool",
]


def find(name: ToolName) -> Path:
    """The binary of an upstream tool, at the version that this package's repository pins.

    Raises UntrustedError if it is missing, not executable, or not the file that set-up built.
    """
    return find_tool(name).binary


def find_tool(name: ToolName) -> tool_cache.Tool:
    """The tool with its binary and the files that it reads at run time. Raises UntrustedError as `find`."""
    try:
        wanted = tool_cache.tool(name)
        problem = tool_cache.problem(wanted)
    except tool_cache.PinError as error:
        raise UntrustedError(f"{error} Install the package with `make setup` in a complete clone.") from error
    if problem is not None:
        raise UntrustedError(f"{problem}. Run `make setup`.")
    return wanted
