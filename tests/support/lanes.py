"""Assigns tests to workers: files that share a server go to one worker, and long tests start first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

_FORGE = (
    *("test_request_command.py", "test_revert.py", "test_forge_adapters.py", "test_comment_command.py"),
    *("test_catalog_request.py", "test_service_history.py", "test_upgrade_command.py"),
)
_RUNNER = (
    *("test_pull_request_gate.py", "test_smoke_workflow.py", "test_pull_request_trust.py", "test_local_forge.py"),
    *("test_local_runner.py", "test_own_repository.py"),
)
"""They use a forge, too, and mostly wait for the jobs of its runner."""
_SECOND_FORGE = (
    *("test_forge_faults.py", "test_local_life.py", "test_prices_request.py", "test_reconcile_command.py"),
    *("test_change_commands.py", "test_explain_to_pull_request.py"),
)
"""The other files that use a forge: the first two lanes are long enough."""
_API_SERVER = (
    *("test_metrics_command.py", "test_endpoint_access.py", "test_platform_install.py", "test_node_agent.py"),
    *("test_keys_command.py", "test_smoke_access.py", "test_smoke_command.py", "test_cluster_capacity_command.py"),
    *("test_explained_service.py", "test_slow_service_live.py"),
    *("test_cluster_status_reader.py", "test_platform_tenancy.py", "test_control_plane.py"),
)
# A worker reserves its next test while it runs its last one: beside the long test of the demo, a short one.
_DEMO = ("test_demo.py", "test_startup.py", "test_startup_probes.py")
"""The demo starts the platform, on which the tests of the next files run."""

_SERVICES = ("test_node_live.py", "test_after_merge_live.py")
"""The second one tests every service of the shared platform's environment, and the first one breaks and removes one."""

_LANES = {file: lane for lane in (_FORGE, _RUNNER, _SECOND_FORGE, _API_SERVER, _DEMO, _SERVICES) for file in lane}
"""By file: all files that one worker runs together, in their order."""

_ON_THE_SHARED_PLATFORM = (
    *("test_smoke_breakages.py", "test_node_live.py", "test_endpoint_live.py", "test_gitops.py"),
    *("test_repo_server_parity.py", "test_gateway_live.py", "test_metrics_live.py"),
    *("test_platform_faults.py", "test_cluster_status_platform.py", "test_prometheus_platform.py"),
    *("test_local_argocd.py", "test_milestones_platform.py"),
)
"""The platform ends with the last of them, and leaves its part of the processors to the others."""

_BESIDE_THE_DEMO = ("test_forge_faults.py", "test_metrics_command.py", "test_gate_server.py")
"""Long ones that need no platform: the fourth worker takes them while another runs the demo."""

_DEAREST = (
    *("test_admission.py", "test_gate_runner.py", "test_milestones.py", "test_policies.py", "test_kv_oracle.py"),
    *("test_vllm_arguments.py", "test_gateway.py", "test_gate_attacks.py", "test_gate_fit.py", "test_cli.py"),
    *("test_parameter_oracle.py", "test_suite_under_other_names.py"),
)
"""The longest files by `scripts/test-times`; all other files follow, those with most tests first."""

# One worker starts with the demo, one uses a forge, and one waits for the jobs of its runner.
_FIRST = (
    *(_DEMO[0], "test_request_command.py", "test_pull_request_gate.py", *_BESIDE_THE_DEMO),
    *(*_ON_THE_SHARED_PLATFORM, *_DEAREST),
)


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """A file is one piece of work, and so is a lane of files."""

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid)


def lane_of(nodeid: str) -> str:
    """The lane of a test, named after its first file."""
    file = nodeid.split("::", 1)[0].rpartition("/")[2]
    return _LANES.get(file, (file,))[0]


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order in which workers take their lanes. Within a file the order stays."""
    sizes = Counter(lane_of(item.nodeid) for item in items)
    first = {lane: place for place, lane in enumerate(_FIRST)}

    def place(item: pytest.Item) -> tuple[int, int, str, int]:
        lane, file = lane_of(item.nodeid), item.path.name
        within = _LANES.get(file, (file,)).index(file)
        return first.get(lane, len(first)), -sizes[lane], lane, within

    return sorted(items, key=place)
