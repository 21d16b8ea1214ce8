"""Writes the schema folder: one strict JSON schema a kind, read out of pinned modules and packages.

Custom resources come out of their modules' CustomResourceDefinitions, native kinds out of kubernetes-validate, with
their plural and scope out of the table by which Kyverno's own command line resolves kinds.

Every schema stands alone, so that kubeconform reads one small file a kind; it reads them as JSON Schema draft 4.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuroscale.core import tool_cache
from neuroscale.core.custom_schemas import KYVERNO, custom_kinds, custom_resource_definitions
from neuroscale.core.kind_schema import BuildError, Found
from neuroscale.core.module_zip import ModuleError, open_module
from neuroscale.core.native_schemas import native_definitions, native_kinds, read_definitions
from neuroscale.core.schemas import CRDS, INDEX, load, schema_file

_KINDS_TABLE = "cmd/cli/kubectl-kyverno/data/api-group-resources.json"
# What the platform renders, its policies judge, or Argo CD applies: a set without one of these is broken.
_NEEDED = frozenset(
    {
        ("serving.kserve.io/v1beta1", "InferenceService"),
        ("serving.kserve.io/v1alpha2", "LLMInferenceService"),
        ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"),
        ("serving.kserve.io/v1alpha1", "ServingRuntime"),
        ("argoproj.io/v1alpha1", "Application"),
        ("argoproj.io/v1alpha1", "ApplicationSet"),
        ("argoproj.io/v1alpha1", "AppProject"),
        ("policies.kyverno.io/v1", "ValidatingPolicy"),
        ("policies.kyverno.io/v1", "PolicyException"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("policy/v1", "PodDisruptionBudget"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
        ("v1", "Pod"),
        ("v1", "Secret"),
    }
)


def build(pins: tool_cache.SchemaPins, archives: Mapping[str, Path]) -> int:
    """Write the schema folder of `pins` and return how many kinds it holds.

    `archives` maps a module's path to its zip. The folder appears whole or not at all. Raises BuildError.
    """
    raw = read_definitions(pins.kubernetes_validate)
    definitions = native_definitions(raw)
    found: list[Found] = []
    crds: list[dict[str, Any]] = []
    for module in pins.modules:
        with open_module(module, archives[module.path]) as archive:
            found.extend(custom_kinds(module, archive, definitions))
            crds.extend(custom_resource_definitions(module, archive))
            if module.path == KYVERNO:
                table = json.loads(archive.read(f"{module}/{_KINDS_TABLE}"))
                source = f"kubernetes-validate@{pins.kubernetes_validate}"
                found.extend(native_kinds(raw, table, source))
    return write(found, pins.folder, crds)


def write(found: list[Found], folder: Path, crds: Sequence[Mapping[str, Any]] = ()) -> int:
    """Write schemas, index and the definitions for API servers to `folder`, which appears whole or not at all.

    Raises BuildError for a bad set.
    """
    names = [(one.api_version, one.kind) for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BuildError(f"Two sources define the same kind: {twice}.")
    if missing := sorted(_NEEDED - set(names)):
        raise BuildError(f"The sources lack kinds that the platform needs: {missing}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        rows = []
        for one in sorted(found, key=lambda one: (one.api_version, one.kind)):
            name = schema_file(one.api_version, one.kind)
            path = temporary / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(one.schema, separators=(",", ":")), encoding="utf-8")
            rows.append(
                {
                    "apiVersion": one.api_version,
                    "kind": one.kind,
                    "plural": one.plural,
                    "namespaced": one.namespaced,
                    "native": one.native,
                    "schema": name,
                    "source": one.source,
                }
            )
        (temporary / CRDS).write_text(json.dumps(crds, separators=(",", ":")), encoding="utf-8")
        (temporary / INDEX).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        load(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.chmod(0o755)  # mkdtemp keeps everybody else out
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return len(found)


def main() -> None:
    """Build the schemas; each argument is `MODULE=ZIP`. Ends with one sentence and status 1 where it cannot."""
    parser = argparse.ArgumentParser(prog="python -m neuroscale.core.schema_build", description=main.__doc__)
    parser.add_argument("archives", nargs="+", metavar="MODULE=ZIP")
    archives = dict(argument.split("=", 1) for argument in parser.parse_args().archives)
    try:
        count = build(tool_cache.schema_pins(), {module: Path(path) for module, path in archives.items()})
    except (BuildError, ModuleError, tool_cache.PinError) as error:
        sys.exit(str(error))
    sys.stdout.write(f"{count} kinds\n")


if __name__ == "__main__":
    main()
