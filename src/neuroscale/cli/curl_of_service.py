"""Makes the curl command for a tested service, and finds the local platform's gateway."""

from __future__ import annotations

import json
import os
from pathlib import Path

from neuroscale.cluster.endpoint.curl import Way, curl_line
from neuroscale.core.errors import InputError, Problem
from neuroscale.forge.after_merge.evidence import ServiceEvidence

GATEWAY_VARIABLE = "NEUROSCALE_LOCAL_GATEWAY"
"""The variable, on the forge of one machine, with the way to the hosts of services, in JSON (state, authority,
port).
"""
_ANSWERS = "chat"  # the check that asks the service as people do


def curl(service: ServiceEvidence) -> str:
    """A command for people that asks the service; "" if no check saw it answer."""
    if not any((one.check, one.outcome) == (_ANSWERS, "passed") for one in service.checks):
        return ""
    key = ["neuroscale", "key", service.path.service, "--print", f"--environment={service.path.environment}"]
    way, state = local_gateway()
    return curl_line(service.url, service.model, [*key, *([f"--state={state}"] if state else [])], way)


def local_gateway() -> tuple[Way | None, str]:
    """The way to a gateway of one machine, and the state folder of its platform; (None, "") if none is named.

    Raises InputError if the environment's value cannot be read.
    """
    text = os.environ.get(GATEWAY_VARIABLE)
    if not text:
        return None, ""
    try:
        local = json.loads(text)
        way = Way(Path(local["authority"]), int(local["port"]), int(local.get("redirect_port", 0)))
        return way, str(local["state"])
    except (ValueError, TypeError, KeyError):
        fix = "Write JSON with the texts state and authority, and the number port, or leave it out."
        raise InputError(Problem("the environment", GATEWAY_VARIABLE, "does not describe a gateway", fix)) from None
