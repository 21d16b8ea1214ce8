"""Long comparisons with upstream programs, and tests of what happens to programs that are killed or hindered: they run
in full when their inputs have changed, and as a sample otherwise.

`proven.json` holds, for each comparison, the digest of its inputs at its last full run that passed. If the inputs
differ now, it runs in full again. `make test-all` always runs all in full; once that has passed, `python
tests/support/comparisons.py` writes the digests down, or those of the comparisons that it names.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
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
    """`inputs`: the files and folders of this repository that decide its result. `only_in_full`: the test functions
    that a sample leaves out, as `FILE::NAME`, or `FILE` for all of a file.
    """

    name: str
    inputs: tuple[str, ...]
    only_in_full: tuple[str, ...] = ()

    @property
    def in_full(self) -> bool:
        """Whether it has to run in full."""
        if os.environ.get(ALL):
            return True
        if os.environ.get(QUICK):
            return False
        decided = os.environ.get(self.variable)
        return decided == "full" if decided else _proven().get(self.name) != self.digest()

    @property
    def variable(self) -> str:
        """The environment variable that says `full` or `sample`."""
        return f"NEUROSCALE_TEST_{self.name.upper().replace('-', '_')}"

    def decide(self) -> None:
        """Decide once for this process and those that it starts: the workers of a test run."""
        os.environ[self.variable] = "full" if self.in_full else "sample"

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
WHEN_HINDERED = tuple(f"src/neuroscale/core/{one}.py" for one in ("files", "waiting"))
"""How our programs write, wait and try again: that decides what they leave when they are killed or hindered."""
ONLY_IN_A_GATE = ("ephemeral.py", "keeper.py")
"""The modules of `src/neuroscale/kube` that run a gate's own API server, and no cluster."""
_KUBE = tuple(
    sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src" / "neuroscale" / "kube").glob("*.py")
        if path.name not in ONLY_IN_A_GATE
    )
)
_PLATFORM = (
    *("requirements/dev.txt", "platform/argocd", "platform/clusters", "platform/cost", "platform/forge"),
    *("platform/local", "platform/monitoring", "platform/serving", "platform/settings.yaml", "platform/tenancy"),
    *("src/neuroscale/local", *_KUBE, "src/neuroscale/rendering/platform", *WHEN_HINDERED),
)


def _of(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}::test_{name}" for name in names)


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
        *(
            "src/neuroscale/cluster",
            "src/neuroscale/cli/smoke.py",
            "src/neuroscale/actions/smoke_now.py",
            "tests/smoke/test_smoke_breakages.py",
        ),
        *("tests/support/smoke_lab.py", "tests/support/smoke_breakages.py", "tests/support/model_faults.py"),
    ),
)
"""Compares the failed checks of each broken service with the checks that must fail."""
FAULTS = Comparison(
    "faults",
    (*_PLATFORM, "tests/local/test_platform_faults.py", "tests/support/gitops_lab.py"),
    _of("test_platform_faults.py", "every_process_can_be_killed_during_a_sync_and_nothing_merged_is_lost"),
)
"""Kills every process of the platform once."""
KINDS = Comparison(
    "kinds",
    (
        *("platform/local/tools/crds", "platform/local/tools/kubernetes", "platform/local/tools/kyverno"),
        *("requirements/runtime.txt", "src/neuroscale/tools/custom_schemas.py", "src/neuroscale/core/schemas.py"),
        *("src/neuroscale/tools/schema_build.py", "src/neuroscale/kube", "tests/gate/test_gate_server.py"),
        *(f"src/neuroscale/gate/checks/api_server{part}.py" for part in ("", "_dry_run")),
    ),
)
"""Asks an API server about an object of each kind that has a schema."""
FORGE_FAULTS = Comparison(
    "forge-faults",
    (
        *("requirements/runtime.txt", "platform/local/tools/gitea", "src/neuroscale/forge", *WHEN_HINDERED),
        *("tests/forge/test_forge_faults.py", "tests/support/fault_proxy.py", "tests/support/forge_lab.py"),
    ),
)
"""Makes each request of the forge's client to a real Gitea fail in each way once."""
_POLICIES = (
    *("policies", "platform/local/tools/kyverno", "src/neuroscale/policies", "tests/support/policies_support.py"),
    *(f"src/neuroscale/gate/checks/{one}.py" for one in ("changed_policies", "kyverno_process", "policy")),
)
POLICIES = Comparison("policies", (*_POLICIES, "tests/policies/test_policies.py"))
"""Asks Kyverno's command line about each policy's own good and bad objects."""
ADMISSION = Comparison(
    "admission",
    (
        *(*_POLICIES, "platform/serving", "platform/local/tools/kserve", "platform/local/tools/kubernetes"),
        *("src/neuroscale/local", *_KUBE, "scripts/policy_mutation", "templates"),
        *("tests/local/test_admission.py", "tests/support/admission_lab.py", *WHEN_HINDERED),
    ),
    ("test_admission.py",),
)
"""Asks a cluster with KServe, Kyverno and the policies about the same objects, and about what KServe makes of them."""


