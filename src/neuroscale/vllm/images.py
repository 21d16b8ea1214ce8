"""Reads the version of vLLM from the name of a container's image, and says what a command is judged as without it."""

from __future__ import annotations

import re

from neuroscale.core.releases import release

OLDEST = (0, 9, 1)
"""The oldest release that is judged. Of older ones a few starts are known (tests/ground_truth), and no other rules."""

_VERSION = re.compile(r"^v?(\d+\.\d+\.\d+)")
_OF_VLLM = frozenset(
    {
        *("vllm-openai", "vllm-openai-cpu", "vllm-openai-rocm", "vllm-openai-xpu", "vllm-tpu"),
        *("vllm-cpu-release-repo", "vllm-arm64-cpu-release-repo", "vllm-release-repo"),
    }
)
"""Images that vLLM's project releases under its own number (docs/getting_started/installation and .buildkite of vLLM).
Mirrors keep the name."""

_PRODUCTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(^|/)lmcache/[^/]+$"), "LMCache"),
    (re.compile(r"(^|/)llm-d-[a-z0-9-]+$"), "llm-d"),
    (re.compile(r"(^|/)huggingfaceserver$"), "KServe's server for Hugging Face models"),
    (re.compile(r"(^|/)rhaiis[^/]*/[^/]+$|(^|/)vllm-[a-z0-9-]+-rhel\d+$"), "Red Hat AI Inference Server"),
    (re.compile(r"(^|/)nvidia/vllm$"), "NVIDIA"),
    (re.compile(r"(^|/)rocm/vllm(-dev)?$"), "AMD"),
)
"""Products that number their images themselves: llm-d-cuda:v0.7.0 holds vLLM 0.19.1."""


def image_name(image: str) -> str:
    """An image's name without tag and digest."""
    folders, slash, name = image.partition("@")[0].rpartition("/")
    return f"{folders}{slash}{name.partition(':')[0]}"


def image_repository(image: str) -> str:
    """The last part of an image's name, without tag and digest; it is the same for every mirror."""
    return image_name(image).rpartition("/")[2]


def image_version(image: str) -> str:
    """The version of vLLM that an image's tag names; "" if it names none, or if the number may be another program's."""
    if product_of(image) or image_repository(image) not in _OF_VLLM:
        return ""
    return tag_version(image)


def tag_version(image: str) -> str:
    """The version that an image's tag names, of whatever program; "" if it names none."""
    found = _VERSION.match(image.partition("@")[0].rpartition("/")[2].partition(":")[2])
    return found[1] if found else ""


def product_of(image: str) -> str:
    """The product that numbers an image itself; "" if none is known to."""
    name = image_name(image)
    return next((product for pattern, product in _PRODUCTS if pattern.search(name)), "")


def judged_as(image: str, asked: str, known: str) -> tuple[str, str]:
    """Which version of vLLM a command is judged as, where its own is not known here or does not show; and the fix.
    `asked`: the image's version ("": it does not show). `known`: the release whose arguments are known. The use of
    memory is known of every release from `OLDEST` up to that one."""
    pin = "Pin a release, such as the one of platform/catalog/runtimes/."
    as_known = f"command and memory are judged as those of vLLM {known}"
    if not asked and (product := product_of(image)):
        fix = "Take an image whose tag is vLLM's own release, or name this one, with its vLLM version, in the catalog."
        return f"{product} numbers its images itself, so no tag of them is a version of vLLM: {as_known}", fix
    if not asked:
        return f"the image's tag does not show its vLLM version: {as_known}", pin
    number = release(asked)
    if number > release(known):
        return f"vLLM {asked} is newer than what is known here: {as_known}", pin
    read = f"its arguments are read as {known} would"
    if number < OLDEST:
        return f"vLLM {asked} is older than the releases that are known here: {read}, and its memory is not judged", pin
    return f"the arguments of vLLM {asked} are not known here: {read}, and its memory as {asked} uses it", pin
