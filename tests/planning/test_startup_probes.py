"""What a startup probe allows, by the kubelet's own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.local.node.probes import Probe, Results
from neuroscale.planning.startup import failures_for, judge_probe, judge_probes, probe_window

# Gemma 4 26B-A4B QAT on an NVIDIA L4 (Cloud Run, GCS FUSE): log of a start, ../shared/seeds/003.
LOAD, COMPILE, WARM_UP = 664.24, 98.93, 4.03

# The probe that the same repository's deployments had until then: github:xbill9/gemma4-tips,
# gpu-26B-qat-L4-devops-agent/server.py (config://vllm-deployment-template) and gpu-31B-qat-L4-devops-agent/DEPLOY.md.
FAILED = {"initialDelaySeconds": 180, "periodSeconds": 60, "failureThreshold": 10, "timeoutSeconds": 60}
# What replaced it ("up to 25 minutes"): the same server.py, get_vllm_deployment_config.
MENDED = {"initialDelaySeconds": 240, "periodSeconds": 60, "failureThreshold": 25, "timeoutSeconds": 60}


def test_the_probe_that_ended_the_measured_start_is_judged_too_short() -> None:
    judged = judge_probe(FAILED, LOAD + COMPILE)
    assert not judged.enough
    assert (judged.allowed_seconds, judged.expected_seconds) == (720, 764)
    assert "waits 720 s" in judged.told
    assert "about 764 s" in judged.told


def test_the_product_of_threshold_and_period_would_have_called_that_probe_long_enough() -> None:
    product = FAILED["initialDelaySeconds"] + FAILED["periodSeconds"] * FAILED["failureThreshold"]
    assert product > LOAD + COMPILE + WARM_UP


def test_the_probe_that_replaced_it_is_long_enough() -> None:
    judged = judge_probe(MENDED, LOAD + COMPILE + WARM_UP)
    assert judged.enough
    assert judged.allowed_seconds == 1680


def test_numbers_that_are_not_given_are_kubernetes_own() -> None:
    assert probe_window({"httpGet": {"path": "/health", "port": 8080}}) == (20, 30)
    assert probe_window({"initialDelaySeconds": 0, "periodSeconds": 0, "failureThreshold": 0}) == (20, 30)


def test_a_liveness_probe_without_a_startup_probe_ends_a_server_that_loads() -> None:
    container = {"livenessProbe": {"initialDelaySeconds": 120, "periodSeconds": 10, "failureThreshold": 3}}
    judged = judge_probes(container, 300)
    assert (judged.kind, judged.allowed_seconds, judged.enough) == ("liveness", 140, False)


def test_a_startup_probe_holds_the_liveness_probe_back() -> None:
    liveness = {"periodSeconds": 1, "failureThreshold": 1}
    assert judge_probes({"livenessProbe": liveness, "startupProbe": {"failureThreshold": 60}}, 300).enough


def test_without_probes_nothing_ends_the_server() -> None:
    judged = judge_probes({}, 10_000)
    assert judged.enough
    assert judged.allowed_seconds is None


@pytest.mark.parametrize(
    "probe",
    [[], "fast", {"periodSeconds": "10"}, {"periodSeconds": 2.5}, {"failureThreshold": True}, {"periodSeconds": -1}],
)
def test_a_probe_that_cannot_be_read_is_never_enough(probe: Any) -> None:
    judged = judge_probes({"startupProbe": probe}, 1)
    assert not judged.enough
    assert "cannot be judged" in judged.told


@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 40), st.floats(0.0, 0.999))
def test_no_kubelet_ends_the_container_before_the_allowed_time(
    delay: int, period: int, failures: int, phase: float
) -> None:
    """The probes of the node that this repository runs, whose ticks may lie anywhere in the first period."""
    probe = Probe("startup", 80, "/", "", (), float(delay), float(period), 1.0, failures, 1, None)
    results, now = Results([probe], 0.0), phase * period
    while results.failed is None:
        for due in results.due(now):
            results.asked(due.kind, now)
            results.record(due.kind, ok=False)
        now += period
    told = {"initialDelaySeconds": delay, "periodSeconds": period, "failureThreshold": failures}
    earliest, latest = probe_window(told)
    assert earliest <= now - period <= latest


@given(st.integers(1, 20_000), st.integers(1, 60))
def test_a_threshold_made_for_a_time_waits_that_long_and_hardly_longer(seconds: int, period: int) -> None:
    earliest, _ = probe_window({"periodSeconds": period, "failureThreshold": failures_for(seconds, period)})
    assert seconds <= earliest < seconds + period
