"""Writes a curl command that asks a service, for pasting into a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_QUESTION = "Say hello in one sentence."
_LONGEST = 64  # tokens


@dataclass(frozen=True)
class Way:
    """The way to a gateway whose hosts are not in DNS: its port on this machine, and the certificate authority (PEM) to
    trust. `redirect_port`: its port for plain HTTP (0: unknown).
    """

    authority: Path
    port: int
    redirect_port: int = 0


def curl_line(url: str, model: str, key: Sequence[str], way: Way | None = None) -> str:
    """One line for a POSIX shell that sends a chat completion to the service at `url`.

    `key` is the command that writes the endpoint's key to its standard output. A pipe carries the key from there into
    curl: it never stands in an argument, which every user of the machine could see, or in a history. "" if the URL is
    not https: a key is sent only by TLS.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    asked = {"model": model, "messages": [{"role": "user", "content": _QUESTION}], "max_tokens": _LONGEST}
    command = ["curl", "--silent", "--show-error", "--header", "@-"]
    if way is not None:
        # A proxy would resolve the host itself.
        to = f"{parts.hostname}:{parts.port or 443}:127.0.0.1:{way.port}"
        command += ["--noproxy", "*", "--cacert", str(way.authority), "--connect-to", to]
    command.append(f"{url.rstrip('/')}/v1/{'chat/completions' if model else 'models'}")
    if model:
        command += ["--header", "Content-Type: application/json", "--data", json.dumps(asked)]
    return f"{{ printf 'Authorization: Bearer '; {shlex.join(key)}; }} | {shlex.join(command)}"
