"""Provides the functions that the programs `before` and `after` of the lessons use.

A program writes files into a folder of its own, runs commands there, and claims what their output shows. It prints each
command as a person would type it, then its output and its exit status. It ends with 0 when every claim is true, with
REFUTED when one is false, and with 3 when a tool is missing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from neuroscale.core import delivered, schemas, tool_cache
from neuroscale.core.errors import ExitStatus, NeuroscaleError, UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.kube.apply import await_served
from neuroscale.kube.client import Cluster
from neuroscale.kube.ephemeral import EphemeralServer
from neuroscale.milestones.lessons import (
    EXAMPLE_VARIABLE,
    FALSE,
    HOLDS,
    REFUTED,
    REPOSITORY_VARIABLE,
    STATE_VARIABLE,
)
from neuroscale.repo.layout import LOCAL_STATE, SETTINGS

_EXAMPLE = "templates/examples/gemma-4-26b-a4b-qat.yaml"
_COPIED = ("platform", "policies", "templates")
_INFERENCE_SERVICES = "inferenceservices.serving.kserve.io"
_COMMAND_SECONDS = 150
_SERVES_WITHIN = 180.0  # seconds
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_TIMES = re.compile(r" +(?:\d+ min(?: \d+ s)?|\d+(?:\.\d+)? m?s)(?=  |$)", re.MULTILINE)
_SYMBOLS = ("✔", "✘", "⊘", "‼")
Section = Literal["Findings", "Notices", "Not checked", "checks"]


@dataclass(frozen=True)
class Done:
    """A command that ended: its exit status and its output, standard error after standard output."""

    status: int
    output: str

    def says(self, *texts: str) -> bool:
        """Whether the output contains all of these texts, wherever its lines break."""
        words = " ".join(self.output.split())
        return all(" ".join(text.split()) in words for text in texts)


class Program:
    """The scratch folder of a program, and the claims that it made so far.

    `own_repository`: the platform repository that the lessons are run for.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own_repository = Path(os.environ.get(REPOSITORY_VARIABLE) or delivered.FOLDER)
        self.kubeconfig: Path | None = None
        self.false_claims = 0
        self.claims = 0

    @functools.cached_property
    def repository(self) -> Path:
        """The example organisation's repository, which commands read: it has the names that lessons use, and the
        policies, template and facts of the catalog of the repository that the lessons are run for."""
        if made := os.environ.get(EXAMPLE_VARIABLE):
            return Path(made)
        # Only here: it takes a second.
        from neuroscale.rendering.example_files import example_folder

        example_folder(self.folder / ".example", self.own_repository)
        return self.folder / ".example"

    @property
    def platform_repository(self) -> Path:
        """The repository whose files the clusters get: the example's where the lessons run outside every repository."""
        return self.own_repository if (self.own_repository / SETTINGS).is_file() else self.repository

    def say(self, text: str) -> None:
        """Print a sentence of the program's own."""
        print(textwrap.fill(" ".join(text.split()), 118, break_on_hyphens=False), flush=True)

    def file(self, name: str, text: str, *, show: bool = True) -> Path:
        """Write a file, and print it as `cat` would; text may be indented as a whole."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        if show:
            self._print(f"$ cat {name}\n{path.read_text(encoding='utf-8')}")
        return path

    def claim(self, text: str, is_true: bool) -> None:
        """Claim that an output showed something; prints a false claim as such, and the program goes on."""
        self.claims += 1
        self.false_claims += not is_true
        self._print(f"{HOLDS if is_true else FALSE}{' '.join(text.split())}")

    def tool(self, name: tool_cache.ToolName, *arguments: str) -> Done:
        """Run an upstream tool. Raises UntrustedError if it is missing."""
        return self.command(name, [str(tool_cache.find(name)), *arguments], arguments)

    def shell(self, line: str, *programs: tool_cache.ToolName, user: int | None = None) -> Done:
        """Run a line of shell as people write it, with these upstream tools and kubectl on its path.

        `user`: the user to run it as, without groups; only root may set it.
        """
        folders = [str(tool_cache.find(name).parent) for name in programs]
        path = os.pathsep.join([*folders, str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return self.command(line, ["/bin/sh", "-c", line], (), {**self._environment, "PATH": path}, user=user)

    @contextlib.contextmanager
    def cluster(self, *, definitions: bool = False) -> Iterator[Cluster]:
        """A Kubernetes API server for kubectl and for this project's commands. `definitions`: with those of KServe.

        It has no controllers, so objects stay as they were applied. Raises UntrustedError if its programs are missing.
        """
        with EphemeralServer() as server:
            known = schemas.find().crds() if definitions else []
            wanted = [one for one in known if one["metadata"]["name"] == _INFERENCE_SERVICES]
            cluster = server.start(wanted)
            await_served(cluster, wanted, _SERVES_WITHIN)
            self.kubeconfig = server.kubeconfig
            yield cluster

    def platform(self) -> tuple[str, str]:
        """Use the cluster of the local platform that the runner names, or of the one that runs for this repository.

        Returns the name and the namespace of a service that is deployed there. Raises UntrustedError if no platform
        runs, and if the repository has no service for it.
        """
        # Only here: most programs need none of it, and it takes a second.
        from neuroscale.milestones.lesson_platform import local_service, running_cluster

        own = self.own_repository
        self.kubeconfig = running_cluster(Path(os.environ.get(STATE_VARIABLE) or own / LOCAL_STATE), own)
        return local_service(own)

    def live(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        """An object of the cluster, read without printing the command. Raises UntrustedError if it cannot be read."""
        argv = [str(Path(sys.executable).with_name("kubectl")), "get", kind, name, "-n", namespace, "-o", "json"]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env={**os.environ, **self._environment}
        )
        if done.returncode:
            raise UntrustedError(f"{kind} {namespace}/{name} cannot be read: {done.stderr.strip()}")
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def wait_for(self, kind: str, name: str, namespace: str, seconds: float = 180.0) -> None:
        """Wait until an object exists: a platform that has just started deploys services last.

        Raises UntrustedError if it does not exist in time.
        """
        for _ in attempts(seconds, pause=0.5):
            with contextlib.suppress(UntrustedError):
                self.live(kind, name, namespace)
                return
        self.live(kind, name, namespace)

    def kubectl(self, *arguments: str) -> Done:
        """Run kubectl, on the cluster if there is one. Raises UntrustedError if kubectl is missing."""
        binary = Path(sys.executable).with_name("kubectl")
        if not binary.exists():
            raise UntrustedError(f"{binary} is missing. Run `make setup`.")
        return self.command("kubectl", [str(binary), *arguments], arguments, self._environment)

    def neuroscale(self, *arguments: str, only: Sequence[str] = (), repository: Path | None = None) -> Done:
        """Run a command of this project in the example's repository, or in a copy of it.

        `only`: print only lines that contain one of these texts; Done.output has all lines.
        """
        where = ("--repository", str(repository or self.repository))
        argv = [sys.executable, "-m", "neuroscale", *arguments, *where]
        return self.command("neuroscale", argv, arguments, self._environment, only=only)

    def gate(
        self,
        *arguments: str,
        show: Sequence[Section] = ("Findings",),
        only: Sequence[str] = (),
        repository: Path | None = None,
    ) -> Done:
        """Run the gate and print these sections of its report and the verdict, or `only` lines as for `neuroscale`."""
        where = ("--repository", str(repository or self.repository))
        argv = [sys.executable, "-m", "neuroscale", "gate", *arguments, *where]
        return self.command(
            "neuroscale gate", argv, arguments, only=only, cut=lambda text: text if only else _sections(text, show)
        )

    def repository_copy(self) -> Path:
        """A copy of the files that the gate's judgement depends on: the policies, the catalog and the template."""
        copy = self.folder / "platform-repository"
        for name in _COPIED:
            shutil.copytree(self.repository / name, copy / name, ignore=shutil.ignore_patterns("local"))
        return copy

    def git(self, repository: Path, *arguments: str) -> None:
        """Run git in a copy of the repository, and print only the command."""
        identity = ("-c", "user.name=Milestone", "-c", "user.email=milestone@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(repository), *identity, *arguments], check=True, capture_output=True)
        self._print(f"$ git {shlex.join(arguments)}")

    def service(self, folder: str = "service", example: str = _EXAMPLE) -> str:
        """Render an example as the platform does; returns the name of its InferenceService, which the gate passes."""
        done = self.neuroscale("render", str(self.repository / example), "--out", folder)
        if done.status:
            raise UntrustedError(f"{example} cannot be rendered: {done.output.strip()}")
        return f"{folder}/inferenceservice.yaml"

    def schemas(self, *groups: str) -> str:
        """The value of kubeconform's -schema-location for these groups of kinds ("v1" is Kubernetes' core).

        Raises UntrustedError if set-up has not written the schemas.
        """
        known = schemas.find()
        (self.folder / "schemas").mkdir()
        for group in groups:
            (self.folder / "schemas" / group).symlink_to(known.folder / group)
        return f"schemas/{schemas.LAYOUT}"

    def replace(self, name: str, old: str, new: str, *, show: bool = True) -> None:
        """Change a file of the scratch folder, and print both texts; the file must contain `old` exactly once."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name} holds {old!r} {text.count(old)} times, and the program expects it once")
        path.write_text(text.replace(old, new), encoding="utf-8")
        if show:
            removed, added = (
                [f"{sign} {line}" for line in part.splitlines()] for sign, part in (("-", old), ("+", new))
            )
            self._print("\n".join([f"In {name}:", *removed, *added]))

    def read_json(self, done: Done) -> Any:
        """The JSON that a command printed."""
        return json.loads(done.output)

    @property
    def _environment(self) -> dict[str, str]:
        """Environment variables by which commands find the program's own cluster, and no other cluster."""
        return {"KUBECONFIG": str(self.kubeconfig or self.folder / "no-cluster")}

    def command(
        self,
        shown: str,
        argv: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        only: Sequence[str] = (),
        cut: Callable[[str], str] | None = None,
        user: int | None = None,
        seconds: float = _COMMAND_SECONDS,
    ) -> Done:
        """Run any program, and print it as `shown` and `arguments`; the other parameters as for the methods above.

        `cut`: makes what is printed of the output. The output is printed without the names of this machine's folders.
        """
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
            user=user,
            extra_groups=None if user is None else [],
        )
        text = done.stdout
        if cut is not None:
            text = cut(text)
        if only:
            text = "".join(f"{line}\n" for line in text.splitlines() if any(part in line for part in only))
        line = shlex.join(arguments).replace(f"{self.repository}/", "").replace(f"{self.folder}/", "")
        self._print("\n".join([f"$ {shown} {line}".rstrip(), text.strip("\n")]))
        self._print(f"exit status {done.returncode}")
        return Done(done.returncode, done.stdout)

    def _print(self, text: str) -> None:
        """Print text without the names of this machine's folders and ports."""
        for place in (self.repository, self.folder, delivered.FOLDER):
            text = text.replace(f"{place}/", "").replace(str(place), ".")
        text = _PORT.sub("127.0.0.1:PORT", text)
        print("\n".join(line.rstrip() for line in text.splitlines() if line.strip()), flush=True)


