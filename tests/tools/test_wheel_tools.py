"""The wheel's tools: set-up works without a checkout, shares the cache with checkouts, and the gate judges by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core import delivered, tool_cache
from wheel_lab import built_wheel

ROOT = delivered.FOLDER
SERVICE = ROOT / "src/neuroscale/repo/example/manifests/local/tiny-moe/inferenceservice.yaml"
PLACES = """
import json
from neuroscale.core import delivered, tool_cache
from neuroscale.tools.guidellm_environment import GuidellmEnvironment
from neuroscale.tools.model_server import ModelServer
server, cache = ModelServer.find(), tool_cache.cache_folder()
places = [tool_cache.tool(name).folder for name in tool_cache.TOOL_NAMES]
places += [tool_cache.schema_pins().folder, server.environment, server.models, GuidellmEnvironment.find().folder]
print(json.dumps([delivered.CHECKOUT is None, [str(place) for place in [*places, tool_cache.kept_uv(cache)]]]))
"""


@dataclass(frozen=True)
class Wheel:
    """An unpacked wheel: the packages that it needs are this environment's own."""

    site: Path
    folder: Path

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        settings = {**os.environ, "PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1", **variables}
        command = [sys.executable, "-P", *words]
        return subprocess.run(
            command, cwd=self.folder, env=settings, capture_output=True, text=True, timeout=120, check=False
        )

    def neuroscale(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "neuroscale", *words, **variables)

    def content(self) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in self.site.rglob("*")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(built_wheel(folder)).extractall(folder / "site")
    (folder / "empty").mkdir()
    return Wheel(folder / "site", folder / "empty")


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the gate's tools and the schemas, where the checkout has them."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("NEUROSCALE_CACHE", str(cache))
    for tool in map(tool_cache.tool, tool_cache.GATE_TOOLS):
        tool.folder.mkdir(parents=True)
        tool.binary.write_bytes(b"program")
        tool.binary.chmod(0o755)
        (tool.folder / tool_cache.STAMP).write_text(json.dumps({"size": 7}))
    schemas = tool_cache.schema_pins().folder
    schemas.mkdir(parents=True)
    (schemas / "kinds.json").write_text("[]")
    return cache


def test_the_wheel_and_the_checkout_name_the_same_places_in_the_cache(wheel: Wheel) -> None:
    of_wheel = json.loads(wheel.run("-c", PLACES).stdout)
    done = subprocess.run([sys.executable, "-P", "-c", PLACES], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert of_wheel[0]
    assert json.loads(done.stdout) == [False, of_wheel[1]]


def test_the_wheel_takes_the_tools_of_the_cache_as_they_are(wheel: Wheel, complete: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in complete.rglob("*")}
    package = wheel.content()
    done = wheel.neuroscale("tools", "install", "--for", "gate")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path: path.stat().st_mtime_ns for path in complete.rglob("*")} == before
    assert wheel.content() == package


def test_the_wheel_builds_what_is_missing_and_writes_below_the_cache_alone(wheel: Wheel, tmp_path: Path) -> None:
    cache, programs = tmp_path / "cache", tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text(
        '#!/bin/sh\ntest "$1" = version && exec echo go version go9.9.9\necho no network >&2\nexit 1\n'
    )
    (programs / "go").chmod(0o755)
    uv = tool_cache.kept_uv(cache)
    uv.parent.mkdir(parents=True)
    uv.touch()
    package = wheel.content()
    path = f"{programs}:{os.environ['PATH']}"
    done = wheel.neuroscale("tools", "install", "--bundle", "", NEUROSCALE_CACHE=str(cache), PATH=path)
    assert done.returncode == 1
    assert f"Building kubeconform {tool_cache.tool('kubeconform').module.version}" in done.stdout
    assert "no network" in done.stdout
    assert str(cache / "logs/kubeconform.log") in done.stdout
    assert wheel.content() == package
    assert list(wheel.folder.iterdir()) == []


@pytest.mark.parametrize("purpose", ["all", "portal", "other"])
def test_the_wheel_refuses_what_needs_a_checkout(wheel: Wheel, purpose: str) -> None:
    done = wheel.neuroscale("tools", "install", "--for", purpose)
    assert done.returncode == 2
    assert "Choose one of: gate, platform, bench." in done.stderr
    assert ("needs a checkout of the source" in done.stderr) == (purpose != "other")
    assert "Traceback" not in done.stderr


def test_a_missing_tool_names_the_wheels_own_command(wheel: Wheel, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    report = tmp_path / "verdict.json"
    words = ("gate", str(tmp_path / "a.yaml"), "--json", str(report))
    done = wheel.neuroscale(*words, NEUROSCALE_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 3
    assert "Run `neuroscale tools install --for gate`." in report.read_text()
    assert "make setup" not in report.read_text()


@pytest.mark.tools
def test_outside_every_repository_the_delivered_policies_judge_and_the_verdict_says_so(
    wheel: Wheel, tmp_path: Path
) -> None:
    text, verdicts = SERVICE.read_text(), list[dict[str, Any]]()
    for name, content in {
        "good": text,
        "bad": text.replace('"vllm/vllm-openai-cpu:', '"docker.io/somebody/vllm:'),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / SERVICE.name).write_text(content)
        report = tmp_path / f"{name}.json"
        done = wheel.neuroscale("gate", str(tmp_path / name), "--json", str(report))
        verdicts.append(json.loads(report.read_text()))
        assert done.returncode == verdicts[-1]["exit_status"]
    good, bad = verdicts
    assert (good["exit_status"], bad["exit_status"]) == (0, 1), good["headline"]
    assert "allowed-registries" in {finding["rule"] for finding in bad["findings"] if finding["severity"] == "error"}
    for verdict in verdicts:
        (note,) = [note for note in verdict["notes"] if "example organisation's settings" in note]
        assert "--repository" in note
