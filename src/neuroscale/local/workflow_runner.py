"""Runs the forge's workflow runner, which runs each job as plain processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_public
from neuroscale.core.tool_cache import wheels
from neuroscale.local.copied_programs import copied, copy_cache, copy_tool
from neuroscale.local.forge_setup import OWNER, LocalForge
from neuroscale.local.gitea import NAME as FORGE
from neuroscale.local.gitea import Gitea
from neuroscale.local.process import Process, answers, run_once
from neuroscale.local.state import PASSABLE, LocalError, State, read_json
from neuroscale.local.users import User, may_enter, tried

NAME = "runner"
LABEL = "ubuntu-latest"
OLDEST_PYTHON = (3, 11)

_TOOL: Final = "gitea-runner"
_EMPTIED = ("home", "tmp", "work")  # at each start
_PARTS = (*_EMPTIED, "registration")
# Below its cache, for what a job itself installs: guidellm, where a new service is measured after its merge, and the
# tool's next version, which judges the change that pins it.
_INSTALLED = ("bench", "locks", "logs", "neuroscale")
_STICKY = 0o1775
"""A folder of root's to which the runner's user may add entries: it can neither replace nor remove those of root."""
_PROGRAMS = ("bash", "git")  # what every job of the gate runs
_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
# The caller's variables that jobs may see: package indexes, certificates and proxies.
_ALLOWED = re.compile(
    r"PIP_[A-Z0-9_]+|UV_[A-Z0-9_]+|SSL_CERT_FILE|SSL_CERT_DIR|[A-Z_]+_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO"
    r"|(HTTP|HTTPS|ALL|NO)_PROXY|(http|https|all|no)_proxy|TZ"
)
_SECRET_NAMES = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|USERNAME|KEYRING|CONFIG_FILE|CLIENT_CERT", re.IGNORECASE)


@dataclass(frozen=True)
class Runner:
    """The runner of a local platform: its files and its process. The ports must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        return self.state.run / NAME

    @property
    def settings(self) -> Path:
        """The settings that it reads and must not change."""
        return self.state.run / "runner-settings"

    @property
    def cache(self) -> Path:
        """The gate's tools, in the layout of the tool cache."""
        return self.state.run / "cache"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def registration(self) -> Path:
        return self.folder / "registration" / "registration.json"

    def prepare(self) -> None:
        """Write its folders, programs and settings. Raises InputError if its user has no Python for the jobs."""
        user = self.state.runner_user
        copy_tool(self.state, _TOOL)
        copy_cache(self.cache)
        for name in _INSTALLED:
            self.state.make_folder(self.cache / name, user)
        if user is not None:
            # The next version may pin other upstream tools.
            tools = self.cache / "tools"
            for folder in (self.cache / "schemas", tools, *sorted(tools.iterdir())):
                os.chown(folder, -1, user.gid, follow_symlinks=False)
                folder.chmod(_STICKY)
        # Its user owns the files in this folder, but cannot replace a part that root works on by a link.
        self.state.make_folder(self.folder, None, PASSABLE)
        for name in _PARTS:
            self.state.make_folder(self.folder / name, user)
        self.state.make_folder(self.settings, None, PASSABLE)
        path = self.state.make_folder(self.settings / "path", None, 0o755)
        link = path / "python3"
        link.unlink(missing_ok=True)
        link.symlink_to(find_python(user))
        environment = self._environment()
        for program in _PROGRAMS:
            if not tried(user, ["/bin/sh", "-c", 'command -v "$1"', "sh", program], environment):
                raise _lacks(user, f"no {program} on PATH", f"Install {program} for all users.")
        self.state.update(runner_environment=environment)
        write_public(self.settings / "config.yaml", self._config())

    def process(self) -> Process:
        """The process for the supervisor."""
        return Process(
            name=NAME,
            argv=(str(copied(self.state, _TOOL)), "--config", str(self.settings / "config.yaml"), "daemon"),
            environment=self.state.instance.runner_environment,
            folder=self.home,
            user=self.state.runner_user,
            # It listens only after the forge has accepted its registration and labels.
            ready=lambda: answers(f"http://127.0.0.1:{self.state.instance.ports[NAME]}/healthz"),
            port=self.state.instance.ports[NAME],
            needs=(FORGE,),
            settings=self._config(),
            prepare=self._register,
            stops_within=8.0,
        )

    def _register(self) -> None:
        """Register with the forge if that is not done, or was done at another address; remove the files that jobs
        left."""
        user, gitea = self.state.runner_user, Gitea(self.state)
        for name in _EMPTIED:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            self.state.make_folder(self.folder / name, user)
        there = read_json(self.registration)
        if (there.get("address"), there.get("name")) == (gitea.url, OWNER):
            return
        with contextlib.suppress(FileNotFoundError):
            self.registration.unlink()
        token = LocalForge(self.state).runner_token()
        # Through its prompts, because every user can read a command's arguments.
        run_once(
            [copied(self.state, _TOOL), "--config", self.settings / "config.yaml", "register"],
            self.state.instance.runner_environment,
            self.home,
            user,
            text=f"{gitea.url}\n{token}\n{OWNER}\n",
        )
        if not self.registration.is_file():
            raise LocalError(f"The runner did not register with the forge. See {self.state.log(FORGE)}.")

    def _config(self) -> str:
        # JSON is YAML, and no template writes this: no value can become structure.
        settings = {
            "log": {"level": "info"},
            "runner": {
                "file": str(self.registration),
                "capacity": self.state.instance.runner_capacity,
                "timeout": "1h",
                "shutdown_timeout": "5s",
                "fetch_timeout": "5s",
                "fetch_interval": "1s",
                "fetch_interval_max": "1s",
                "log_report_interval": "1s",
                "log_report_max_latency": "500ms",
                "state_report_interval": "1s",
                "labels": [f"{LABEL}:host"],
            },
            # It would listen on every network device.
            "cache": {"enabled": False},
            "host": {"workdir_parent": str(self.folder / "work")},
            "metrics": {"enabled": True, "addr": f"127.0.0.1:{self.state.instance.ports[NAME]}"},
        }
        return json.dumps(settings, indent=2) + "\n"

    def _environment(self) -> dict[str, str]:
        """The whole environment of the runner and its jobs, without the other variables of the platform's caller."""
        user = self.state.runner_user
        name = user.name if user else os.environ.get("USER", "")
        return {
            **shared(os.environ),
            "PATH": os.pathsep.join([str(self.settings / "path"), *search_path(user)]),
            "HOME": str(self.home),
            "TMPDIR": str(self.folder / "tmp"),
            "LANG": "C.UTF-8",
            "NEUROSCALE_CACHE": str(self.cache),
            "PIP_FIND_LINKS": str(wheels(self.cache)),
            "UV_FIND_LINKS": str(wheels(self.cache)),
            **({"USER": name, "LOGNAME": name} if name else {}),
        }


