"""Runs Alertmanager on this machine where the settings of the environment `cluster: local` ask for it (`alerting`).

Its configuration is the rendered file of that environment, as a cluster gets it in a Secret. Without one it does not
run: Prometheus shows the alerts that fire, and tells nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core.files import write_public
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.local.control_plane import environment
from neuroscale.local.copied_programs import copied, copy_tool
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State

NAME: Final = "alertmanager"
PORTS = (NAME,)


@dataclass(frozen=True)
class Alertmanager:
    """Alertmanager of a local platform: its files and its process. Its port must have been chosen."""

    state: State

    @property
    def address(self) -> str:
        """Its host and port, as Prometheus takes them."""
        return f"{LOOPBACK}:{self.state.instance.ports[NAME]}"

    @property
    def folder(self) -> Path:
        """The folder in which it keeps what it has sent."""
        return self.state.run / NAME

    @property
    def configuration(self) -> Path:
        """What it reads and must not change; missing where it does not run."""
        return self.state.run / f"{NAME}-settings" / "alertmanager.yaml"

    @property
    def is_asked_for(self) -> bool:
        """Whether it runs: it was prepared with a configuration."""
        return self.configuration.exists()

    def prepare(self, rendered: Path) -> None:
        """Write its program and its configuration, or remove that where the repository has no `rendered` file.

        Raises UntrustedError if set-up has not built it.
        """
        if not rendered.is_file():
            self.configuration.unlink(missing_ok=True)
            return
        copy_tool(self.state, NAME)
        self.state.make_folder(self.folder, self.state.cluster_user)
        self.state.make_folder(self.configuration.parent, None, PASSABLE)
        write_public(self.configuration, rendered.read_text(encoding="utf-8"))

    def processes(self) -> list[Process]:
        """The process for the supervisor; none where nobody asked for it."""
        if not self.is_asked_for:
            return []
        return [
            Process(
                name=NAME,
                argv=(
                    str(copied(self.state, NAME)),
                    f"--config.file={self.configuration}",
                    f"--storage.path={self.folder}",
                    f"--web.listen-address={self.address}",
                    # It is alone, and listens for no others.
                    "--cluster.listen-address=",
                    "--log.level=warn",
                ),
                environment=environment(self.folder),
                folder=self.folder,
                user=self.state.cluster_user,
                ready=lambda: answers(f"http://{self.address}/-/ready"),
                port=self.state.instance.ports[NAME],
                settings=self.configuration.read_text(encoding="utf-8"),
            )
        ]

    def notes(self) -> tuple[str, ...]:
        """Notes for its users."""
        if NAME not in self.state.instance.ports or not self.is_asked_for:
            return ()
        return (
            f"Alertmanager sends alerts to the teams' contacts. It lists them at http://{self.address}/api/v2/alerts.",
        )
