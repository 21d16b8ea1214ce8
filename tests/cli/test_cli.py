"""The command line as people and programs use it: what is written, what is said, and the exit status."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import commands
from examples import examples
from neuroscale.cli.new import new_service
from neuroscale.cli.options import write_whole
from neuroscale.core.errors import InputError
from neuroscale.rendering.scaffolder.form import FORM_FIELDS, REQUIRED_FIELDS
from neuroscale.rendering.service_folder import RENDERED_FILES
from plan_factory import ANSWERS
from roots import ROOT

pytestmark = pytest.mark.slow

OVERRIDE = {"reason": "Tested.", "expires": "2099-12-31"}


def copy_platform(root: Path) -> Path:
    """A platform repository without services, at `root`."""
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copyfile(ROOT / "platform/settings.yaml", root / "platform/settings.yaml")
    return root


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = copy_platform(tmp_path / "platform-repository")
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "100")
    return root


def answers(folder: Path, content: Any = None, **changes: Any) -> Path:
    """A file of answers: those given, or the usual ones with changes."""
    path = folder / "answers.yaml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(json.dumps(content if content is not None else {**ANSWERS, **changes}, indent=1))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch)


def files(root: Path) -> dict[str, bytes]:
    """Every file below manifests/."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "manifests").rglob("*"))
        if path.is_file()
    }


# new


def test_new_writes_the_service_once_and_says_the_same_the_second_time(platform: Path, run: Any) -> None:
    said = run("new", "--answers", answers(platform))
    assert said.status == 0
    written = files(platform)
    assert sorted(written) == [f"manifests/dev/support-chat/{name}" for name in sorted(RENDERED_FILES)]
    assert all(path in said.out for path in written)
    times = {path: (platform / path).stat().st_mtime_ns for path in written}
    assert run("new", "--answers", answers(platform)).out == said.out
    assert {path: (platform / path).stat().st_mtime_ns for path in written} == times


def test_new_does_not_replace_a_service_with_other_answers(platform: Path, run: Any) -> None:
    run("new", "--answers", answers(platform))
    written = files(platform)
    said = run("new", "--answers", answers(platform, concurrent_users=5))
    assert said.status == 2
    assert "holds other answers" in said.err
    assert "neuroscale replan manifests/dev/support-chat" in said.err
    assert files(platform) == written


def test_a_refused_plan_writes_nothing_and_shows_its_numbers_and_what_works(platform: Path, run: Any) -> None:
    said = run("new", "--answers", answers(platform, model="google/gemma-4-31B-it", environment="local"))
    assert said.status == 1
    for words in ("dev/", "refused", "GiB too much", "Choose the environment 'dev'", "Nothing was written"):
        assert words in said.out.replace("local/", "dev/", 1)
    busy = {"longest_prompt_tokens": 8192, "concurrent_users": 64, "p95_ttft_seconds": 0.2}
    late = run("new", "--answers", answers(platform, model="google/gemma-4-31B-it", **busy))
    assert late.status == 1
    assert "Side by side: what works for these answers, cheapest first" in late.out
    assert not (platform / "manifests").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds 0 YAML documents"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not UTF-8 text"),
        ("h\xe4".encode("utf-16"), "is not UTF-8 text"),
        (b"\xef\xbb\xbfservice: x\n", "byte order mark"),
        (b"service: \x00\n", "NUL byte"),
        (b"- a\n- b\n", "is not a mapping"),
        (b"service: [\n", "not valid YAML"),
        (b"service: a\nservice: b\n", "stands twice"),
        (b"a: &a [x]\nb: *a\n", "anchor or alias"),
        (b"service: !!python/object:os.system x\n", "carries the tag"),
        (b"service: " + b"[" * 5000, "nested too deeply"),
        (b"service: " + b"a" * 2_000_000, "is larger than 1048576 bytes"),
        ([1], "is not a mapping"),
    ],
)
def test_a_file_that_holds_no_answers_is_named(platform: Path, run: Any, content: Any, words: str) -> None:
    path = answers(platform, content)
    said = run("new", "--answers", path)
    assert (said.status, said.out) == (2, "")
    assert str(path) in said.err
    assert words in said.err
    assert not (platform / "manifests").exists()


