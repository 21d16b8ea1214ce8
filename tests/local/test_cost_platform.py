"""A real OpenCost beside a real control plane charges requested GPU hours x the catalog's price."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psutil
import pytest
import yaml

from cluster_lab import run
from cost_lab import CostLab, cost_lab
from neuroscale.local.opencost import OPENCOST, STEP, Cost
from neuroscale.metering.allocation import hours_together
from neuroscale.metering.opencost import of_local_platform
from neuroscale.metering.window import Window
from neuroscale.repo.layout import METER
from roots import ROOT

pytestmark = [pytest.mark.tools, pytest.mark.platform]

L4, H100, RTX_PRO_6000 = Decimal("0.72"), Decimal("10.98"), Decimal("3.76")
CORE, GIB = Decimal("0.0864"), Decimal("0.009")
HOST = 4 * CORE + 16 * GIB  # of a pod beside an L4; the price of an H100 includes CPU and memory
LATE = timedelta(minutes=30)


@pytest.fixture(scope="module")
def lab() -> Iterator[CostLab]:
    """Pods of two teams, and the series that Prometheus really scraped of them, written for the 90 minutes before."""
    with cost_lab() as found:
        found.serve("chat-sparse", "team-a", "nvidia-l4", 1, "0.151")
        found.serve("chat-dense", "team-b", "nvidia-l4", 2)
        found.serve("large", "team-b", "nvidia-h100-80gb", 4)
        found.start_meter()
        found.write_history({"large": LATE}, timedelta(minutes=90))
        yield found


def showback(lab: CostLab, window: str) -> Any:
    state = lab.running.state.folder
    said = run("showback", "--window", window, "--state", state, "--repository", ROOT, "--json")
    assert said.out, said.err
    return json.loads(said.out)


@pytest.mark.parametrize("minutes", [20, 3, 1])
def test_requested_gpu_hours_times_price_agree_with_the_meter_by_cost_centre(lab: CostLab, minutes: int) -> None:
    rows = {row["name"]: row for row in showback(lab, f"{minutes}m")["rows"]}
    hourly = {"team-a": L4 + HOST, "team-b": 2 * L4 + HOST + 4 * H100}
    devices = {"team-a": 1, "team-b": 6}
    hours = Decimal(minutes) / 60
    assert rows.keys() == hourly.keys()
    for center, row in rows.items():
        assert float(row["gpu_hours"]) == pytest.approx(float(devices[center] * hours), rel=0.001)
        assert float(row["exact"]) == pytest.approx(float(hourly[center] * hours), rel=0.02)


def test_the_bill_is_what_the_nodes_cost(lab: CostLab) -> None:
    """Services and idle costs together, also in a window without a step of OpenCost's default resolution."""
    cpu_and_memory = 224 * CORE + 2048 * GIB
    nodes = 8 * (L4 + H100 + RTX_PRO_6000) + cpu_and_memory + Decimal("1.375") + Decimal("5.50")
    for minutes in (20, 2):
        found = showback(lab, f"{minutes}m")
        assert float(found["bill"]) == pytest.approx(float(nodes * minutes / 60), rel=0.005)
        assert not [note for note in found["notes"] if note["level"] == "warning"]
        assert "No price list has a price of simulated-nvidia-a100-80gb-1" in str(found["notes"])


def test_a_pod_that_began_later_costs_for_its_own_time(lab: CostLab) -> None:
    (row,) = [row for row in showback(lab, "60m")["rows"] if row["name"] == "team-b"]
    # A window ends with the last whole minute.
    assert 4 * 28 / 60 < float(row["gpu_hours"]) - 2 <= 4 * 30 / 60


def test_costs_before_and_after_a_cut_add_up_to_those_of_the_whole_window(lab: CostLab) -> None:
    """As where a plan changed at a full hour, through which pods run."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    window, hour = Window(now - timedelta(minutes=80), now), now.replace(minute=0)
    with of_local_platform(lab.url, STEP, ()) as opencost:
        whole, cut = opencost.meter(window), opencost.meter(window, [hour])
    found = {one.part for one in cut.metered if one.place.service == "chat-dense"}
    assert found == ({0, 1} if hour < now else {0})
    for kind in ("pods", "idle"):
        totals = [float(sum(one.total for one in meter.metered if one.kind == kind)) for meter in (whole, cut)]
        assert totals[1] == pytest.approx(totals[0], rel=0.005)
    (dense,) = [one for one in whole.metered if one.place.service == "chat-dense"]
    assert float(hours_together([dense])) == pytest.approx(80 / 60, abs=0.02)


def test_times_before_the_first_sample_and_after_the_last_are_named(lab: CostLab) -> None:
    """The window begins before the history, and ends after now: OpenCost bills what lies between without a word."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    window = Window(now - timedelta(minutes=150), now + timedelta(hours=3))
    with of_local_platform(lab.url, STEP, ()) as opencost:
        meter = opencost.meter(window)
    before, after = (one for one in meter.empty if one.hours > 0.25)
    assert (before.start, after.end) == (window.start, window.end)
    # Prometheus answers for five minutes after its last sample.
    assert abs(before.end - (now - timedelta(minutes=90))) < timedelta(minutes=10)
    assert timedelta(0) < after.start - now < timedelta(minutes=10)


def test_only_this_machine_reaches_opencost(lab: CostLab) -> None:
    process = psutil.Process(lab.running.children[OPENCOST].pid)
    listening = {one.laddr.ip for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_prices_are_the_catalogs_and_no_placeholders(lab: CostLab) -> None:
    prices = {
        (one["metric"]["__name__"], one["metric"]["node"]): Decimal(one["value"][1])
        for one in lab.scraped('{__name__=~"node_(gpu|cpu|ram)_hourly_cost"}')
    }
    assert prices["node_gpu_hourly_cost", "simulated-nvidia-l4-1"] == L4
    assert prices["node_cpu_hourly_cost", "simulated-nvidia-l4-1"] == CORE
    assert prices["node_ram_hourly_cost", "simulated-nvidia-l4-1"] == GIB
    # The catalog has no price of an A100 and an H200 there.
    for node in ("simulated-nvidia-a100-80gb-1", "simulated-nvidia-h200-141gb-1"):
        assert prices["node_gpu_hourly_cost", node] == 0


def test_both_programs_are_set_up_as_on_a_real_cluster(lab: CostLab) -> None:
    metrics, opencost = Cost(lab.running.state).processes()
    chart = yaml.safe_load((ROOT / METER / "opencost-values.yaml").read_text())["opencost"]["exporter"]
    labels = yaml.safe_load((ROOT / METER / "kube-state-metrics-values.yaml").read_text())["kube-state-metrics"]
    assert f"--metric-labels-allowlist={','.join(labels['metricLabelsAllowlist'])}" in metrics.argv
    assert chart["extraEnv"].items() <= opencost.environment.items()
    assert chart["clusterIdConfigmap"] == "cluster-name"
