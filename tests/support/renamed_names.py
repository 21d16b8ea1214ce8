"""Makes a copy of the checkout as another organisation has it, with other environments, teams and cost centres."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.rendering.platform.files import render_repository, write
from neuroscale.repo.layout import BUDGETS, EXAMPLES, MANIFESTS, SETTINGS, TEAMS
from neuroscale.repo.snapshot import FolderSnapshot
from repositories import Repository

_FIELDS = re.compile(r"^((?:name|team|owner|cost_center|namespace|environment): )(\S+)$", re.MULTILINE)


def renamed_copy(checkout: Path, root: Path) -> Repository:
    """A repository at `root` with the checkout's files and other names, in one commit; the form keeps its lists."""
    made = Repository(root)
    listed = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if (checkout / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / name, root / name)
    _rename_all(root)
    made.commit({})
    return made


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `neuroscale` of the repository at `root` in it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "neuroscale", *arguments],
        cwd=root,
        env={**environment, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def _rename_all(root: Path) -> None:
    snapshot = FolderSnapshot(root)
    teams, settings = load_catalog(snapshot).teams, load_settings(snapshot)
    centres = {path.stem for path in (root / BUDGETS).glob("*.yaml")} | {team.cost_center for team in teams.values()}
    names = {
        **{old: f"account-{number}" for number, old in enumerate(sorted(centres))},
        **{team.namespace: f"space-{number}" for number, team in enumerate(teams.values())},
        **{old: f"crew-{number}" for number, old in enumerate(sorted(teams))},
        **{old: f"site-{number}" for number, old in enumerate(sorted(settings.environments))},
    }
    for entry in FolderSnapshot(root).entries(TEAMS, BUDGETS, EXAMPLES, MANIFESTS):
        file = root / entry.path
        if file.suffix == ".yaml":
            text = file.read_text(encoding="utf-8")
            file.write_text(_FIELDS.sub(lambda found: found[1] + names.get(found[2], found[2]), text), "utf-8")
            if entry.path.startswith((TEAMS, BUDGETS)):
                file.rename(file.with_stem(names[file.stem]))
    for environment in settings.environments:
        if (root / MANIFESTS / environment).is_dir():
            (root / MANIFESTS / environment).rename(root / MANIFESTS / names[environment])
    rules, heading, environments = (root / SETTINGS).read_text(encoding="utf-8").partition("\nenvironments:\n")
    production = re.sub(r"(?<=^  environments: \[)\w+", lambda found: names[found[0]], rules, flags=re.MULTILINE)
    named = re.sub(r"^  ([a-z0-9-]+):$", lambda found: f"  {names[found[1]]}:", environments, flags=re.MULTILINE)
    (root / SETTINGS).write_text(production + heading + named, encoding="utf-8")
    snapshot = FolderSnapshot(root)
    write(root, snapshot, render_repository(snapshot))
    for folder in (root / MANIFESTS).glob("*/*/"):
        done = run(root, "replan", f"{folder.parent.name}/{folder.name}")
        assert done.returncode == 0, done.stdout + done.stderr
