"""Finds secrets that stand in plain text in the values of a ConfigMap.

gitleaks finds keys by their form, in every text. It cannot tell a password that a person chose from any other word: the
name of the entry, or its place in an address, has to say what it is. The policy no-plaintext-secrets does the same for
containers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAMES = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(^|_)(PASS|PWD)|(API|ACCESS|SECRET|PRIVATE|SIGNING)_?KEY)$"
)
_ORDINARY = re.compile(r"|true|false|[01]|/[^\s:@]*|([^\s:]*:)?\$(\([\w.-]+\)|\{[\w.-]+\}|\w+)", re.IGNORECASE)
"""A switch, the path of a file, or a reference to a variable."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s/?#@:]{0,200}:[^\s/?#@$][^\s/?#@]{0,200}@")


def secrets_of_map(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a ConfigMap's data that hold a secret, each with the reason."""
    data = value.get("data")
    for key, entry in data.items() if isinstance(data, dict) else ():
        text = str(entry or "").strip()
        if _NAMES.search(re.sub(r"[-.]", "_", str(key)).upper()) and not _ORDINARY.fullmatch(text):
            yield str(key), "is named like a secret and holds its value"
        elif _ADDRESS.search(text):
            yield str(key), "holds an address with a password"
