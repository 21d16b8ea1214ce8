"""Runs Redis, in which Argo CD keeps its rendered manifests. It keeps nothing on disk."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core.files import write_private
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.local.control_plane import environment
from neuroscale.local.copied_programs import copy_folder
from neuroscale.local.process import Process
from neuroscale.local.state import PASSABLE, State
from neuroscale.tools.redis_package import PROGRAM, find_redis, redis_package

NAME: Final = "redis"
PORTS = (NAME,)

_ANSWERS_WITHIN = 3.0  # seconds


@dataclass(frozen=True)
class Redis:
    """Redis of a local platform: its files and its process. Its port must have been chosen."""

    state: State

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.state.instance.ports[NAME]}"

    @property
    def folder(self) -> Path:
        return self.state.run / NAME

    @property
    def credentials(self) -> Path:
        """The folder with the file `auth`, from which Argo CD reads the password."""
        return self.state.run / "redis-credentials"

    @property
    def program(self) -> Path:
        return self.state.run / "programs" / _place() / PROGRAM.name

    def prepare(self) -> None:
        """Write its program, settings and password, which is made once. Raises UntrustedError if the program is
        missing."""
        user = self.state.cluster_user
        copy_folder(find_redis().parent, self.state.run / "programs", _place())
        self.state.make_folder(self.folder, user)
        self.state.make_folder(self.credentials, None, PASSABLE)
        password = self.credentials / "auth"
        if not password.exists():
            write_private(password, secrets.token_urlsafe(32), user)
        write_private(self.credentials / "redis.conf", self._settings() + f"requirepass {self._password()}\n", user)

    def process(self) -> Process:
        """The process for the supervisor."""
        return Process(
            name=NAME,
            argv=(str(self.program), str(self.credentials / "redis.conf")),
            environment=environment(self.folder),
            folder=self.folder,
            user=self.state.cluster_user,
            ready=self.problem,
            port=self.state.instance.ports[NAME],
            settings=self._settings(),
            stops_within=5.0,
        )

    def problem(self) -> str | None:
        """Why it cannot be used yet, or None."""
        try:
            with socket.create_connection((LOOPBACK, self.state.instance.ports[NAME]), _ANSWERS_WITHIN) as connection:
                connection.sendall(f"AUTH {self._password()}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (part := connection.recv(512)):
                    answer += part
        except OSError as error:
            return f"{self.address} does not answer ({type(error).__name__})"
        return None if answer.endswith(b"+PONG\r\n") else f"{self.address} refuses its password"

    def _settings(self) -> str:
        return (
            f"bind {LOOPBACK}\n"
            f"port {self.state.instance.ports[NAME]}\n"
            "protected-mode yes\n"
            'save ""\n'
            "appendonly no\n"
            # Its title would overwrite the environment, by which the supervisor finds its processes.
            "set-proc-title no\n"
            f"dir {self.folder}\n"
            "maxmemory 256mb\n"
            "maxmemory-policy allkeys-lru\n"
        )

    def _password(self) -> str:
        return (self.credentials / "auth").read_text(encoding="utf-8")


def _place() -> Path:
    return Path(NAME, redis_package().name)
