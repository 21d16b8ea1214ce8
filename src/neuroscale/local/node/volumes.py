"""Makes a pod's empty folders on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from neuroscale.local.node.launch import Launch, scratch, volume
from neuroscale.local.state import PASSABLE
from neuroscale.local.users import User


def make_volumes(root: Path, launch: Launch, cache_of_server: Path | None, user: User | None) -> None:
    """Make the pod's empty folders below `root`. They last as long as the pod, and belong to the user of its processes.

    `cache_of_server`: vLLM's compiled files of this machine, the first content of a volume for its cache.
    """
    for made in (
        root,
        root / "logs",
        volume(root, "x").parent,
        scratch(root, "x").parent,
    ):
        made.mkdir(exist_ok=True)
        made.chmod(PASSABLE)
    for name in launch.volumes:
        path = volume(root, name)
        if path.exists():
            continue
        # Made elsewhere first: in a folder that a process may write to, its links could lead anywhere.
        half = path.with_name(f".new-{name}")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(mode=0o700)
        cache = Path(launch.environment.get("VLLM_CACHE_ROOT", "/"))
        if cache_of_server is not None and cache_of_server.is_dir() and cache.is_relative_to(path):
            shutil.copytree(cache_of_server, half / cache.relative_to(path), dirs_exist_ok=True)
        if user is not None:
            for folder, _, files in os.walk(half):
                for one in (folder, *(os.path.join(folder, file) for file in files)):  # noqa: PTH118
                    os.chown(one, user.uid, user.gid, follow_symlinks=False)
        half.replace(path)
