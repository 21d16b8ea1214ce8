"""Compares the user of a server with the options of the buckets that its pod mounts with Cloud Storage FUSE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuroscale.gate.fit.container_faults import ContainerFault
from neuroscale.manifests.pod_resources import mapping, sequence

DRIVER = "gcsfuse.csi.storage.gke.io"


def check_buckets(spec: Mapping[str, Any]) -> Iterator[ContainerFault]:
    """A notice for each bucket that belongs to another user than the server's. `spec`: a pod's, with one container.

    A FUSE mount belongs to root unless its options name a user. The image's own user is not known here, so a server
    without `runAsUser` gets no notice. Raises ValueError for a pod that cannot be read.
    """
    container = mapping(spec["containers"][0], "a container")
    contexts = (container.get("securityContext"), spec.get("securityContext"))
    users = [mapping(one, "securityContext").get("runAsUser") for one in contexts]
    user = next((one for one in users if one is not None), None)
    if not isinstance(user, int) or user == 0:
        return
    buckets = {}
    for item in sequence(spec.get("volumes"), "volumes"):
        volume = mapping(item, "a volume")
        driven = mapping(volume.get("csi"), "csi")
        if driven.get("driver") == DRIVER:
            options = mapping(driven.get("volumeAttributes"), "volumeAttributes").get("mountOptions")
            buckets[volume.get("name")] = {one.strip() for one in str(options or "").split(",")}
    for index, item in enumerate(sequence(container.get("volumeMounts"), "volumeMounts")):
        name = mapping(item, "a mount").get("name")
        options = buckets.get(name)
        if options is None or f"uid={user}" in options:
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