def shared(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that jobs may see: settings of package indexes, certificates and proxies without credentials.

    The forge is never reached through a proxy.
    """
    kept = {
        key: value
        for key, value in environment.items()
        if _ALLOWED.fullmatch(key) and not _SECRET_NAMES.search(key) and not _has_credentials(value)
    }
    for key in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in kept.get(key, "").split(",") if host]
        kept[key] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
    return kept


def find_python(user: User | None) -> Path:
    """A Python with venv that the user can run, as a path without links to follow. Raises InputError without one."""
    check = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *_FOLDERS])
    candidates = [Path(folder) / name for folder in folders if folder.startswith("/") for name in _PYTHONS]
    for candidate in [*candidates, Path(sys.base_prefix) / "bin" / "python3"]:
        if candidate.is_file() and tried(user, [str(candidate), "-I", "-c", check]):
            place = run_once(
                [candidate, "-I", "-c", "import os, sys; print(os.path.realpath(sys.executable))"],
                {"PATH": os.defpath},
                Path("/"),
                user,
            )
            return Path(place.strip())
    wanted = ".".join(map(str, OLDEST_PYTHON))
    raise _lacks(
        user,
        f"no python3 of version {wanted} or newer with venv",
        "Install one for all users, such as the packages python3 and python3-venv.",
    )


def search_path(user: User | None) -> list[str]:
    """The folders of PATH that the user can enter, and the usual ones."""
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *_FOLDERS])
    return [folder for folder in folders if folder.startswith("/") and may_enter(user, Path(folder))]


def _lacks(user: User | None, what: str, fix: str) -> InputError:
    who = f"the user {user.uid} of the jobs" if user else "this user"
    return InputError.at("the runner", "", f"cannot run jobs: {who} can run {what}", fix)


def _has_credentials(value: str) -> bool:
    """Whether a value holds an address with a user or a password."""
    for word in re.split(r"[\s,]+", value):
        with contextlib.suppress(ValueError):
            address = urlsplit(word if "//" in word else f"//{word}")
            if address.username is not None or address.password is not None:
                return True
    return False
