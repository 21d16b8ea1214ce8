"""Keeps a folder as an artifact of a workflow's run on Gitea and Forgejo.

GitHub's own action does this on GitHub. It needs github.com, and refuses other forges.
Source of the three requests: the comment at the top of Gitea's routers/api/actions/artifactsv4.go.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from neuroscale.core.addresses import checked_address
from neuroscale.core.errors import InputError
from neuroscale.core.files import sha256
from neuroscale.forge.http import ADDRESS, SECRET
from neuroscale.forge.interface import ForgeError, Token

_SERVICE = "twirp/github.actions.results.api.v1.ArtifactService"
_SECONDS = 60.0


def keep(name: str, folder: Path, api: str, run_id: str, token: Token) -> list[str]:
    """Upload every file of `folder` as the artifact `name` of a run, replacing what it held; the files' names.

    `api` is the address in ACTIONS_RESULTS_URL. Raises InputError for an empty folder and ForgeError when the forge
    refuses.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    if not files:
        raise InputError.at(
            str(folder), "", "does not hold a file", "Name the folder that the reports were written to."
        )
    names = [file.relative_to(folder).as_posix() for file in files]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, entry in zip(files, names, strict=True):
            archive.write(file, entry)
    content = packed.getvalue()
    base = f"{checked_address(api, ADDRESS, SECRET)}/{_SERVICE}"
    artifact = {"workflow_run_backend_id": run_id, "workflow_job_run_backend_id": run_id, "name": name}
    checksum = sha256(content)
    authorized = {"Authorization": f"Bearer {token.secret}"}
    try:
        with httpx.Client(timeout=_SECONDS, transport=httpx.HTTPTransport(retries=3), trust_env=False) as client:
            made = client.post(f"{base}/CreateArtifact", headers=authorized, json={**artifact, "version": 4})
            made.raise_for_status()
            target = httpx.URL(str(made.json()["signedUploadUrl"]))
            if urlsplit(str(target))[:2] != urlsplit(base)[:2]:
                raise ForgeError("The forge keeps artifacts on another server than its own. Use its own action there.")
            client.put(target.copy_merge_params({"comp": "appendBlock"}), content=content).raise_for_status()
            done = {**artifact, "size": str(len(content)), "hash": checksum}
            client.post(f"{base}/FinalizeArtifact", headers=authorized, json=done).raise_for_status()
    except httpx.HTTPStatusError as error:
        # The address holds a signature.
        what = f"{error.request.method} {error.request.url.path}"
        raise ForgeError(
            f"The artifact {name} could not be kept: {what} was answered {error.response.status_code}."
        ) from None
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise ForgeError(f"The artifact {name} could not be kept: {type(error).__name__}.") from None
    return names


def main() -> int:
    """Run by the action `keep-reports`, in the environment that a runner gives its jobs."""
    parser = argparse.ArgumentParser(prog="python -m neuroscale.forge.artifacts", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        api, run_id, secret = (
            os.environ[name] for name in ("ACTIONS_RESULTS_URL", "GITHUB_RUN_ID", "ACTIONS_RUNTIME_TOKEN")
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
