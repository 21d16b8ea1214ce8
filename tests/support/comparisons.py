"""Long comparisons with upstream programs run in full when their inputs have changed, and as a sample otherwise.

`proven.json` holds, for each comparison, the digest of its inputs at its last full run that passed. If the inputs
differ now, it runs in full again. `make test-all` always runs all in full; once that has passed, `python
tests/support/comparisons.py` writes the digests down.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
PROVEN = ROOT / "tests" / "proven.json"
ALL = "NEUROSCALE_TEST_ALL"
"""With any value, this variable makes all comparisons run in full."""
QUICK = "NEUROSCALE_TEST_QUICK"
"""`make check` sets this variable: it runs no comparison, and fewer generated cases."""

T = TypeVar("T")


@dataclass(frozen=True)
class Comparison:
    """`inputs`: the files and folders of this repository that decide its result."""

    name: str
    inputs: tuple[str, ...]

    @property
    def in_full(self) -> bool:
        """Whether it has to run in full."""
        if os.environ.get(ALL):
            return True
        if os.environ.get(QUICK):
            return False
        decided = os.environ.get(self._decided)
        return decided == "full" if decided else _proven().get(self.name) != self.digest()

    @property
    def _decided(self) -> str:
        return f"NEUROSCALE_TEST_{self.name.upper().replace('-', '_')}"

    def decide(self) -> None:
        """Decide once for this process and those that it starts: the workers of a test run."""
        os.environ[self._decided] = "full" if self.in_full else "sample"

    def sample(self, everything: Sequence[T], sample: Iterable[T]) -> list[T]:
        """All cases, or the sample if the inputs are those of the last full run."""
        return list(everything) if self.in_full else list(sample)

    def digest(self) -> str:
        """The digest of the names and contents of the inputs, of Python files without comments and docstrings."""
        found = hashlib.sha256()
        for path in sorted(file for one in self.inputs for file in _files(ROOT / one)):
            found.update(f"{path.relative_to(ROOT)}\0".encode() + _content(path, path.stat().st_mtime_ns))
        return found.hexdigest()


_VLLM = ("requirements/serve.txt", "src/neuroscale/vllm", "src/neuroscale/models")
_PLATFORM = (
    *("requirements/dev.txt", "platform/argocd", "platform/clusters", "platform/cost", "platform/forge"),
    *("platform/local", "platform/monitoring", "platform/serving", "platform/settings.yaml", "platform/tenancy"),
    *("src/neuroscale/local", "src/neuroscale/kube", "src/neuroscale/rendering/platform"),
)

VLLM_ARGUMENTS = Comparison(
    "vllm-arguments", (*_VLLM, "tests/vllm/test_vllm_arguments.py", "tests/support/vllm_parser_oracle.py")
)
"""Compares our reading of vLLM's command line with vLLM's own parser."""
KV_CACHE = Comparison(
    "kv-cache",
    (
        *(*_VLLM, "src/neuroscale/planning", "tests/planning/test_kv_oracle.py"),
        *("tests/support/oracle_configs.py", "tests/support/oracle_hybrids.py"),
        *("tests/support/oracle_sparse.py", "tests/support/oracle_drafts.py"),
        *("tests/support/vllm_oracle.py", "tests/support/vllm_start.py"),
    ),
)
"""Compares planned KV tokens and weights with those of started engines."""
MANIFESTS = Comparison(
    "manifests",
    (
        *(*_PLATFORM, "src/neuroscale/gate", "src/neuroscale/manifests", "src/neuroscale/core/yaml_io.py"),
        "src/neuroscale/repo/git.py",
        *("src/neuroscale/repo/snapshot.py", "tests/gate/test_repo_server_parity.py", "tests/support/gitops_lab.py"),
    ),
)
"""Compares the objects that the gate reads with those that Argo CD's repo server reads."""
SMOKE_TESTS = Comparison(
    "smoke-tests",
    (
        *("requirements/serve.txt", "smoke-tests", "src/neuroscale/smoke", "src/neuroscale/cluster/endpoint"),
        *("src/neuroscale/cluster", "src/neuroscale/cli/smoke_run.py", "tests/smoke/test_smoke_breakages.py"),
        *("tests/support/smoke_lab.py", "tests/support/smoke_breakages.py", "tests/support/model_faults.py"),
    ),
)
"""Compares the failed checks of each broken service with the checks that must fail."""
FAULTS = Comparison("faults", (*_PLATFORM, "tests/local/test_platform_faults.py", "tests/support/gitops_lab.py"))
"""Kills every process of the platform once."""
KINDS = Comparison(
    "kinds",
    (
        *("platform/local/tools/crds", "platform/local/tools/kubernetes", "platform/local/tools/kyverno"),
        *("requirements/runtime.txt", "src/neuroscale/core/custom_schemas.py", "src/neuroscale/core/kind_schema.py"),
        *("src/neuroscale/core/native_schemas.py", "src/neuroscale/core/schema_build.py"),
        *("src/neuroscale/core/schemas.py", "src/neuroscale/kube", "tests/gate/test_gate_server.py"),
        *(f"src/neuroscale/gate/checks/api_server{part}.py" for part in ("", "_dry_run", "_questions", "_tripwires")),
    ),
)
"""Asks an API server about an object of each kind that has a schema."""
FORGE_FAULTS = Comparison(
    "forge-faults",
    (
        *("requirements/runtime.txt", "platform/local/tools/gitea", "src/neuroscale/forge"),
        *("tests/forge/test_forge_faults.py", "tests/support/fault_proxy.py", "tests/support/forge_lab.py"),
    ),
)
"""Makes each request of the forge's client to a real Gitea fail in each way once."""
_POLICIES = (
    *("policies", "platform/local/tools/kyverno", "src/neuroscale/policies", "tests/support/policies_support.py"),
    *(f"src/neuroscale/gate/checks/{one}.py" for one in ("changed_policy_tests", "kyverno", "policy")),
)
POLICIES = Comparison("policies", (*_POLICIES, "tests/policies/test_policies.py"))
"""Asks Kyverno's command line about each policy's own good and bad objects."""
ADMISSION = Comparison(
    "admission",
    (
        *(*_POLICIES, "platform/serving", "platform/local/tools/kserve", "platform/local/tools/kubernetes"),
        *(f"src/neuroscale/local/{one}.py" for one in ("charts", "kserve", "kyverno", "upstream", "webhooks")),
        *("src/neuroscale/kube", "tests/local/test_admission.py", "tests/support/admission_lab.py"),
    ),
)
"""Asks a cluster with KServe, Kyverno and the policies about the same objects."""
COMPARISONS = (*(VLLM_ARGUMENTS, KV_CACHE, MANIFESTS, SMOKE_TESTS, FAULTS, KINDS, FORGE_FAULTS, POLICIES, ADMISSION),)


@cache
def _content(path: Path, changed: int) -> bytes:
    """The digest of what can decide a result in a file: comments and docstrings of Python cannot.

    `changed`: the time of its last change, for the cache.
    """
    data = path.read_bytes()
    if path.suffix != ".py":
        return hashlib.sha256(data).digest()
    tree = ast.parse(data)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            node.body = body[1:]  # type: ignore[attr-defined, index]
    return hashlib.sha256(ast.dump(tree).encode()).digest()


def _files(path: Path) -> Iterable[Path]:
    assert path.exists(), f"{path} is an input of a comparison and does not exist"
    if path.is_file():
        return [path]
    return [one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts]


@cache
def _proven() -> dict[str, str]:
    found: dict[str, str] = json.loads(PROVEN.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Write the digests of now down: every comparison has just passed in full."""
    digests = {one.name: one.digest() for one in COMPARISONS}
    PROVEN.write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