def test_a_report_goes_into_a_pipe_or_a_device_and_never_replaces_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "verdict")
        assert os.read(reader, 100) == b"verdict"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_what_is_no_file_is_named(platform: Path, run: Any) -> None:
    for path, words in (
        (platform, "is a folder"),
        (platform / "none", "No such file"),
        ("/dev/zero", "is larger than"),
    ):
        said = run("new", "--answers", path)
        assert said.status == 2
        assert f"{path}: " in said.err
        assert words in said.err


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("service", "Bad_Name", "lower-case letters"),
        ("service", ["a"], "is a list or a mapping"),
        ("model", "google/gemma-4-E2B", "Did you mean 'google/gemma-4-E2B-it'?"),
        ("model", "E2B", "Did you mean 'google/gemma-4-E2B-it'?"),
        ("team", 3, "quote it"),
        ("environment", "staging", "Valid: dev, local, prod"),
        ("concurrent_users", "4", "Write a whole number from 1 to 4096"),
        ("longest_prompt_tokens", 0, "from 1 to 1048576"),
        ("longest_answer_tokens", 0.5, "from 1 to 131072"),
        ("p95_ttft_seconds", True, "Write seconds from 0.01 to 120"),
        ("availability", "ultra", "Write standard or high"),
        ("gpus", 8, "is not a field of the form"),
        ("overrides", [], "is not a field of the form"),
    ],
)
def test_a_wrong_answer_is_told_with_file_line_field_and_what_to_write(
    platform: Path, run: Any, field: str, value: Any, words: str
) -> None:
    path = answers(platform, **{field: value})
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if f'"{field}"' in text)
    said = run("new", "--answers", path)
    assert said.status == 2
    # A list stands on the lines below its key.
    assert f"{path}:{line}: {field}: " in said.err
    assert words in said.err
    assert not (platform / "manifests").exists()


def test_a_missing_answer_is_named(platform: Path, run: Any) -> None:
    said = run("new", "--answers", answers(platform, {"service": "x"}))
    assert said.status == 2
    for field in REQUIRED_FIELDS[1:]:
        assert f"{field}: is missing" in said.err


def test_a_thousand_wrong_fields_do_not_flood_the_terminal(platform: Path, run: Any) -> None:
    said = run("new", "--answers", answers(platform, {f"k{number}": 1 for number in range(1000)}))
    assert said.status == 2
    assert len(said.err.splitlines()) == 51
    assert said.err.endswith("and 959 more\n")


def test_new_wants_one_source_of_answers(platform: Path, run: Any) -> None:
    assert run("new").status == 2
    assert run("new", "--interactive", "--answers", answers(platform)).status == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=3,
)
near_misses = st.sampled_from(
    [
        "a\n---\nkind: Secret",
        "{{ .Values }}",
        "$(id)",
        "../../x",
        "a: b",
        "yes",
        "0x1",
        "1e3",
        "a\u2028b",
        "a" * 300,
        "-",
    ]
)


@pytest.fixture(scope="module")
def platform_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_platform(tmp_path_factory.mktemp("shared"))


@settings(max_examples=examples(60), deadline=None)
@given(field=st.sampled_from(FORM_FIELDS), value=json_values | near_misses | st.text(max_size=60))
def test_any_value_in_any_field_gives_a_service_or_a_message_that_names_the_field(
    platform_copy: Path, field: str, value: Any
) -> None:
    manifests = platform_copy / "manifests"
    shutil.rmtree(manifests, ignore_errors=True)
    path = platform_copy / "answers.yaml"
    path.write_text(json.dumps({**ANSWERS, field: value}))
    error: InputError | None = None
    try:
        status = new_service(path, platform_copy, interactive=False)
    except InputError as raised:
        error, status = raised, int(raised.exit_status)
    assert status in (0, 1, 2)
    if error is not None:
        assert str(path) in str(error)
        # YAML's own rules speak first where JSON writes what YAML does not have (NaN, huge numbers, half characters).
        assert any(problem.field.startswith(field) for problem in error.problems) or "YAML" in str(error)
    if status == 0:
        (folder,) = {file.parent for file in manifests.rglob("*.yaml")}
        assert sorted(file.name for file in folder.iterdir()) == sorted(RENDERED_FILES)
        assert yaml.safe_load((folder / "request.yaml").read_text()).get(field) == value
    else:
        assert not manifests.exists()


