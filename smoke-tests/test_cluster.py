"""Checks the cluster's API server."""

from __future__ import annotations

import pytest

from neuroscale.cluster.command_lines import CommandLines
from neuroscale.smoke.expected_services import Api
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import FindingError, NeedsError, require


@pytest.mark.check("api-server")
def test_the_api_server_answers(api: Api, lines: CommandLines, note: Notes) -> None:
    """API server reachable."""
    if api.cluster is None:
        raise FindingError(
            api.problem,
            f"Check that the context is right and the cluster runs: {lines.kubectl} get --raw /version",
        )
    note(f"{api.version} at {api.cluster.url}")


@pytest.mark.check("identity")
def test_the_api_server_knows_who_asks(api: Api, note: Notes) -> None:
    """The API server knows its caller."""
    if api.cluster is None:
        raise NeedsError("api-server", "the API server does not answer")
    require(
        not api.unknown,
        api.unknown,
        "Log in to the cluster, or name a kubeconfig with credentials (--kubeconfig, --context).",
    )
    note(f"{api.user} of {', '.join(api.groups) or 'no group'}")
