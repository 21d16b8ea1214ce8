"""Keeps a folder as an artifact of a workflow's run on Gitea and Forgejo.

GitHub's own action does this on GitHub. It cannot be used where github.com is out of reach, and its newer versions
refuse other forges. Source of the three requests: the comment at the top of Gitea's routers/api/actions/artifacts.go.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from neuroscale.errors import InputError, Problem
from neuroscale.forge.http import checked_address
from neuroscale.forge.model import ForgeError, Token

_VERSION = {"api-version": "6.0-preview"}
_SECONDS = 60.0


def keep(name: str, folder: Path, api: str, run_id: str, token: Token) -> list[str]:
    """Upload every file of `folder` as the artifact `name` of a run, replacing what it held; the files' names.

    `api` is the address in ACTIONS_RUNTIME_URL. Raises InputError for an empty folder and ForgeError when the forge
    refuses.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    if not files:
        raise InputError(Problem(str(folder), "", "holds no file", "Name the folder that the reports were written to."))
    base = f"{checked_address(api)}/_apis/pipelines/workflows/{run_id}/artifacts"
    headers = {"Authorization": f"Bearer {token.secret}", "Accept": "application/json"}
    transport = httpx.HTTPTransport(retries=3)
    try:
        with httpx.Client(headers=headers, timeout=_SECONDS, transport=transport, trust_env=False) as client:
            answer = client.post(base, params=_VERSION, json={"Type": "actions_storage", "Name": name})
            answer.raise_for_status()
            target = str(answer.json()["fileContainerResourceUrl"])
            if urlsplit(target)[:2] != urlsplit(base)[:2]:
                raise ForgeError(
                    "The forge points to another server for its artifacts, to which the token does not go."
                )
            for file in files:
                _upload(client, target, f"{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())
            client.patch(base, params={**_VERSION, "artifactName": name}).raise_for_status()
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise ForgeError(f"The artifact {name} could not be kept: {type(error).__name__}: {error}") from error
    return [file.relative_to(folder).as_posix() for file in files]


def _upload(client: httpx.Client, target: str, path: str, content: bytes) -> None:
    checksum = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
    client.put(
        target,
        params={"itemPath": path},
        content=content,
        headers={
            "Content-Type": "application/octet-stream",
            "Content-Range": f"bytes 0-{max(len(content) - 1, 0)}/{len(content)}",
            "x-tfs-filelength": str(len(content)),
            "x-actions-results-md5": checksum,
        },
    ).raise_for_status()


def main() -> int:
    """Run by the action `keep-reports`, in the environment that a runner gives its jobs."""
    parser = argparse.ArgumentParser(prog="python -m neuroscale.forge.artifacts", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        api, run_id, secret = (
            os.environ[name] for name in ("ACTIONS_RUNTIME_URL", "GITHUB_RUN_ID", "ACTIONS_RUNTIME_TOKEN")
        )
    except KeyError as error:
        sys.stderr.write(f"{error.args[0]} is not set: this runs in a workflow only.\n")
        return 2
    try:
        kept = keep(arguments.name, arguments.folder, api, run_id, Token(secret))
    except (InputError, ForgeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"Kept as the artifact {arguments.name}: {', '.join(kept)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