def run(program: Callable[[Program], None]) -> NoReturn:
    """Run the program in a folder of its own, and end with the exit status that follows from its claims."""
    try:
        with tempfile.TemporaryDirectory(prefix="neuroscale-milestone-") as folder:
            made = Program(Path(folder).resolve())
            program(made)
    except NeuroscaleError as error:
        print(error, flush=True)
        sys.exit(error.exit_status)
    if not made.claims:
        print("The program claims nothing.", flush=True)
        sys.exit(ExitStatus.UNUSABLE)
    sys.exit(REFUTED if made.false_claims else ExitStatus.PASSED)


def _sections(report: str, wanted: Sequence[Section]) -> str:
    """Some sections of the gate's report, without run times, and the verdict at its end.

    It has only the checks that did not pass: the number of tripwires of other checks changes with every new policy.
    """
    shown: list[str] = []
    section: str = "checks"
    for number, block in enumerate(report.strip("\n").split("\n\n")):
        first = block.splitlines()[0] if block else ""
        if number and first and not first.startswith(" "):
            section = "verdict" if first.startswith(_SYMBOLS) else first
        if section == "checks" and section in wanted:
            shown.append(_TIMES.sub("", _bad_checks(block)))
        elif section == "verdict" or section in wanted:
            shown.append(block)
    return "\n".join(shown)


def _bad_checks(block: str) -> str:
    """The checks that neither passed nor were skipped, with the lines that explain them."""
    shown: list[str] = []
    bad = False
    for line in block.splitlines():
        bad = bad if line.startswith(" ") else not line.startswith(("✔", "-"))
        if bad:
            shown.append(line)
    return "\n".join(shown)
