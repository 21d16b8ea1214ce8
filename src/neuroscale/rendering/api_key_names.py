"""Names a service's API key: a Secret in its namespace, and the variable in which its container gives it to vLLM."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "VLLM_API_KEY"
"""If this variable is empty or missing, vLLM asks nobody for a key."""

ENTRY: Final = "api-key"
"""The key's name within the Secret."""


def secret_name(service: str) -> str:
    """The name of a service's Secret."""
    return f"{service}-api-key"
