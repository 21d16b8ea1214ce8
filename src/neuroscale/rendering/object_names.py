"""Names what belongs to a service: its key's Secret and variable, and its application of Argo CD."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "VLLM_API_KEY"
"""If this variable is empty or missing, vLLM asks nobody for a key."""

ENTRY: Final = "api-key"
"""The key's name within the Secret."""


def secret_name(service: str) -> str:
    """The name of a service's Secret."""
    return f"{service}-api-key"


def application_name(environment: str, service: str) -> str:
    """The Argo CD application of a service. Neither name can hold a point, so no two services share one.

    At most 63 characters: 40 of the service's name and 22 of the environment's.
    """
    return f"{service}.{environment}"
