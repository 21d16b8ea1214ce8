"""Manages the folder of a local platform: the files that it keeps between starts, and their readers.

instance.json    its id, ports, users and options
supervisor.json  what the supervisor last knew of its processes
logs/            one file a process
tokens/, passwords/   one file an account, for the user who started it
run/             what the processes read and write; elsewhere where their users cannot enter the folder

Defines the errors of the local platform.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field, ValidationError

from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.core.files import write_private
from neuroscale.core.frozen import Frozen
from neuroscale.local.users import User, may_enter, nobody, unused_uid


class LocalError(NeuroscaleError):
    """A part of the local platform fails; the message says which, why, and where to look."""


PRIVATE, PASSABLE = 0o700, 0o711
"""Modes of folders: for their owner only; and for others to pass through without listing them."""

_VERSION = 2
_ELSEWHERE = Path("/var/tmp")  # noqa: S108 - the folder made there has an unguessable name, and must not exist before

# Linux gives outgoing connections ports from 32768 on, and Kubernetes' node ports begin at 30000.
_FIRST_PORT, _LAST_PORT = 20000, 29999
_PORT_TRIES = 1000

Port = Annotated[int, Field(ge=1, le=65535)]


class Instance(Frozen):
    """What identifies one local platform and stays the same between its starts.

    `environments`: those that are deployed onto its cluster; none until it first starts with one.
    """

    version: int
    id: str
    run: str
    forge_uid: int | None
    runner_uid: int | None
    cluster_uid: int | None = None
    model_uid: int | None = None
    cluster: bool = True
    cost: bool = False
    pages: bool = False
    portal: bool = False
    environments: tuple[str, ...] = ()
    nodes_each: Annotated[int, Field(ge=1, le=1000)] = 2
    ports: dict[str, Port] = Field(default_factory=dict)
    runner_capacity: Annotated[int, Field(ge=1, le=64)] = 2
    runner_environment: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


class State:
    """One local platform's folder."""

    def __init__(self, folder: Path, instance: Instance) -> None:
        self.folder = folder
        self.instance = instance

    @classmethod
    def read(cls, folder: Path) -> State | None:
        """The state in the folder, or None if it has none. Raises InputError if it cannot be used."""
        folder = folder.absolute()
        try:
            text = (folder / "instance.json").read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            told = f"cannot be read: {error.strerror}"
            raise InputError.at(str(folder), "", told, "Start it as the same user.") from error
        try:
            return cls(folder, Instance.model_validate_json(text))
        except ValidationError as error:
            fix = "Remove the folder once none of its processes runs, and start again."
            file = str(folder / "instance.json")
            raise InputError.at(file, "", "does not have the format of this version", fix) from error

    @classmethod
    def open(cls, folder: Path) -> State:
        """The state in the folder, which is made if it is missing. The caller holds `locked(folder)`."""
        found = cls.read(folder)
        if found is not None:
            if found.instance.cluster_uid is not None and found.instance.model_uid is None:
                found.update(model_uid=unused_uid((found.instance.cluster_uid, found.instance.runner_uid or 0)))
            return found
        folder = folder.absolute()
        instance_id = secrets.token_hex(8)
        root = os.geteuid() == 0
        forge = nobody() if root else None
        runner, cluster, model = _unused_uids(3) if root else (None, None, None)
        notes = [] if root else ["The forge and its jobs run as the user who started them, so jobs can read its files."]
        run = folder / "run"
        run.mkdir(mode=PASSABLE, exist_ok=True)
        run.chmod(PASSABLE)
        if root and not may_enter(forge, run):
            run = _ELSEWHERE / f"neuroscale-local-{instance_id}"
            run.mkdir(mode=PASSABLE)
            run.chmod(PASSABLE)
            notes.append(f"The processes' files lie in {run}: the user {nobody().name} cannot enter {folder}.")
        instance = Instance(
            version=_VERSION,
            id=instance_id,
            run=str(run),
            forge_uid=forge.uid if forge else None,
            runner_uid=runner,
            cluster_uid=cluster,
            model_uid=model,
            notes=tuple(notes),
        )
        state = cls(folder, instance)
        state.save()
        return state

    @property
    def run(self) -> Path:
        return Path(self.instance.run)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens"

    @property
    def passwords(self) -> Path:
        return self.folder / "passwords"

    @property
    def forge_user(self) -> User | None:
        return None if self.instance.forge_uid is None else nobody()

    @property
    def runner_user(self) -> User | None:
        """A separate uid: a job must not read the forge's files, which belong to the account `nobody`."""
        return _user("runner", self.instance.runner_uid)

    @property
    def cluster_user(self) -> User | None:
        """A separate uid: neither the forge nor its jobs may read the cluster's keys."""
        return _user("cluster", self.instance.cluster_uid)

    @property
    def model_user(self) -> User | None:
        """A separate uid: a model's code may read neither the cluster's keys nor the forge's files."""
        return _user("model", self.instance.model_uid)

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def save(self) -> None:
        """Write the instance, whole or not at all."""
        write_private(self.folder / "instance.json", self.instance.model_dump_json(indent=2) + "\n")

    def update(self, **changes: object) -> None:
        """Change fields of the instance and keep them."""
        instance = Instance.model_validate({**self.instance.model_dump(), **changes})
        if instance != self.instance:
            self.instance = instance
            self.save()

    def choose_ports(self, names: tuple[str, ...], tell: Callable[[str], None]) -> None:
        """Choose a free port for each name. A port that another program took meanwhile is replaced, with a message."""
        ports = dict(self.instance.ports)
        for name in names:
            old = ports.get(name)
            if old is not None and is_free(old):
                continue
            ports[name] = _free_port(set(ports.values()))
            if old is not None:
                tell(f"Port {old} of {name} is taken by another program: {name} now listens on {ports[name]}.")
        self.update(ports=ports)

    def make_folder(self, path: Path, user: User | None, mode: int = PRIVATE) -> Path:
        """A folder below `run` that belongs to the user."""
        path.mkdir(exist_ok=True)
        if user is not None:
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
        path.chmod(mode)
        return path

    def delete(self) -> None:
        """Remove all files. No process of the instance may run any more."""
        shutil.rmtree(self.run, ignore_errors=True)
        delete_folder(self.folder)


