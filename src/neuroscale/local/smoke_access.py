"""What the forge's workflow needs to test what the cluster serves: a kubeconfig of a user with few rights."""

from __future__ import annotations

import json
from collections.abc import Collection

from neuroscale.local.control_plane import control_plane
from neuroscale.local.seed import LocalForge
from neuroscale.local.state import State
from neuroscale.platform.tenancy import SMOKE_TESTS

USER = "smoke-tests"


def allow_smoke_tests(forge: LocalForge) -> None:
    """Let the platform's repository test this cluster after a merge. Running twice changes nothing."""
    environments = forge.state.instance.environments
    forge.allow_smoke_tests(forge.platform, kubeconfig(forge.state, environments), environments)


def kubeconfig(state: State, environments: Collection[str]) -> str:
    """The user's kubeconfig: one context for each environment, of its name. All of them are deployed onto this cluster."""
    path = control_plane(state).add_user(USER, USER, (SMOKE_TESTS,))
    found = json.loads(path.read_text(encoding="utf-8"))
    (context,) = found["contexts"]
    contexts = [{**context, "name": name} for name in environments]
    return json.dumps({**found, "contexts": contexts, "current-context": ""}) + "\n"
