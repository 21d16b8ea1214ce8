"""An organisation's pin of the tool: its version and digest, and the packages that its workflows install."""

from __future__ import annotations

import re

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import read_mapping
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import Snapshot, read_text

_PIN = """\
# The tool that judges, renders and tests here. Its workflows install it from {requirements}, by these digests.
# `sha256` is the digest of its wheel. Whoever changes this file chooses the judge: only an owner may merge it.
tool:
  version: "{version}"
  sha256: "{digest}"
"""
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)[^\\]*(?P<hashes>(\\\n\s+--hash=sha256:[0-9a-f]{64}\s*)+)"
)


def pin_files(version: str, digest: str, locked: str) -> dict[str, str]:
    """The pin and the requirements, by path. `digest`: of the wheel, SHA-256; `locked`: the tool's own requirements."""
    own = f"neuroscale=={version} \\\n    --hash=sha256:{digest}\n"
    pin = _PIN.format(requirements=REQUIREMENTS, version=version, digest=digest)
    return {PIN: pin, REQUIREMENTS: f"{locked.rstrip()}\n{own}"}


def pin_problems(snapshot: Snapshot) -> list[Problem]:
    """Why the requirements are not those of the pin, or would install a package without its digest.

    A repository with neither file holds the tool itself: it has no problem.
    """
    if snapshot.read(PIN) is None and snapshot.read(REQUIREMENTS) is None:
        return []
    try:
        tool = read_mapping(read_text(snapshot, PIN), PIN).value.get("tool")
        text = read_text(snapshot, REQUIREMENTS)
    except InputError as error:
        return list(error.problems)
    if not isinstance(tool, dict) or set(tool) != {"version", "sha256"}:
        return [Problem(PIN, "tool", "does not hold exactly version and sha256", "Write both as quoted text.")]
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    packages = list(_REQUIREMENT.finditer(lines))
    if rest := _REQUIREMENT.sub("", lines).strip():
        message = f"holds more than packages with a version and digests: {rest.splitlines()[0][:80]!a}"
        return [Problem(REQUIREMENTS, "", message, "Remove it: only what a digest names may be installed.")]
    own = [match for match in packages if match["name"].lower().replace("_", "-") == "neuroscale"]
    digests = [re.findall(r"sha256:([0-9a-f]{64})", match["hashes"]) for match in own]
    if [match["version"] for match in own] != [tool["version"]] or digests != [[tool["sha256"]]]:
        message = f"does not install exactly the tool that {PIN} names"
        return [
            Problem(REQUIREMENTS, "neuroscale", message, f"Write neuroscale=={tool['version']} with that digest alone.")
        ]
    return []
