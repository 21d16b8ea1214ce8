"""Runs Prometheus on this machine: it scrapes the model servers that really run, and keeps samples for two days.

The choice of pods, the rules and the labels are those of every cluster (`platform/monitoring/`). Different here: how
the API server is reached, that simulated pods are left out (nothing answers for them), and the addresses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_public
from neuroscale.core.yaml_io import read_mapping
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.local.cluster_parts import rights
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copied, copy_tool
from neuroscale.local.node.service import NODE
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State

NAME: Final = "prometheus"
PORTS = (NAME,)

_USER = "neuroscale:prometheus"
_INTERVAL = "5s"
_RETENTION: Final = {"time": "2d", "size": "512MB"}

_HERE: Final[tuple[dict[str, Any], ...]] = (
    # The other nodes are simulated: a server that does not run can be neither up nor down.
    {"source_labels": ["__meta_kubernetes_pod_node_name"], "regex": NODE, "action": "keep"},
    # A pod with the address 10.127.a.b listens on 127.127.a.b.
    {
        "source_labels": ["__address__"],
        "regex": r"10\.(127\.[0-9]+\.[0-9]+:[0-9]+)",
        "target_label": "__address__",
        "replacement": "127.$1",
    },
)


def address_in(folder: Path) -> str:
    """The address of the Prometheus of the platform in a state folder. Raises InputError if it has none."""
    found = State.read(folder)
    if found is None or not found.instance.cluster or NAME not in found.instance.ports:
        raise InputError.at(str(folder), "", "does not hold a Prometheus", "Start one: neuroscale local up --cluster")
    return Prometheus(found).url


@dataclass(frozen=True)
class Prometheus:
    """Prometheus of a local platform: its files and its process. Its port must have been chosen."""

    state: State

    @property
    def url(self) -> str:
        """The address below which `/api/v1/query` answers PromQL."""
        return f"http://{LOOPBACK}:{self.state.instance.ports[NAME]}"

    @property
    def folder(self) -> Path:
        """The folder of its samples."""
        return self.state.run / NAME

    @property
    def settings(self) -> Path:
        """The settings that it reads and must not change."""
        return self.state.run / f"{NAME}-settings"

    def prepare(
        self, scrape: Path, rules: Sequence[Path], others: Sequence[dict[str, Any]] = (), alertmanager: str = ""
    ) -> None:
        """Write its program and settings. Raises InputError if a file cannot be used.

        `scrape`: the scrape configurations of every cluster; `rules`: files of rules; `others`: scrape configurations
        that hold already how things are reached here; `alertmanager`: HOST:PORT of whom it tells alerts ("": nobody).
        """
        user, plane = self.state.cluster_user, control_plane(self.state)
        copy_tool(self.state, NAME)
        self.state.make_folder(self.folder, user)
        self.state.make_folder(self.settings, None, PASSABLE)
        plane.add_user(NAME, _USER)
        for path in rules:
            write_public(self.settings / path.name, path.read_text(encoding="utf-8"))
        found: Any = read_mapping(scrape.read_text(encoding="utf-8"), str(scrape)).value
        configuration: dict[str, Any] = {
            "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
            "storage": {"tsdb": {"retention": _RETENTION}},
            "rule_files": [str(self.settings / path.name) for path in rules],
            "scrape_configs": [*(self._here(one) for one in found["scrape_configs"]), *others],
        }
        if alertmanager:
            configuration["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        # JSON is YAML.
        write_public(self._configuration, json.dumps(configuration, indent=2) + "\n")

    def process(self) -> Process:
        """The process for the supervisor."""
        return Process(
            name=NAME,
            argv=(
                str(copied(self.state, NAME)),
                f"--config.file={self._configuration}",
                f"--storage.tsdb.path={self.folder}",
                f"--web.listen-address={LOOPBACK}:{self.state.instance.ports[NAME]}",
                "--log.level=warn",
            ),
            environment=environment(self.folder),
            folder=self.folder,
            user=self.state.cluster_user,
            ready=lambda: answers(f"{self.url}/-/ready"),
            port=self.state.instance.ports[NAME],
            needs=(API_SERVER,),
            settings="".join(path.read_text(encoding="utf-8") for path in sorted(self.settings.glob("*.yaml"))),
            prepare=self._apply,
        )

    def notes(self) -> tuple[str, ...]:
        """Notes for its users."""
        if NAME not in self.state.instance.ports:
            return ()
        return (
            f"Prometheus answers PromQL at {self.url}/api/v1/query; its pages are not built. "
            f"To see a service: neuroscale metrics SERVICE --state {self.state.folder}",
        )

    @property
    def _configuration(self) -> Path:
        return self.settings / "prometheus.yaml"

    def _here(self, scrape: dict[str, Any]) -> dict[str, Any]:
        """A scrape configuration of every cluster, adapted to this machine."""
        # In all namespaces: a team may be merged at any time.
        access = {"role": "pod", "kubeconfig_file": str(control_plane(self.state).kubeconfig_of(NAME))}
        relabelings = [_HERE[0], *scrape["relabel_configs"], _HERE[1]]
        return {
            **scrape,
            "scrape_interval": _INTERVAL,
            "kubernetes_sd_configs": [access],
            "relabel_configs": relabelings,
        }

    def _apply(self) -> None:
        """Apply its rights: it may read where pods are, and nothing else."""
        with cluster(self.state) as found:
            rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
            apply_all(found, rights(_USER, _USER, [rule]))
