"""Compares the user of a server with the options of the buckets that its pod mounts with Cloud Storage FUSE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from neuroscale.gate.fit.container_faults import ContainerFault

DRIVER = "gcsfuse.csi.storage.gke.io"


def check_buckets(spec: Mapping[str, Any]) -> Iterator[ContainerFault]:
    """A notice for each bucket that belongs to another user than the server's. `spec`: a pod's, with one container.

    A FUSE mount belongs to root unless its options name a user. The image's own user is not known here, so a server
    without `runAsUser` gets no notice. The schema check finds fields of a wrong type, which are left out here.
    """
    container = _fields(spec["containers"][0])
    users = [_fields(one.get("securityContext")).get("runAsUser") for one in (container, spec)]
    user = next((one for one in users if one is not None), None)
    if not isinstance(user, int) or user == 0:
        return
    buckets: dict[str, set[str]] = {}
    for volume in map(_fields, _items(spec.get("volumes"))):
        name, driven = volume.get("name"), _fields(volume.get("csi"))
        if isinstance(name, str) and driven.get("driver") == DRIVER:
            options = _fields(driven.get("volumeAttributes")).get("mountOptions")
            buckets[name] = {one.strip() for one in str(options or "").split(",")}
    for index, mount in enumerate(map(_fields, _items(container.get("volumeMounts")))):
        name = mount.get("name")
        options = buckets.get(name) if isinstance(name, str) else None
        if options is None or f"uid={user}" in options or _readable(options):
            continue
        named = next((one for one in sorted(options) if one.startswith("uid=")), "")
        whose = f"the user of {named}" if named else "root, since its mountOptions name no uid"
        told = f"the server runs as user {user}, and the bucket of the volume {name} belongs to {whose}"
        yield ContainerFault(
            "mounted-bucket",
            ("volumeMounts", index),
            f"{told}: it may not be allowed to read the files",
            f"Add uid={user} and the gid of its group to mountOptions of the volume's volumeAttributes.",
            refused=False,
        )


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _readable(options: Iterable[str]) -> bool:
    """Whether the options say that everybody may read the files and enter the folders."""
    modes = {
        key.replace("_", "-"): int(value, 8)
        for key, _, value in (one.partition("=") for one in options)
        if re.fullmatch(r"[0-7]{3,4}", value)
    }
    return modes.get("file-mode", 0) & 0o4 == 0o4 and modes.get("dir-mode", 0) & 0o5 == 0o5
