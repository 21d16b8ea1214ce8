"""Makes a copy of the checkout as another organisation has it: with its own environments, teams and cost centres."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.repo.example_repository import ExampleSnapshot
from neuroscale.repo.layout import BUDGETS, MANIFESTS, SETTINGS, TEAMS
from neuroscale.repo.services import services_of
from neuroscale.repo.snapshot import FolderSnapshot
from repositories import Repository
from roots import files_of

_FIELDS = "name|team|owner|cost_center|namespace|environment|approved_by|subject"
"""Fields of teams, budgets, exceptions, answers and requests that hold one of the names."""
_SET_UP = (".venv", "tests/node/node_modules")
"""What `make setup` installs in a checkout: the copy shares it."""


def renamed_copy(checkout: Path, root: Path) -> Repository:
    """A repository at `root` with the checkout's files in one commit, and behind it one that gives all names anew."""
    made = Repository(root)
    for path in files_of(checkout):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout / path, root / path)
    made.commit({}, "As it came")
    rename_all(root)
    made.commit({}, "Give environments, teams and cost centres other names")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("".join(f"/{path}\n" for path in _SET_UP), encoding="utf-8")
    for path in _SET_UP:
        if (checkout / path).exists():
            (root / path).symlink_to(checkout / path)
    return made


def rename_all(root: Path) -> dict[str, str]:
    """Give every environment, team and cost centre of a repository another name, as README.md tells an organisation to:
    in its own files by hand, and then with the commands that render all others. Returns the new names by the old ones.
    """
    snapshot = FolderSnapshot(root)
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    centres = sorted({team.cost_center for team in catalog.teams.values()} | _stems(root / BUDGETS))
    spaces = sorted({team.namespace for team in catalog.teams.values()} - set(catalog.teams))
    names = {
        **{old: f"account-{number}" for number, old in enumerate(centres)},
        **{old: f"space-{number}" for number, old in enumerate(spaces)},
        **{old: f"crew-{number}" for number, old in enumerate(sorted(catalog.teams))},
        **{old: f"site-{number}" for number, old in enumerate(sorted(settings.environments))},
    }
    services = services_of(snapshot)
    for path in (path for path in files_of(root) if ExampleSnapshot.is_own(path) and path.endswith(".yaml")):
        text = (root / path).read_text(encoding="utf-8")
        changed = _settings(text, names) if path == SETTINGS else _fields(text, names)
        file, folder = root / path, Path(path).parent.as_posix()
        file.write_text(changed, encoding="utf-8")
        if folder in (TEAMS, BUDGETS):
            file.rename(file.with_stem(names[file.stem]))
    for environment in settings.environments:
        if (root / MANIFESTS / environment).is_dir():
            (root / MANIFESTS / environment).rename(root / MANIFESTS / names[environment])
    again = [("replan", f"{names[service.environment]}/{service.service}") for service in services]
    for command in (("catalog", "form"), ("platform", "render"), *again):
        done = run(root, *command)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return names


def _stems(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.yaml")}


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `neuroscale` of the repository at `root` in it."""
    command = [sys.executable, "-P", "-m", "neuroscale", *arguments]
    return subprocess.run(command, cwd=root, env=environment_of(root), capture_output=True, text=True, timeout=600)


def environment_of(root: Path) -> dict[str, str]:
    """The variables for a program of that repository: without those of the test run that starts it."""
    ours = ("PYTEST_", "NEUROSCALE_TEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
        "PYTHONPATH": str(root / "src")
    }


def _fields(text: str, names: Mapping[str, str]) -> str:
    pattern = rf"^((?:{_FIELDS}): )(\S+)$"
    return re.sub(pattern, lambda found: found[1] + names.get(found[2], found[2]), text, flags=re.MULTILINE)


def _settings(text: str, names: Mapping[str, str]) -> str:
    """The settings with other environments: their sections, and the list of those for production."""
    before, heading, sections = text.partition("\nenvironments:\n")
    before = re.sub(
        r"(?<=^  environments: \[)[^]]*",
        lambda found: ", ".join(names[name] for name in found[0].split(", ") if name),
        before,
        flags=re.MULTILINE,
    )
    before = before.replace("@example/", "@another/")
    before = re.sub(r"(?<=^  url: )\S+", '"https://github.com/another/platform"', before, flags=re.MULTILINE)
    sections = re.sub(r"^  ([a-z0-9-]+):$", lambda found: f"  {names[found[1]]}:", sections, flags=re.MULTILINE)
    return before + heading + sections
