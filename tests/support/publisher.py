"""A publisher of the tool, with a key of its own, for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from neuroscale.repo.tool_pin import ToolPin, publisher_name, statement


class Publisher:
    """It signs versions and digests."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.name = publisher_name(self._key.public_key().public_bytes_raw())

    def signature(self, version: str, sha256: str) -> str:
        return base64.b64encode(self._key.sign(statement(version, sha256))).decode()

    def pin(self, version: str, sha256: str, releases: str | None = None) -> ToolPin:
        """The pin of a release."""
        signature = self.signature(version, sha256)
        return ToolPin(version=version, sha256=sha256, publisher=self.name, signature=signature, releases=releases)

    def releases(self, digests: Mapping[str, str], changes: Mapping[str, str] | None = None) -> str:
        """The list of releases: digests by version."""
        entries = [
            {
                "version": version,
                "sha256": sha256,
                "signature": self.signature(version, sha256),
                "changes": (changes or {}).get(version, ""),
            }
            for version, sha256 in digests.items()
        ]
        return json.dumps({"schema_version": 1, "publisher": self.name, "releases": entries})
