"""Where a service's API key lies: a Secret in its namespace, from which its container takes what vLLM reads."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "VLLM_API_KEY"
"""Where it is empty or missing, vLLM asks nobody for a key."""

ENTRY: Final = "api-key"
"""The key's name within the Secret."""


def secret_name(service: str) -> str:
    """The name of a service's Secret."""
    return f"{service}-api-key"
