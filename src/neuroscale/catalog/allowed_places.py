"""Reads the places that the settings allow for images and for models."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from neuroscale.core.validation import wrong

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = rf"({_LABEL}(\.{_LABEL})+|{_LABEL}(\.{_LABEL})*:[0-9]{{1,5}})"
_REGISTRY = re.compile(rf"{_HOST}(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?")
_STORED = "[A-Za-z0-9_-]+([.:][A-Za-z0-9_-]+)*"
_STORE = re.compile(rf"(hf|gs|s3|pvc|oci)://({_STORED}(/{_STORED})*/?)?")


def _registry(text: str) -> str:
    if not _REGISTRY.fullmatch(text):
        fix = "Write it such as registry.example.com:5000/team; an organisation of Docker Hub such as docker.io/vllm."
        raise wrong(f"{text!r} does not begin with a registry, which has a dot or a port in its name", fix)
    return text


def _store(text: str) -> str:
    if not _STORE.fullmatch(text):
        fix = "Write hf://, gs://, s3://, pvc:// or oci://, and behind it the bucket, volume claim or registry."
        raise wrong(f"{text!r} is not the beginning of a model's address", fix)
    return text


Registry = Annotated[str, Field(max_length=253), AfterValidator(_registry)]
"""A registry, or an organisation or folder in it. Docker Hub is docker.io."""
Store = Annotated[str, Field(max_length=253), AfterValidator(_store)]
"""The beginning of models' addresses: a scheme, or a bucket, volume claim, organisation or folder behind it."""


def full_image(image: str) -> str:
    """An image's address with its registry, as the policy allowed-registries reads it."""
    if re.match(r"(localhost|[^/]*[.:][^/]*)/", image):
        return image
    return f"docker.io/{image}" if "/" in image else f"docker.io/library/{image}"


def with_slashes(entries: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The entries, each with a slash at its end: `docker.io/vllm` alone would allow docker.io/vllm-evil as well."""
    if entries is None:
        return None
    ended = tuple(entry if entry.endswith("/") else f"{entry}/" for entry in entries)
    for place, entry in enumerate(ended):
        if re.search(r"\.invalid[/:]", entry):
            raise wrong(f"{entry} is reserved for objects that policies must refuse", "Remove it.")
        if wider := [other for at, other in enumerate(ended) if at != place and entry.startswith(other)]:
            raise wrong(f"{entry} lies in {wider[0]}, which the list allows as well", "Remove one of them.")
    return ended