def _user(name: str, uid: int | None) -> User | None:
    return None if uid is None else User(name, uid, uid)


def delete_folder(folder: Path) -> None:
    """Remove a state folder that `locked` has checked. The instance file goes last: until then it identifies the
    folder."""
    last = ("instance.json", "lock")
    for entry in [entry for entry in folder.iterdir() if entry.name not in last]:
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name in last:
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


@contextmanager
def locked(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Lock the folder, which is made if it is missing, against other commands; the system releases it with the process.

    Raises InputError if the folder cannot be made or holds other files.
    """
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _is_own(folder):
            raise InputError.at(str(folder), "", "holds other files", "Name an empty or a new folder with --state.")
        if folder.stat().st_uid != os.geteuid():
            raise InputError.at(str(folder), "", "belongs to another user", "Name a folder of your own with --state.")
        folder.chmod(PASSABLE if os.geteuid() == 0 else PRIVATE)
        lock = _lock(folder / "lock", tell)
    except OSError as error:
        told = f"cannot be used: {error.strerror}"
        raise InputError.at(str(folder), "", told, "Name another folder with --state.") from error
    with lock:
        yield


def _is_own(folder: Path) -> bool:
    """Whether the folder holds a local platform, or only the remains of a killed start."""
    names = {entry.name for entry in folder.iterdir()}
    return "instance.json" in names or all(
        name in ("lock", "run") or name.startswith(".instance.json.") for name in names
    )


def _lock(path: Path, tell: Callable[[str], None]) -> IO[str]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("Another command works on this local platform; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # the other command removed the folder


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file; empty if the file is missing."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _unused_uids(count: int) -> tuple[int, ...]:
    found: list[int] = []
    for _ in range(count):
        found.append(unused_uid(found))
    return tuple(found)


def is_free(port: int) -> bool:
    """Whether a program can listen on the loopback port now."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection in TIME_WAIT does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port(taken: set[int]) -> int:
    """A free port below the range for outgoing connections, one of which could take a port of that range meanwhile."""
    for _ in range(_PORT_TRIES):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT + 1)
        if port not in taken and is_free(port):
            return port
    raise LocalError(f"No port from {_FIRST_PORT} to {_LAST_PORT} is free on the loopback device.")
