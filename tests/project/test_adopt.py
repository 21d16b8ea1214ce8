"""An organisation's own repository by docs/adopt.md: each of the page's commands, and what a colleague cannot merge.

All of it runs where the tool's wheel alone is installed, without this checkout on any path and without a network.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from neuroscale import __version__
from neuroscale.actions.new_repository import write_repository
from neuroscale.core.tool_cache import cache_folder
from neuroscale.rendering.new_repository import read_new_repository
from pin_lab import NEW_FIELD, NEWER, newer_checkout
from price_exports import google
from publisher import Publisher
from roots import CHECKOUT
from wheel_lab import built_wheel, install_by_digests

pytestmark = [pytest.mark.tools, pytest.mark.slow]

PAGE = (CHECKOUT / "docs/adopt.md").read_text(encoding="utf-8")
_FENCE = re.compile(
    r"(?:<!-- (?P<what>file|in): (?P<path>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_OF_THE_TOOL = re.compile(r"make setup|\.venv/bin|src/neuroscale|scripts/|pytest|Traceback")
UV = Path(sys.executable).parent / "uv"


@dataclass(frozen=True)
class Company:
    """An environment with the wheel alone, and a folder to work in. `followed`: each command of the page that ran,
    with its output."""

    root: Path
    followed: dict[str, str] = field(default_factory=dict)

    @property
    def desk(self) -> Path:
        return self.root / "desk"

    @property
    def repository(self) -> Path:
        return self.desk / "acme-models"

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell with a home, a tool cache and proxies of its own: nobody answers at the proxies."""
        nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
        variables = {"HOME": str(self.root / "home"), "LANG": "C.UTF-8", "COLUMNS": "160", "HF_HUB_OFFLINE": "1"}
        variables |= {"PATH": f"{self.root / 'environment/bin'}:/usr/local/bin:/usr/bin:/bin", **nowhere}
        variables |= {"NEUROSCALE_CACHE": str(self.root / "cache")}
        # The packages of the next version come from what uv kept of them.
        kept = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
        variables |= {"UV_CACHE_DIR": kept, "UV_OFFLINE": "1", "UV_FIND_LINKS": str(self.root / "wheels")}
        return subprocess.run(
            command, shell=True, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False
        )

    def ok(self, command: str, folder: Path) -> str:
        done = self.run(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def follow(company: Company) -> None:
    """Do what the page says, in its order: write its files, change its lines, run its commands."""
    folder = company.desk
    for part in _FENCE.finditer(PAGE):
        text = part["text"]
        if part["what"] == "file":
            (folder / part["path"]).write_text(text, encoding="utf-8")
        elif part["what"] == "in":
            change_lines(folder / part["path"], text)
        elif part["language"] == "console":
            for line in text.splitlines():
                assert line.startswith("$ "), line
                command = line.removeprefix("$ ")
                if command.startswith("cd "):
                    folder /= command.removeprefix("cd ")
                    continue
                company.followed[command] = company.ok(command, folder)


def change_lines(path: Path, difference: str) -> None:
    """Put each line that begins with `+` in the place of the one before it, which begins with `-`."""
    text = path.read_text(encoding="utf-8")
    changes = re.findall(r"^-(.*\n)[+](.*\n)", difference, re.MULTILINE)
    assert "".join(f"-{old}+{new}" for old, new in changes) == difference
    for old, new in changes:
        assert f"\n{old}" in text, f"{path} has no line {old!r}"
        # The environment `lab` stands behind `local`, which has such a line too.
        at = text.index(f"\n{old}", text.index("\n  lab:\n") if "price_lists" in old else 0) + 1
        text = f"{text[:at]}{new}{text[at + len(old) :]}"
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    """The company once it has done what the page says."""
    made = Company(tmp_path_factory.mktemp("company"))
    for folder in (made.desk, made.root / "home", made.root / "cache"):
        folder.mkdir()
    for name in ("tools", "schemas", "uv"):
        (made.root / "cache" / name).symlink_to(cache_folder() / name)
    wheel = built_wheel(made.desk)
    release(made, wheel)
    install(made, wheel)
    (made.root / "home/.gitconfig").write_text("[user]\nname = Ada\nemail = ada@acme.example\n")
    (made.desk / "google-skus.json").write_text(json.dumps(google()))
    follow(made)
    return made


def release(company: Company, wheel: Path) -> None:
    """Release the wheel and a next version, which knows another field of the catalog, and changes a policy."""
    edits = {**NEW_FIELD, "policies/non-root/policy.yaml": lambda text: f"{text}# Newer.\n"}
    newer = built_wheel(company.root / "wheels", newer_checkout(company.root / "newer", edits))
    shutil.rmtree(company.root / "newer")
    digests = {
        version: hashlib.sha256(path.read_bytes()).hexdigest()
        for version, path in ((__version__, wheel), (NEWER, newer))
    }
    changes = {NEWER: "### Added\n- Accelerators may name their shelf.\n"}
    (company.desk / "releases.json").write_text(Publisher().releases(digests, changes), encoding="utf-8")


def install(company: Company, wheel: Path) -> None:
    """Install what the repository of the page's answers requires, by its digests, as its workflows do."""
    answers = next(part["text"] for part in _FENCE.finditer(PAGE) if part["path"] == "answers.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROSCALE_CACHE", str(company.root / "cache"))
        write_repository(company.root / "first", read_new_repository(answers, "docs/adopt.md"), wheel)
    install_by_digests(company.root / "environment", company.root / "first/platform/requirements.txt", wheel)


def test_the_wheel_is_all_that_runs(company: Company) -> None:
    code = "import sys; from neuroscale.core import delivered; print(delivered.CHECKOUT, delivered.FOLDER, *sys.path)"
    printed = company.ok(f"python -c {shlex.quote(code)}", company.desk)
    assert printed.startswith(f"None {company.root}")
    assert str(CHECKOUT) not in printed


def test_each_command_of_the_page_does_what_the_page_says(company: Company) -> None:
    outputs = company.followed
    judged = [printed for command, printed in outputs.items() if command.startswith("neuroscale gate")]
    assert len(judged) == 4
    for printed in judged:
        assert "Passed" in printed
    first, own, tickets, _ = judged
    assert "lab/support-chat  added  fits" in first
    assert "Tests of the changed policies" in own
    assert "registries: not there → registry.acme.example/mirror" in own
    assert "lab/tickets  added  fits" in tickets
    assert "acme/tickets-7b" in tickets
    assert "acme" in tickets
    service = company.ok("git show tickets:manifests/lab/tickets/inferenceservice.yaml", company.repository)
    assert "pvc://acme-models/tickets-7b/2026-11" in service
    assert (
        "registry.acme.example/mirror" in (company.repository / "policies/allowed-registries/policy.yaml").read_text()
    )


def test_the_next_version_is_taken_by_the_pages_commands(company: Company) -> None:
    upgrade = next(printed for command, printed in company.followed.items() if command.endswith("--head upgrade"))
    assert f"Judged by neuroscale {__version__}, the base's pin, and by {NEWER}, the change's." in upgrade
    status = next(printed for command, printed in company.followed.items() if "repository status" in command)
    assert "Accelerators may name their shelf." in status
    files = company.ok("git diff --name-only main upgrade", company.repository).splitlines()
    assert {"platform/neuroscale.yaml", "platform/requirements.txt", "policies/non-root/policy.yaml"} <= set(files)
    assert not [path for path in files if path.startswith(("manifests/", "platform/settings.yaml"))]


def test_init_writes_nothing_again_and_the_repository_holds_a_few_hundred_files(company: Company) -> None:
    again = company.ok(
        "neuroscale repository init ../first --answers answers.yaml --wheel neuroscale-*.whl", company.desk
    )
    assert again.startswith("../first: 0 files written, ")
    files = company.ok("git ls-files", company.repository).splitlines()
    assert 300 < len(files) < 450


def test_no_output_names_a_path_or_a_command_of_the_tools_own_repository(company: Company) -> None:
    for command, printed in company.followed.items():
        if command.endswith("--patterns"):
            assert "platform/settings.yaml;" in printed
            continue
        assert not _OF_THE_TOOL.search(printed), command
        assert str(CHECKOUT) not in printed, command


TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
SERVICE = "manifests/lab/support-chat/inferenceservice.yaml"
REQUEST = "manifests/lab/support-chat/request.yaml"
SETTINGS = "platform/settings.yaml"


@dataclass(frozen=True)
class Colleague:
    """A clone in which somebody works on a branch."""

    company: Company
    root: Path

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text, f"{path} has no {old!r}"
        (self.root / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    def ask(self, **answers: Any) -> None:
        """Write the folder of a new service with the tool."""
        request = (self.company.desk / "tickets.yaml").read_text()
        values = dict(re.findall(r"^(\w+): (.*)$", request, re.MULTILINE)) | {
            name: json.dumps(value) for name, value in answers.items()
        }
        text = "".join(f"{name}: {value}\n" for name, value in values.items())
        (self.root.parent / "request.yaml").write_text(text)
        self.company.ok("neuroscale new --answers ../request.yaml", self.root)


def token_in_the_clear(colleague: Colleague) -> None:
    entry = f'      env:\n        - name: HF_TOKEN\n          value: "{TOKEN}"\n'
    colleague.replace(SERVICE, "      env:\n", entry)


def image_from_elsewhere(colleague: Colleague) -> None:
    colleague.replace(SERVICE, 'image: "vllm/', 'image: "quay.io/somebody/')


def edited_service(colleague: Colleague) -> None:
    colleague.replace(SERVICE, "maxReplicas: 1", "maxReplicas: 2")


def edited_platform(colleague: Colleague) -> None:
    colleague.replace("platform/tenancy/search/quota.yaml", 'requests.cpu: "256"', 'requests.cpu: "9999"')


def widened_without_rendering(colleague: Colleague) -> None:
    colleague.replace(SETTINGS, "[docker.io/vllm, ", "[docker.io/vllm, quay.io, ")


def unknown_team(colleague: Colleague) -> None:
    colleague.replace(REQUEST, "team: ", "team: marketing # ")


def without_a_price(colleague: Colleague) -> None:
    colleague.ask(service="spare", team="search", model="google/gemma-4-26B-A4B-it-qat-w4a16-ct")
    end = (date.today() + timedelta(days=30)).isoformat()
    override = {"field": "accelerator", "value": "nvidia-rtx-a6000", "reason": "The lab has one.", "expires": end}
    colleague.replace("manifests/lab/spare/request.yaml", "overrides: []", f"overrides: {json.dumps([override])}")
    colleague.company.ok("neuroscale replan lab/spare", colleague.root)


def over_budget(colleague: Colleague) -> None:
    colleague.ask(service="everybody", concurrent_users=400)


MISTAKES: tuple[tuple[Callable[[Colleague], None], str], ...] = (
    (token_in_the_clear, "a secret does not come from a secretKeyRef"),
    (image_from_elsewhere, "is not from an allowed registry"),
    (edited_service, "+    maxReplicas: 2"),
    (edited_platform, "platform/tenancy/search/quota.yaml"),
    (widened_without_rendering, "policies/allowed-registries/policy.yaml"),
    (unknown_team, "team 'marketing' is not a team of the catalog"),
    (without_a_price, "nvidia-rtx-a6000"),
    (over_budget, "the services of cc-1002 would cost"),
)
"""In the order of the page's table: what a colleague does, and words of the finding."""
RULES = re.findall(r"^\| .* \| `([a-z]+/[a-z-]+)` \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def demanding(company: Company) -> Path:
    """A clone of the company's repository whose main demands prices, and offers an accelerator that has none."""
    root = company.root / "demanding"
    company.ok(f"git clone --quiet --branch main {company.repository} {root}", company.root)
    colleague = Colleague(company, root)
    colleague.replace(SETTINGS, "without_price: warn", "without_price: block")
    colleague.replace(SETTINGS, "[nvidia-l40s, nvidia-a40]", "[nvidia-l40s, nvidia-a40, nvidia-rtx-a6000]")
    company.ok("neuroscale platform render && git commit --quiet --all --message 'Demand prices'", root)
    return root


@pytest.mark.parametrize(
    ("make", "words", "rule"),
    [pytest.param(*mistake, rule, id=mistake[0].__name__) for mistake, rule in zip(MISTAKES, RULES, strict=True)],
)
def test_the_gate_refuses_a_colleagues_mistake_in_every_report(
    company: Company, demanding: Path, tmp_path: Path, make: Callable[[Colleague], None], words: str, rule: str
) -> None:
    root = tmp_path / "clone"
    company.ok(f"git clone --quiet --branch main {demanding} {root}", company.root)
    company.ok("git switch --quiet --create change", root)
    make(Colleague(company, root))
    company.ok("git add . && git commit --quiet --message Change", root)
    reports = "--json ../verdict.json --junit ../verdict.xml --markdown ../verdict.md"
    done = company.run(f"neuroscale gate --base main --head change {reports}", root)
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    written = [(tmp_path / f"verdict.{end}").read_text() for end in ("json", "xml", "md")]
    errors = [finding for finding in json.loads(written[0])["findings"] if finding["severity"] == "error"]
    assert [
        finding for finding in errors if f"{finding['gate']}/{finding['rule']}" == rule and words in str(finding)
    ], errors
    for report in (printed, *written):
        assert TOKEN not in report
        assert not _OF_THE_TOOL.search(report)
