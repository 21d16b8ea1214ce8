"""A real Prometheus and a real Alertmanager: a team's alert reaches that team, by HTTP, and nobody else."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_processes import local_state, running
from neuroscale.core import tool_cache
from neuroscale.local import control_plane, prometheus
from neuroscale.local.alertmanager import NAME, PORTS, Alertmanager
from neuroscale.local.prometheus import Prometheus
from neuroscale.rendering.platform import alertmanager, monitoring
from neuroscale.rendering.platform.files import render_repository
from neuroscale.repo.snapshot import FolderSnapshot
from platform_repository import copy_platform, edit
from prometheus_lab import Server, running_prometheus
from roots import ROOT
from waiting import wait_for

pytestmark = pytest.mark.tools

ALERT = "NeuroScaleKvCacheNearlyFull"


@dataclass
class Receiver:
    """An HTTP server that keeps what it is told: for each path the alerts, as (status, namespace, name, runbook)."""

    told: dict[str, list[tuple[str, str, str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        told = self.told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                rows = told.setdefault(self.path, [])
                for one in said["alerts"]:
                    labels, notes = one["labels"], one["annotations"]
                    rows.append((one["status"], labels["namespace"], labels["alertname"], notes["runbook_url"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def states(self, path: str) -> list[str]:
        """The states that a path was told of, each repeat once."""
        return list(dict.fromkeys(status for status, *_ in self.told.get(path, [])))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def rendered(folder: Path, receiver: Receiver, secret: Path) -> Path:
    """The configuration of the environment local: two teams with a contact each, and a fallback for the others."""
    root = copy_platform(folder)
    quick = "group_wait_seconds: 1, group_interval_seconds: 1"
    alerting = f'{{fallback: {{webhook: "{receiver.url}/platform"}}, {quick}}}'
    edit(root, "platform/settings.yaml", "  local:\n", f"  local:\n    alerting: {alerting}\n")
    for name, alerts in {
        "team-alpha": f"{{webhook_file: {secret}}}",
        "team-beta": f'{{webhook: "{receiver.url}/beta"}}',
    }.items():
        edit(root, f"platform/catalog/teams/{name}.yaml", f"name: {name}\n", f"name: {name}\nalerts: {alerts}\n")
    path = alertmanager.path_of("local")
    (root / path).write_text(render_repository(FolderSnapshot(root))[path])
    return root / path


def quick_rules(folder: Path) -> list[Path]:
    """The rules, evaluated each second, with alerts after two seconds."""
    made = []
    for path in monitoring.RULES:
        text = (ROOT / path).read_text().replace("interval: 15s", "interval: 1s")
        made.append(folder / Path(path).name)
        made[-1].write_text(re.sub(r"for: \d+[smh]", "for: 2s", text))
    return made


def test_the_right_team_is_told_that_an_alert_fires_and_that_it_is_over_and_nobody_else_is(
    tmp_path: Path, receiver: Receiver
) -> None:
    services = {team: Server("chat", namespace=team) for team in ("team-alpha", "team-beta", "team-gamma")}
    with local_state(PORTS) as state, running(state) as parts:
        secret = state.run / "address"
        secret.write_text(f"{receiver.url}/services/T0123456789")
        secret.chmod(0o644)
        one = Alertmanager(state)
        one.prepare(rendered(tmp_path / "platform", receiver, secret))
        for process in one.processes():
            parts.start(process)
        with running_prometheus(tmp_path, [*services.values()], quick_rules(tmp_path), one.address):
            for name in ("team-alpha", "team-gamma"):
                services[name].page.kv_cache.set(0.9)
            paths = ("/services/T0123456789", "/platform")
            for path in paths:
                wait_for(lambda path=path: receiver.states(path), 60, f"{path} is told")  # type: ignore[misc]
            assert all(receiver.states(path) == ["firing"] for path in paths)
            for name in ("team-alpha", "team-gamma"):
                services[name].page.kv_cache.set(0.1)
            over = ["firing", "resolved"]
            for path in paths:
                wait_for(lambda path=path: receiver.states(path) == over, 60, f"{path} is told")  # type: ignore[misc]
    assert set(receiver.told) == set(paths), "the team without an alert is told nothing"
    assert {row[1:] for row in receiver.told[paths[0]]} == {("team-alpha", ALERT, f"{monitoring.RUNBOOKS}{ALERT}.md")}
    assert {row[1] for row in receiver.told[paths[1]]} == {"team-gamma"}
    for server in services.values():
        server.close()


def test_a_repository_that_does_not_ask_for_it_runs_none_and_prometheus_tells_nobody(
    tmp_path: Path, receiver: Receiver
) -> None:
    with local_state((*control_plane.PORTS, *prometheus.PORTS, *PORTS)) as state:
        control_plane.prepare(state)
        one, metrics = Alertmanager(state), Prometheus(state)
        missing, scrape = tmp_path / "missing.yaml", ROOT / monitoring.SCRAPE
        one.prepare(missing)
        assert one.processes() == []
        metrics.prepare(scrape, ())
        written = metrics.settings / "prometheus.yaml"
        assert "alerting" not in json.loads(written.read_text())
        before = metrics.process().settings

        one.prepare(rendered(tmp_path / "platform", receiver, tmp_path / "address"))
        assert [process.name for process in one.processes()] == [NAME]
        metrics.prepare(scrape, (), (), one.address)
        told = json.loads(written.read_text())["alerting"]["alertmanagers"]
        assert told == [{"static_configs": [{"targets": [one.address]}]}]
        assert metrics.process().settings != before, "the supervisor starts it anew"
        # The settings ask for it no longer.
        one.prepare(missing)
        assert one.processes() == []


@pytest.mark.parametrize("mail", [False, True])
def test_amtool_takes_what_is_rendered(tmp_path: Path, receiver: Receiver, mail: bool) -> None:
    path = rendered(tmp_path / "platform", receiver, tmp_path / "address")
    if mail:
        root = tmp_path / "platform"
        smtp = 'smtp: {smarthost: "mail.example.com:587", sender: "a@example.com", username: a, password_file: /etc/a}'
        edit(
            root,
            "platform/settings.yaml",
            "alerting: {fallback: {",
            f'alerting: {{{smtp}, fallback: {{email: "b@example.com", ',
        )
        path.write_text(render_repository(FolderSnapshot(root))[alertmanager.path_of("local")])
        assert yaml.safe_load(path.read_text())["receivers"][1]["email_configs"]
    argv = [str(tool_cache.find("amtool")), "check-config", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr
