"""The wheel of this checkout, and an organisation's own repository whose tool is installed from it by digest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.core.yaml_io import dump
from roots import CHECKOUT

BIN = Path(sys.executable).parent
ACME: dict[str, Any] = {
    "schema_version": 1,
    "organization": "Acme & Söhne",
    "repository": "https://git.acme.test/ml/models",
    "domain": "models.acme.test",
    "owners": ["@acme/ml"],
    "registries": ["docker.io/vllm", "docker.io/kserve"],
    "storage": ["hf://", "gs://acme-models", "pvc://"],
    "environments": {
        "here": {"cluster": "local", "accelerators": ["cpu"], "hub": False, "store": "file:///mnt/models"},
        "staging": {
            "cluster": "gke",
            "domain": "staging.models.acme.test",
            "accelerators": ["nvidia-l4"],
            "price_lists": ["google-cloud"],
            "store": "gs://acme-models",
        },
    },
    "teams": {"search": {"cost_center": "cc-1001", "contact": "search@acme.test"}},
    "budgets": {"cc-1001": {"monthly_usd": "5000", "owner": "search"}},
}
"""The answers of an organisation that names everything otherwise."""


@dataclass(frozen=True)
class Adopter:
    """An organisation's repository, and the environment that holds the tool by her own pins."""

    root: Path
    bin: Path
    variables: Mapping[str, str]

    def run(self, *words: str | Path, within: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the tool in her repository."""
        command = [str(self.bin / "neuroscale"), *map(str, words)]
        return subprocess.run(
            command,
            cwd=self.root,
            env=dict(self.variables),
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )

    def git(self, *words: str) -> None:
        subprocess.run(
            ["git", *words], cwd=self.root, env=dict(self.variables), check=True, capture_output=True, timeout=60
        )

    def commit(self, branch: str) -> None:
        """Commit all files on a new branch."""
        self.git("switch", "--quiet", "--create", branch)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", branch)


def built_wheel(folder: Path, checkout: Path = CHECKOUT) -> Path:
    """Build a checkout's wheel, offline."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_by_digests(environment: Path, requirements: Path, wheel: Path) -> None:
    """Make an environment that holds what the requirements pin, as workflows do; the tool comes from the wheel."""
    uv, python = str(BIN / "uv"), str(environment / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True, timeout=300)
    sync = [uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", "--find-links", str(wheel.parent)]
    subprocess.run([*sync, str(requirements)], check=True, timeout=300)


def adopted(folder: Path, answers: Mapping[str, Any] = ACME) -> Adopter:
    """Make the repository by the command, commit it, and install the tool from what it pins."""
    wheel, root, environment = built_wheel(folder / "wheel"), folder / "acme", folder / "environment"
    (folder / "answers.yaml").write_text(dump(answers), encoding="utf-8")
    made = [str(BIN / "neuroscale"), "repository", "init", str(root), f"--answers={folder / 'answers.yaml'}"]
    for _ in range(2):  # a second time it writes nothing
        done = subprocess.run([*made, f"--wheel={wheel}"], check=True, capture_output=True, text=True, timeout=120)
    assert " 0 files written" in done.stdout
    install_by_digests(environment, root / "platform" / "requirements.txt", wheel)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_", "NEUROSCALE_TEST"))
    }
    variables = {
        **kept,
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        **{
            f"GIT_{who}_{what}": text
            for who in ("AUTHOR", "COMMITTER")
            for what, text in (("NAME", "Ada"), ("EMAIL", "ada@acme.test"))
        },
    }
    adopter = Adopter(root, environment / "bin", variables)
    adopter.git("init", "--quiet", "--initial-branch=main")
    adopter.git("add", "--all")
    adopter.git("commit", "--quiet", "--message=Our platform")
    return adopter