KILLED_GATE = Comparison(
    "killed-gate",
    (
        *("platform/local/tools/kubernetes", "src/neuroscale/cli/gate.py", "src/neuroscale/gate"),
        *("src/neuroscale/kube", *WHEN_HINDERED, "tests/gate/test_gate_server.py"),
    ),
    _of(
        "test_gate_server.py",
        "a_server_that_dies_while_it_is_asked_is_not_believed",
        "leaving_ends_a_start_under_way",
        "the_processes_end_with_their_keeper",
        "two_run_at_once",
        "a_port_that_is_taken_meanwhile_is_replaced",
        "a_gate_that_is_broken_off_leaves_nothing",
    ),
)
"""Kills and hinders the gate's API server, and the gate itself."""

KILLED_SERVERS = Comparison(
    "killed-servers",
    (
        *("requirements/serve.txt", "src/neuroscale/local", "src/neuroscale/cluster/endpoint"),
        *(*_KUBE, *WHEN_HINDERED, "tests/support/live_lab.py"),
        *("tests/local/test_node_live.py", "tests/cluster/test_endpoint_live.py"),
    ),
    _of(
        "test_node_live.py",
        "a_broken_model_folder_is_seen_as_a_crash_loop_and_never_as_ready",
        "a_corrected_one_is_ready_only_when_its_own_health_says_so",
        "kubectl_shows_its_log_and_reaches_its_port",
        "a_killed_agent_leaves_the_server_running_and_goes_on_with_it",
        "a_killed_server_is_counted_and_becomes_ready_again",
        "scaled_to_nothing_and_removed_it_leaves_no_process",
    )
    + _of(
        "test_endpoint_live.py",
        "a_key_is_replaced_with_the_pod_that_takes_it",
        "a_server_that_is_killed_while_it_answers_says_what_had_arrived",
    ),
)
"""Breaks, kills and replaces real vLLM servers of their own."""
KILLED_FORGE = Comparison(
    "killed-forge",
    (
        *("requirements/dev.txt", "platform/forge", "src/neuroscale/local", *WHEN_HINDERED),
        "tests/local/test_local_life.py",
        *(f"platform/local/tools/{one}" for one in ("gitea", "gitea-runner")),
    ),
    _of(
        "test_local_life.py",
        "a_process_that_is_killed_is_started_again_and_one_that_hangs_is_ill",
        "a_killed_supervisor_is_told_of_and_up_starts_anew_and_down_ends_what_is_left",
        "two_ups_at_once_start_one_platform_and_another_option_is_taken_over",
        "down_ends_what_a_job_left_running_and_nothing_else",
        "a_port_that_another_program_took_is_replaced",
        "an_up_that_was_killed_at_any_moment_is_completed_by_the_next",
        "a_start_that_fails_shows_the_last_lines_and_leaves_nothing_running",
        "a_folder_that_the_forges_user_cannot_enter_is_worked_around_and_told_of",
    ),
)
"""Kills and hinders `neuroscale local up` and what it runs."""
ARGO_CD = Comparison(
    "argo-cd",
    (*_PLATFORM, "tests/local/test_gitops.py", "tests/support/gitops_lab.py"),
    _of(
        "test_gitops.py",
        "an_object_that_was_deleted_by_hand_comes_back",
        "an_object_whose_manifest_is_gone_is_pruned",
        "a_broken_manifest_on_main_stops_nothing_else_and_is_told_of",
        "an_object_outside_the_teams_namespaces_is_not_applied",
        "a_service_that_nobody_changes_is_left_alone",
        "a_namespace_and_a_volume_are_pruned_only_when_somebody_confirms_it",
    ),
)
"""Shows what Argo CD makes of unusual changes."""
HINDERED_REQUESTS = Comparison(
    "hindered-requests",
    (
        *("requirements/runtime.txt", "platform/local/tools/gitea", "src/neuroscale/forge", "src/neuroscale/repo"),
        *(f"src/neuroscale/cli/{one}.py" for one in ("request", "options/change_outcome", "after_merge")),
        *("tests/cli/test_request_command.py", "tests/forge/test_revert.py", "tests/support/after_merge_lab.py"),
        *(*WHEN_HINDERED, "tests/support/fault_proxy.py"),
    ),
    _of(
        "test_request_command.py",
        "a_base_that_moved_on_is_merged_only_when_something_is_to_be_pushed",
        "a_conflict_inside_the_services_folder_is_decided_by_the_request_and_one_elsewhere_is_told",
        "after_a_kill_at_any_step_the_next_run_completes_the_request",
        "after_a_kill_during_an_update_the_next_run_completes_it",
        "a_push_whose_answer_is_lost_is_recognised_as_done",
        "passing_trouble_is_waited_for",
        "a_forge_that_takes_no_push_is_reported_and_nothing_stays_behind",
        "a_forge_that_opens_no_pull_request_is_reported_and_the_next_run_completes_it",
        "a_forge_that_is_down_is_reported",
        "a_commit_that_somebody_pushes_meanwhile_is_not_lost",
        "a_request_that_is_merged_meanwhile_leads_to_a_new_one_on_the_new_base",
        "two_runs_at_once_open_one_pull_request",
    )
    + _of(
        "test_revert.py",
        "a_fault_of_the_forge_leaves_one_revert_and_one_comment",
        "what_an_ended_run_left_the_next_one_completes",
    ),
)
"""Kills and hinders `neuroscale request` and the revert after a merge."""
MILESTONES = Comparison(
    "milestones",
    (
        *("requirements/runtime.txt", "requirements/serve.txt", "platform/local/tools", "platform/catalog"),
        *("milestones", "policies", "templates", "src/neuroscale/milestones", "src/neuroscale/gate"),
        *("src/neuroscale/manifests", "src/neuroscale/planning", "src/neuroscale/policies", "src/neuroscale/rendering"),
        *("src/neuroscale/repo/example", "src/neuroscale/vllm"),
        *("tests/milestones/test_milestones.py", "tests/support/lesson_folders.py"),
    ),
)
"""Shows each failure of a lesson with the real tool, and how it is prevented."""
COMPARISONS = (
    *(VLLM_ARGUMENTS, KV_CACHE, MANIFESTS, SMOKE_TESTS, FAULTS, KINDS, FORGE_FAULTS, POLICIES, ADMISSION),
    *(KILLED_GATE, KILLED_SERVERS, KILLED_FORGE, ARGO_CD, HINDERED_REQUESTS, MILESTONES),
)


def left_out() -> frozenset[str]:
    """The tests that only a full run holds and whose inputs have not changed: as `FILE::NAME`, or `FILE` for all."""
    return frozenset(name for one in COMPARISONS if not one.in_full for name in one.only_in_full)


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
    """Write down the digests of the named comparisons, or of all: they have just passed in full."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(main))
    parser.add_argument("names", nargs="*", metavar="NAME", help="a comparison that has just passed in full (all)")
    names = parser.parse_args().names
    if unknown := set(names) - {one.name for one in COMPARISONS}:
        parser.error(f"no such comparison: {', '.join(sorted(unknown))}")
    passed = {one.name: one.digest() for one in COMPARISONS if not names or one.name in names}
    others = _proven() if names else {}
    PROVEN.write_text(json.dumps({**others, **passed}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