# new --interactive, through a terminal


class Terminal:
    """A command in a pseudo-terminal: answers are typed when it asks."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said = ""
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(sys.executable, [sys.executable, "-P", "-m", "neuroscale", *arguments])

    def _read(self, within: float = 30) -> bool:
        ready, _, _ = select.select([self.handle], [], [], within)
        try:
            data = os.read(self.handle, 65_536) if ready else b""
        except OSError:
            data = b""
        self.said += data.decode(errors="replace").replace("\r", "")
        return bool(data)

    def answer(self, prompt: str, text: str) -> None:
        start = len(self.said)
        # The space behind a prompt comes when the line editor reads; what is typed before may be lost.
        asks = re.compile(rf"(  {prompt}|\]):(\x1b\[[?0-9]*[a-z])* $")
        while not asks.search(self.said, start):
            if not self._read():
                raise AssertionError(self.said)
        os.write(self.handle, text.encode())

    def end(self, key: str = "") -> int:
        """How it ended. `key`: pressed again while nothing happens.

        A line editor misses an interrupt in the moment before it waits for keys.
        """
        ended, status, deadline = 0, 0, time.monotonic() + 60
        while not ended:
            while self._read(10):
                pass
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if not ended and time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"it did not end:\n{self.said}")
            if not ended:
                time.sleep(0.1)
                with contextlib.suppress(OSError):
                    os.write(self.handle, key.encode())
        os.close(self.handle)
        assert "Traceback" not in self.said
        return os.waitstatus_to_exitcode(status)


def test_the_form_is_filled_in_at_a_terminal_and_asks_again_after_a_wrong_answer(platform: Path) -> None:
    terminal = Terminal(platform, "new", "--interactive")
    for name, text in (
        ("service", "Chat!\n"),
        ("service", "chat\n"),
        ("model", "gemma-4-E2B\n"),
        ("model", "google/gemma-4-E2B-it\n"),
        ("team", "team-alpha\n"),
        ("environment", "prod\n"),
        ("concurrent_users", "many\n"),
        ("concurrent_users", "4.5\n"),
        ("concurrent_users", "0\n"),
        ("concurrent_users", "\n"),
        ("longest_prompt_tokens", "2048\n"),
        ("longest_answer_tokens", "\n"),
        ("typical_prompt_tokens", "4096\n"),
        ("typical_prompt_tokens", "700\n"),
        ("typical_answer_tokens", "\n"),
        ("p95_ttft_seconds", "nan\n"),
        ("p95_ttft_seconds", "0.5\n"),
        ("tokens_per_second_per_user", "fast\n"),
        ("tokens_per_second_per_user", "12\n"),
        ("availability", "\n"),
    ):
        terminal.answer(name, text)
    assert terminal.end() == 0, terminal.said
    assert "Write 1 to 40 lower-case letters" in terminal.said
    assert "'many' is wrong" in terminal.said
    request = yaml.safe_load((platform / "manifests/prod/chat/request.yaml").read_text())
    assert "a typical prompt of 4096 tokens is longer than the longest, which has 2048" in terminal.said
    assert (request["typical_prompt_tokens"], "typical_answer_tokens" in request) == (700, False)
    assert (request["concurrent_users"], request["p95_ttft_seconds"]) == (8, 0.5)
    assert request["tokens_per_second_per_user"] == 12
    # The environment's own default, and not the form's.
    assert request["availability"] == "high"


@pytest.mark.parametrize(("key", "status"), [("\x03", 130), ("\x04", 2)])
def test_leaving_the_form_writes_nothing(platform: Path, key: str, status: int) -> None:
    terminal = Terminal(platform, "new", "--interactive")
    terminal.answer("service", "chat\n")
    terminal.answer("model", key)
    assert terminal.end(key) == status, terminal.said
    assert not (platform / "manifests").exists()


# plan


def test_the_plan_as_json_holds_what_the_contract_names(platform: Path, run: Any) -> None:
    said = run("plan", answers(platform), "--json")
    plan = json.loads(said.out)
    assert said.status == 0
    shape = {
        "schema_version": int,
        "verdict": str,
        "accelerator": str,
        "accelerator_count": int,
        "tensor_parallel_size": int,
        "replicas": {"min": int, "max": int},
        "memory_gib": dict.fromkeys(("weights", "kv_cache", "overhead", "usable", "free"), float),
        "architecture": {
            "kind": str,
            "total_params": int,
            "active_params": int,
            "active_params_without_embedding": int,
            "active_ratio": float,
        },
        "vllm_args": list,
        "startup": {"expected_seconds": int, "probe_budget_seconds": int},
        # Decimals are text: a binary floating-point number is no amount.
        "cost": {"hourly": str, "monthly_min": str, "monthly_max": str},
        "confidence": str,
        "reasons": list,
    }
    for name, kind in shape.items():
        if isinstance(kind, dict):
            assert {field: type(plan[name][field]) for field in kind} == kind
        else:
            assert type(plan[name]) is kind, name
    assert plan["verdict"] in ("fits", "tight", "refused")


def test_a_refused_plan_is_exit_status_1_and_json_all_the_same(platform: Path, run: Any) -> None:
    said = run("plan", answers(platform, environment="local"), "--json")
    assert said.status == 1
    assert json.loads(said.out)["verdict"] == "refused"


def test_a_wrong_override_is_told_with_its_line(platform: Path, run: Any) -> None:
    for value, field, words in (
        ("nvidia-l5", "accelerator", "Did you mean 'nvidia-l4'?"),
        (["nvidia-l4"], "accelerator", "does not suit accelerator"),
        (0, "replicas.min", "scale to zero is not offered"),
        ("x", "max_num_seqs", "Write a whole number from 1 to 1024"),
    ):
        path = answers(platform, overrides=[{"field": field, "value": value, **OVERRIDE}])
        lines = path.read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if '"value"' in text)
        said = run("plan", path)
        assert said.status == 2
        assert f"{path}:{line}: overrides[0].value: " in said.err
        assert words in said.err
        assert len(said.err.splitlines()) == 1


def test_an_expired_override_is_told_and_planned_with_all_the_same(platform: Path, run: Any) -> None:
    override = {"field": "max_num_seqs", "value": 5, "reason": "Tested.", "expires": "2020-01-01"}
    said = run("plan", answers(platform, overrides=[override]), "--json")
    assert said.status == 0
    assert "the override of max_num_seqs expired on 2020-01-01" in said.err
    assert "--max-num-seqs=5" in json.loads(said.out)["vllm_args"]


def test_overrides_that_contradict_each_other_are_refused(platform: Path, run: Any) -> None:
    pair = [{"field": "replicas.min", "value": 5, **OVERRIDE}, {"field": "replicas.max", "value": 2, **OVERRIDE}]
    said = run("plan", answers(platform, overrides=pair))
    assert said.status == 2
    assert "Raise replicas.max or lower replicas.min" in said.err


# render and replan


def test_render_writes_the_same_bytes_elsewhere_and_needs_no_second_plan(platform: Path, run: Any) -> None:
    run("new", "--answers", answers(platform))
    service = platform / "manifests/dev/support-chat"
    prices = platform / "platform/catalog/prices/google-cloud.yaml"
    prices.write_text(prices.read_text().replace('usd: "0.72"', 'usd: "0.99"'))
    assert run("render", service / "request.yaml", "--out", platform / "out").status == 0
    for name in RENDERED_FILES:
        assert (platform / "out" / name).read_bytes() == (service / name).read_bytes()
    assert run("replan", "support-chat").status == 0
    assert (platform / "out/plan.yaml").read_bytes() != (service / "plan.yaml").read_bytes()


def test_render_refuses_a_lock_that_was_made_for_other_answers(platform: Path, run: Any) -> None:
    run("new", "--answers", answers(platform))
    request = platform / "manifests/dev/support-chat/request.yaml"
    request.write_text(request.read_text().replace("concurrent_users: 4", "concurrent_users: 5"))
    before = files(platform)
    said = run("render", request)
    assert said.status == 2
    assert "was made for other answers" in said.err
    assert files(platform) == before
    assert run("replan", "support-chat").status == 0
    assert run("render", request).status == 0


def test_render_says_where_it_cannot_write(platform: Path, run: Any) -> None:
    for out in (answers(platform), Path("/proc/neuroscale")):
        said = run("render", answers(platform), "--out", out)
        assert said.status == 2
        assert str(out) in said.err


def test_a_service_is_found_by_folder_by_environment_and_name_and_by_its_name_alone(
    platform: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("new", "--answers", answers(platform))
    service = platform / "manifests/dev/support-chat"
    for name in ("support-chat", "dev/support-chat", "manifests/dev/support-chat", service):
        assert run("replan", name).status == 0
    monkeypatch.chdir(service)
    assert run("replan", ".").status == 0


@pytest.mark.parametrize("name", ["nope", "*", "support-ch?t", "dev/*", "", "/", "..", "../x", "dev", "a/b/c", "\x00"])
def test_what_names_no_service_is_refused(platform: Path, run: Any, name: str) -> None:
    run("new", "--answers", answers(platform))
    said = run("replan", name)
    assert said.status == 2
    assert "is not a service of this repository" in said.err


def test_a_name_in_two_environments_is_not_guessed(platform: Path, run: Any) -> None:
    run("new", "--answers", answers(platform))
    run("new", "--answers", answers(platform, environment="prod"))
    said = run("replan", "support-chat")
    assert said.status == 2
    assert "manifests/dev/support-chat, manifests/prod/support-chat" in said.err


def test_a_request_in_a_folder_of_another_name_is_not_rendered_there(platform: Path, run: Any) -> None:
    run("new", "--answers", answers(platform))
    shutil.copytree(platform / "manifests/dev/support-chat", platform / "manifests/dev/other")
    said = run("replan", "other")
    assert said.status == 2
    assert "does not lie in manifests/dev/support-chat" in said.err


def test_a_refused_replan_changes_nothing(platform: Path, run: Any) -> None:
    run("new", "--answers", answers(platform))
    request = platform / "manifests/dev/support-chat/request.yaml"
    request.write_text(request.read_text().replace("longest_prompt_tokens: 2048", "longest_prompt_tokens: 900000"))
    before = files(platform)
    said = run("replan", "support-chat")
    assert said.status == 1
    assert "at most 262144" in said.err
    assert files(platform) == before


# everything


def test_a_command_outside_a_repository_says_how_to_name_one(
    platform: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = answers(platform)
    monkeypatch.chdir("/")
    for command in (("render", request), ("replan", "x"), ("new", "--answers", request), ("serve",)):
        said = run(*command)
        assert said.status == 2
        assert "--repository" in said.err
    assert run("plan", request, "--repository", platform).status == 0
    assert run("plan", request, "--repository", platform / "platform/catalog").status == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("accelerators/nvidia-l4.yaml", "memory_gib:", "memory_gb:", ("memory_gb", "Did you mean 'memory_gib'?")),
        ("models/tiny-llama.yaml", "num_hidden_layers:", "num_hidden_layer:", ("is missing", "num_hidden_layer")),
        ("prices/google-cloud.yaml", 'usd: "0.72"', "usd: 0.72", ("prices[0].usd", "quoted text")),
        ("prices/google-cloud.yaml", "accelerator: nvidia-l4", "accelerator: nvidia-l40", ("nvidia-l40", "nvidia-l4")),
        ("teams/team-alpha.yaml", "namespace: team-alpha", "namespace: Team Alpha", ("namespace", "matches")),
        ("teams/team-alpha.yaml", "name: team-alpha", "name: team-alpha\nname: b", ("stands twice", "Keep one")),
    ],
)
def test_a_typo_in_the_catalog_is_told_with_file_line_field_and_fix(
    platform: Path, run: Any, file: str, old: str, new: str, words: tuple[str, str]
) -> None:
    path = platform / "platform/catalog" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    said = run("plan", answers(platform))
    assert said.status == 2
    assert f"platform/catalog/{file}:" in said.err
    for word in words:
        assert word in said.err


def test_piped_text_has_neither_colours_nor_lines_broken_at_the_width(
    platform: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = run("plan", answers(platform))
    assert "\x1b" not in said.out
    assert any(line.startswith("  vLLM: --model=") and "--max-model-len" in line for line in said.out.splitlines())


def test_an_error_reaches_the_terminal_without_the_commands_that_it_quotes(platform: Path, run: Any) -> None:
    context = "a\x1b]0;owned\x07\x1b[2J\n::error::b"
    kubeconfig = platform / "kubeconfig"
    kubeconfig.write_text("{}")
    said = run("status", "--kubeconfig", kubeconfig, "--context", context)
    assert said.status == 2
    assert "cannot be used" in said.err
    assert said.err.replace("\n", "").isprintable()
    assert "::error" not in said.err


def test_a_full_disk_is_no_defect_of_the_program(platform: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "neuroscale", "plan", str(answers(platform))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "defect" not in done.stderr


def test_every_command_has_help(run: Any) -> None:
    for command in ("plan", "render", "replan", "new", "request", "gate", "serve", "demo"):
        said = run(command, "--help")
        assert said.status == 0
        assert f"Usage: neuroscale {command}" in said.out
    assert run("--version").out.strip()
    assert run("nonsense").status == 2


def test_the_application_starts_without_what_its_commands_need() -> None:
    code = (
        "import sys; from neuroscale.cli import app; sys.argv = ['neuroscale', 'gate', '--help']\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "print(*(name for name in sys.modules if name.startswith('neuroscale')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    others = {name for name in done.stderr.split() if not name.startswith("neuroscale.cli")}
    of_progress = {"neuroscale.actions", "neuroscale.actions.progress"}
    assert others == {
        "neuroscale",
        "neuroscale.core",
        "neuroscale.core.delivered",
        "neuroscale.core.errors",
        *of_progress,
    }


def test_answers_that_cannot_be_used_are_told_before_a_token_is_asked_for(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEUROSCALE_FORGE_TOKEN", raising=False)
    monkeypatch.delenv("NEUROSCALE_FORGE_TOKEN_FILE", raising=False)
    path = answers(tmp_path, concurrent_users="many", model="gemma-9", team="ghosts", environment="moon")
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "concurrent_users" in text)
    said = run("request", "--answers", path, "--repository", ROOT)
    assert (said.status, said.out) == (2, "")
    assert f"{path}:{line}: concurrent_users: " in said.err
    for name in ("model: 'gemma-9'", "team: 'ghosts'", "environment: 'moon'"):
        assert f"{name} is not " in said.err
    assert "--token" not in said.err
    assert "NEUROSCALE_FORGE_TOKEN" not in said.err


# serve


@pytest.fixture
def server(platform: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "neuroscale", "serve", "--port", "0"],
        cwd=platform,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 30)
        assert ready
        pages, api = process.stdout.readline(), process.stdout.readline()
        assert pages.startswith("Pages: http://127.0.0.1:")
        yield process, api.split()[-1]
    finally:
        process.kill()
        process.communicate()


def test_the_server_answers_at_the_address_that_it_prints_and_ends_on_an_interrupt(
    server: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = server
    assert url.startswith("http://127.0.0.1:")
    assert httpx.post(url, json=ANSWERS, timeout=30).json()["verdict"] == "fits"
    assert httpx.post(url, json={**ANSWERS, "environment": "local"}, timeout=30).status_code == 422
    assert httpx.put(url, timeout=30).status_code == 405
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
