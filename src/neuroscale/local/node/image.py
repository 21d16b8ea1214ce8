"""Decides which images this machine can stand in for: those of vLLM for the CPU, at the installed version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neuroscale.local.node.waiting_error import PULL_FAILED, WaitingError

REPOSITORY = "vllm-openai-cpu"
"""The last part of the name of upstream's images for the CPU, in any registry."""

# Source: the grammar of github.com/distribution/reference; the length is Kubernetes' own limit of a name.
_DOMAIN = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?(?::[0-9]+)?/)?"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?P<name>{_DOMAIN}{_PATH}(?:/{_PATH})*)(?::(?P<tag>[\w][\w.-]{{0,127}}))?(?:@(?P<digest>[a-z0-9+._-]+:[0-9a-f]{{32,}}))?",
    re.ASCII,
)
_LONGEST = 255


@dataclass(frozen=True)
class Image:
    """The parts of an image's name; `tag` and `digest` are empty if it has none."""

    name: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Image:
        """Raises WaitingError (InvalidImageName) if the text is not the name of an image."""
        match = _IMAGE.fullmatch(text)
        if match is None or len(match["name"]) > _LONGEST:
            told = f'Failed to apply default image tag "{text}": couldn\'t parse image name: invalid reference format'
            raise WaitingError("InvalidImageName", told)
        return cls(match["name"], match["tag"] or "", match["digest"] or "")


def check_image(text: str, version: str) -> None:
    """Raises WaitingError if the image would run something else than vLLM `version` for the CPU."""
    image = Image.parse(text)
    last = image.name.rsplit("/", 1)[-1]
    if last != REPOSITORY:
        told = f"this machine pulls no images: it runs vLLM {version} for the CPU, which stands in for .../{REPOSITORY}"
        raise WaitingError(PULL_FAILED, f'Failed to pull image "{text}": {told}:v{version}')
    if image.tag.removeprefix("v") != version:
        said = f"is of version {image.tag}" if image.tag else "does not say its version in a tag"
        told = f"it {said}, and vLLM {version} is installed on this machine, which pulls no images"
        raise WaitingError(PULL_FAILED, f'Failed to pull image "{text}": {told}')
