"""Finds the JSON schema of each kind that the gate knows, in the folder that set-up writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.core import delivered, tool_cache
from neuroscale.core.errors import UntrustedError

INDEX = "kinds.json"
CRDS = "crds.json"
LAYOUT = "{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind at one API version.

    `plural` is the resource name in an API server's paths; `native` says that Kubernetes itself defines the kind, and
    no custom resource definition does; `source` is the module or package, with its version, that the schema is of.
    """

    plural: str
    namespaced: bool
    native: bool
    schema: Path
    source: str


@dataclass(frozen=True)
class SchemaSet:
    """Every known kind, by (apiVersion, kind). `location` is the value of kubeconform's `-schema-location`."""

    folder: Path
    location: str
    kinds: Mapping[tuple[str, str], Kind]

    def crds(self) -> list[dict[str, Any]]:
        """The CustomResourceDefinitions that the schemas were made of, for an API server. Raises UntrustedError."""
        try:
            found: list[dict[str, Any]] = json.loads((self.folder / CRDS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UntrustedError(
                f"{self.folder / CRDS} cannot be read. Delete its folder and run `{_install()}`."
            ) from error
        return found


def find() -> SchemaSet:
    """The schemas of the versions that this package's repository pins.

    Raises UntrustedError when set-up has not written them.
    """
    try:
        return load(tool_cache.schema_pins().folder)
    except tool_cache.PinError as error:
        raise UntrustedError(f"{error} {delivered.repair_advice()}") from error


def load(folder: Path) -> SchemaSet:
    """The schemas in `folder`. Raises UntrustedError when it is not a folder that set-up finished."""
    try:
        rows = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        kinds = {
            (row["apiVersion"], row["kind"]): Kind(
                row["plural"], row["namespaced"], row["native"], folder / row["schema"], row["source"]
            )
            for row in rows
        }
    except OSError as error:
        raise UntrustedError(f"The schemas are not built. Run `{_install()}`.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UntrustedError(
            f"The index {folder / INDEX} cannot be read. Delete its folder and run `{_install()}`."
        ) from error
    if not kinds:
        raise UntrustedError(f"The index {folder / INDEX} is empty. Delete its folder and run `{_install()}`.")
    return SchemaSet(folder, f"{folder}/{LAYOUT}", kinds)


def _install() -> str:
    return delivered.install_command("gate")


def schema_file(api_version: str, kind: str) -> str:
    """The path in the schema folder at which kubeconform looks for a kind (its `LAYOUT`)."""
    group = api_version.split("/")[0]
    return f"{group}/{kind.lower()}_{api_version.split('/')[-1]}.json"
