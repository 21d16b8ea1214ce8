"""How people of a repository ask a service that was tested: a command with curl, and the way to a gateway."""

from __future__ import annotations

import json
import os
from pathlib import Path

from neuroscale.cluster.endpoint.curl import Way, curl_line
from neuroscale.core.errors import InputError, Problem
from neuroscale.forge.after_merge.evidence import ServiceEvidence

GATEWAY_VARIABLE = "NEUROSCALE_LOCAL_GATEWAY"
"""On the forge of one machine: how its people reach the hosts of services, in JSON (state, authority, port)."""
_ANSWERS = "chat"  # the check that asked the service as people do


def curl(service: ServiceEvidence) -> str:
    """A command that asks the service, for people; "" where nothing of it was seen to answer."""
    if not any((one.check, one.outcome) == (_ANSWERS, "passed") for one in service.checks):
        return ""
    key = ["neuroscale", "key", service.path.service, "--print", f"--environment={service.path.environment}"]
    way, state = local_gateway()
    return curl_line(service.url, service.model, [*key, *([f"--state={state}"] if state else [])], way)


def local_gateway() -> tuple[Way | None, str]:
    """The way to a gateway of one machine, and the state that its platform keeps; (None, "") where none is named.

    Raises InputError where the environment names one that cannot be read.
    """
    text = os.environ.get(GATEWAY_VARIABLE)
    if not text:
        return None, ""
    try:
        local = json.loads(text)
        return Way(Path(local["authority"]), int(local["port"])), str(local["state"])
    except (ValueError, TypeError, KeyError):
        fix = "Write JSON with the texts state and authority, and the number port, or leave it out."
        raise InputError(Problem("the environment", GATEWAY_VARIABLE, "tells no gateway", fix)) from None
