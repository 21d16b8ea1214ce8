"""Lets the forge's workflow test the cluster's services: by a kubeconfig of a user with few rights."""

from __future__ import annotations

import json
from collections.abc import Sequence

from neuroscale.local.argocd_applications import ENVIRONMENT
from neuroscale.local.control_plane import control_plane
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.gateway import NAME as GATEWAY
from neuroscale.local.gateway import REDIRECT
from neuroscale.local.state import State
from neuroscale.rendering.platform.tenancy import SMOKE_TESTS

USER = "smoke-tests"


def allow_smoke_tests(forge: LocalForge) -> None:
    """Let the platform's repository test this cluster after a merge. Safe to repeat.

    Other environments' services run on simulated nodes, where nothing answers.
    """
    environments = [name for name in forge.state.instance.environments if name == ENVIRONMENT]
    text = kubeconfig(forge.state, environments)
    forge.allow_smoke_tests(forge.platform, text, environments, gateway(forge.state))


def kubeconfig(state: State, environments: Sequence[str]) -> str:
    """The user's kubeconfig, with a context for each environment."""
    path = control_plane(state).add_user(USER, USER, (SMOKE_TESTS,))
    return with_contexts(path.read_text(encoding="utf-8"), environments)


def with_contexts(text: str, environments: Sequence[str]) -> str:
    """A kubeconfig whose one context is replaced by one for each environment, with the environment's name."""
    found = json.loads(text)
    (context,) = found["contexts"]
    contexts = [{**context, "name": name} for name in environments]
    # Programs read the current context before they look for the named one.
    return json.dumps({**found, "contexts": contexts, "current-context": next(iter(environments), "")}) + "\n"


def gateway(state: State) -> str:
    """The way to the hosts of services on this machine, in JSON; "" without a gateway. It holds no secret."""
    port = state.instance.ports.get(GATEWAY)
    if port is None:
        return ""
    authority, redirect = str(control_plane(state).authority_file), state.instance.ports.get(REDIRECT, 0)
    return json.dumps({"state": str(state.folder), "authority": authority, "port": port, "redirect_port": redirect})
