"""Demands a read-only root file system of servers in images that were tried with one.

The catalog's runtimes say in which images vLLM answers on a read-only root (`read_only_root`). Kubernetes mounts the
volumes of a pod beside it, so a server with such a root needs one for temporary files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from neuroscale.catalog import RuntimeEntry
from neuroscale.core.validation import mapping
from neuroscale.core.yaml_io import Path
from neuroscale.gate.check import Run
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.fit.known_models import Knowledge
from neuroscale.gate.fit.vllm_containers import VllmContainer
from neuroscale.gate.fit.volumes import mounts_of, nearest_mount
from neuroscale.gate.policy_exceptions import WRITABLE_ROOT as RULE
from neuroscale.gate.policy_exceptions import Exceptions
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest

NO_FOLDER = "no-temporary-folder"

Excepting = Callable[[Manifest, Finding], Finding]
"""Gives the finding about an object as exceptions leave it."""

_FIELD = "readOnlyRootFilesystem"
_PLACE: Path = ("securityContext", _FIELD)
# Python's tempfile: the first of these variables, or else the first of these folders that the process can write to,
# or else its working folder. vLLM 0.32 asks for it as soon as it is imported (VLLM_RPC_BASE_PATH in vllm/envs.py).
_VARIABLES = frozenset({"TMPDIR", "TEMP", "TMP"})
_FOLDERS = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - names in a manifest, not files of this program
_MOUNT = "Mount an emptyDir at /tmp."


def root_findings(
    gate: str, servers: Sequence[VllmContainer], known: Knowledge | None, excepting: Excepting
) -> Iterator[Finding]:
    """A finding for each server whose root file system is writable though its image needs none, and for each server
    with a read-only root and no folder for temporary files.

    A catalog that cannot be read (`known` is None) demands no read-only root; the catalog check reports it.
    """
    for server in servers:
        if server.description:
            continue
        try:
            read_only = mapping(server.container.get("securityContext"), "securityContext").get(_FIELD) is True
            without_folder = read_only and _lacks_folder(server)
        except ValueError:
            continue  # the fit check says that it is not judged, and the schema check why
        entry = None if known is None or read_only else _tried(server, known)
        if entry is not None:
            told = (
                f"its root file system is writable, though vLLM answers in the image of {entry.name} on a read-only one"
            )
            yield excepting(server.manifest, _finding(gate, RULE, server, _PLACE, told, _fix(server)))
        if without_folder:
            told = (
                "its root file system is read-only, and no volume that it may write to is mounted at /tmp: vLLM finds "
                "no folder for temporary files and ends at its start"
            )
            yield _finding(gate, NO_FOLDER, server, ("volumeMounts",), told, _MOUNT)


def root_exceptions(run: Run) -> Exceptions:
    """The reviewed exceptions from `writable-root` in one run of the gate, which are the base's."""
    read = run.judge.policies
    return Exceptions(lambda: [one for one in read().exceptions if one.policy == RULE], run.today, run.longest_days)


def _tried(server: VllmContainer, known: Knowledge) -> RuntimeEntry | None:
    """The catalog's runtime whose image the server runs, if that image was tried with a read-only root.

    Mirrors hold the same image. Where several runtimes share it, the one that the service names decides, and otherwise
    those that are for every model.
    """
    alike = known.of_image(server.image)
    named = [one for one in alike if one.name == _named(server)]
    chosen = named or [one for one in alike if one.only_for is None]
    return next((one for one in chosen if one.has_read_only_root), None)


def _named(server: VllmContainer) -> str:
    """The runtime that an InferenceService's model names, for a canary perhaps that of the service; "" for others."""
    of_service: Path = ("spec", "predictor", "model")
    for at in (server.at, of_service) if "canary" in server.at else (server.at,):
        value = server.manifest.at(at)
        if isinstance(value, dict) and value.get("runtime"):
            return str(value["runtime"])
    return ""


def _lacks_folder(server: VllmContainer) -> bool:
    """Whether the manifest shows that the server can write temporary files nowhere. Raises ValueError."""
    command = server.command
    names = {*command.environment, *command.hidden}
    if server.hidden or "" in command.hidden or not _VARIABLES.isdisjoint(names):
        return False
    folders = [*_FOLDERS, str(server.container.get("workingDir") or "")]
    return not any(folder and _is_writable(server.container, folder) for folder in folders)


def _is_writable(container: Mapping[str, Any], folder: str) -> bool:
    """Whether the folder lies in a volume that the container may write to."""
    nearest = nearest_mount(container, folder)
    return nearest is not None and mounts_of(container)[nearest].get("readOnly") is not True


def _finding(gate: str, rule: str, server: VllmContainer, place: Path, told: str, fix: str) -> Finding:
    manifest, path = server.origin(place)
    return manifest_finding(gate, rule, manifest, path, told, fix, subject=server.subject)


def _fix(server: VllmContainer) -> str:
    service = server.manifest.service
    if service is not None:
        return f"Run `neuroscale replan {service.folder}` and commit the result."
    return f"Write {_FIELD}: true into its securityContext. {_MOUNT}"
