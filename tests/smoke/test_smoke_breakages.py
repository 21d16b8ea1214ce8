"""A test of the smoke tests: break each thing in turn, and see exactly its checks fail.

A real vLLM stands behind a proxy that breaks one thing at a time; what belongs to cluster and repository is broken for
real, and mended again.

The breakages, and the sample of `make test`, notice each of these defects alone: a shorter context than planned
passes; any error passes for a prompt that is too long, or the error need not name the length; `/v1/responses` is not
tried without a key; miscounted completions pass; a certificate that ends soon passes; Argo CD may lack the merged
commit; general labels of pods are not compared. `test_smoke_garbage.py` notices that repeated phrases are found only
by characters. Nothing notices that one of two counters may stand still.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from comparisons import SMOKE_TESTS
from gitops_lab import GitOps
from live_lab import NAMESPACE, serve, service_files
from neuroscale.cluster.endpoint.access import open_endpoint
from neuroscale.core.errors import ExitStatus
from neuroscale.kube.client import Cluster
from platform_lab import Platform
from roots import CHECKOUT
from smoke_breakages import BREAKAGES, Asked, Breakage, at_once, healthy_gateway, places_at_once, restless_gateway
from smoke_lab import Lab

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]

NEEDS_URL = {"tls", "plain-http", "keyless-paths"}
_SETTLES = 120.0
# Longer than what the other checks ask for, so that each limit is met by its own check alone.
_ANSWERS = {
    "concurrent_users": 3,
    "longest_prompt_tokens": 96,
    "longest_answer_tokens": 64,
    "p95_ttft_seconds": 10,
}


@pytest.fixture(scope="module")
def lab(gitops: GitOps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A service of its own, with a short longest prompt: what is broken here must not be shared."""
    serve(gitops, "smoke-chat", NAMESPACE, **_ANSWERS)
    kubeconfig = Platform(gitops.local).kubeconfig
    with (
        Cluster.of_kubeconfig(kubeconfig, None) as cluster,
        open_endpoint(cluster, NAMESPACE, "smoke-chat") as endpoint,
    ):
        found = Lab(gitops, cluster, kubeconfig, endpoint, tmp_path_factory.mktemp("smoke"))
        with found.proxied():
            yield found
    gitops.merge(dict.fromkeys(service_files("smoke-chat", **_ANSWERS)), "Remove smoke-chat")


def _failed(report: Mapping[str, Any]) -> dict[str, str]:
    return {one["check"]: one["message"] for one in report["checks"] if one["outcome"] == "failed"}


def _left(report: Mapping[str, Any], base_url: str) -> list[str]:
    """The checks that neither passed, nor failed, nor had a reason to be left out."""
    failed = _failed(report)
    return [
        f"{one['check']}: {one['outcome']}: {one['message']}"
        for one in report["checks"]
        if one["outcome"] not in ("passed", "failed")
        and not (one["outcome"] == "skipped" and one["needs"] in failed)
        and not (one["outcome"] == "skipped" and not one["needs"] and one["check"] in NEEDS_URL and not base_url)
    ]


_OF_ONE_CHECK_ANOTHER_PART = {
    *("its pod has another label", "Argo CD has not seen its change", "its certificate ends in days"),
    "its gateway lets in every path",
}
"""They cost little, and a check that misses them still fails by another breakage."""


def _sample() -> list[Breakage]:
    """The server's faults many at a time; of what else can break, enough for every check to fail once, in several
    places at a time.

    Where several texts are garbage, the first are answered here; `test_smoke_garbage.py` shows the others.
    """
    servers = [one for one in at_once(BREAKAGES) if one.name not in {each.name for each in BREAKAGES}]
    found: list[Breakage] = []
    failed: set[str] = set().union(*(one.fails for one in servers))
    for breakage in sorted((one for one in BREAKAGES if one.fault is None), key=lambda one: -len(one.fails)):
        if breakage.fails - failed or breakage.name in _OF_ONE_CHECK_ANOTHER_PART:
            found.append(breakage)
            failed |= breakage.fails
    return [*servers, *places_at_once(found)]


@pytest.mark.parametrize("asked", [Asked(), Asked(real_kubectl=True)], ids=["through the proxy", "as it is"])
def test_a_healthy_service_passes(lab: Lab, asked: Asked) -> None:
    status, report = lab.smoke(asked)
    assert (_failed(report), _left(report, ""), report["problems"]) == ({}, [], [])
    assert (status, report["passed"]) == (ExitStatus.PASSED, True)
    assert report["revision"] == lab.revision


def test_a_healthy_gateway_passes(lab: Lab) -> None:
    with healthy_gateway(lab) as asked:
        status, report = lab.smoke(asked)
    assert (_failed(report), _left(report, asked.base_url)) == ({}, [])
    assert status is ExitStatus.PASSED


def test_a_way_that_fails_now_and_then_turns_no_check_red(lab: Lab) -> None:
    with restless_gateway(lab) as asked:
        status, report = lab.smoke(asked)
    assert (_failed(report), _left(report, asked.base_url)) == ({}, [])
    assert status is ExitStatus.PASSED
    assert any("at the second try" in one["message"] for one in report["checks"])


def test_the_soak_counts_no_false_red(gitops: GitOps, lab: Lab) -> None:
    """Its smallest size. It asks through the real gateway."""
    command = [sys.executable, str(CHECKOUT / "scripts/bench-smoke"), f"--state={gitops.local.state.folder}"]
    sizes = ["--service=smoke-chat", "--runs=1", "--posts=300", "--busy=1"]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "300 requests with a wrong key: {'refused': 300}" in done.stdout


@pytest.mark.parametrize("breakage", SMOKE_TESTS.sample(BREAKAGES, _sample()), ids=lambda one: one.name)
def test_exactly_its_checks_fail(lab: Lab, breakage: Breakage) -> None:
    with breakage.arrange(lab) as asked:
        status, report = lab.smoke(asked)
    failed = _failed(report)
    assert set(failed) - breakage.last == breakage.fails, json.dumps(failed, indent=1)
    assert _left(report, asked.base_url) == []
    assert report["passed"] is False
    assert status == (ExitStatus.FINDINGS if breakage.trusted else ExitStatus.UNTRUSTED), report["problems"]
    # Each says what was seen and what to do.
    assert all(one["message"] and one["next"] for one in report["checks"] if one["outcome"] == "failed")
    assert lab.key not in json.dumps(report)
