"""How right planning is about what others measured; and that the comparison itself hides nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import compare_planners
from accuracy import command
from accuracy.cases import held_out
from accuracy.comparison import AIMS, Kind, Promise, Row, Summary, compare, holds, promises, summarize
from accuracy.planner_answers import Planner
from accuracy.reading import Cases, read_cases
from command_line import Said, commands
from neuroscale.catalog import load_catalog, model_lookup
from neuroscale.core.errors import InputError
from neuroscale.core.releases import release
from neuroscale.core.tool_cache import locked_version
from neuroscale.planning.fit import PINNED
from neuroscale.repo.snapshot import FolderSnapshot
from roots import CHECKOUT, ROOT

FOLDER = CHECKOUT / "tests/ground_truth"

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
START = "llama-3.1-8b-h100-0.19.0"


@pytest.fixture(scope="module")
def cases() -> Cases:
    return read_cases(FOLDER)


@pytest.fixture(scope="module")
def rows(cases: Cases) -> tuple[Row, ...]:
    return compare(cases, Planner(cases, load_catalog(FolderSnapshot(ROOT))))


@pytest.fixture(scope="module")
def kept(cases: Cases) -> tuple[Promise, ...]:
    return promises(cases, Planner(cases, load_catalog(FolderSnapshot(ROOT))))


@pytest.fixture(scope="module")
def summaries(rows: tuple[Row, ...]) -> dict[Kind, Summary]:
    return {summary.kind: summary for summary in summarize(rows)}


def test_nothing_is_off_but_what_a_case_gives_a_reason_for(rows: tuple[Row, ...]) -> None:
    assert not [(row.kind, row.case, row.words) for row in rows if not row.good]
    assert holds(rows)
    explained = [row for row in rows if row.outcome == "explained"]
    assert all(row.reason for row in explained)
    # A reason is an exception: most of what is aimed at is right without one.
    assert len(explained) <= 8


def test_what_planning_does_not_judge_is_what_it_need_not(rows: tuple[Row, ...]) -> None:
    outcomes = Counter(row.outcome for row in rows)
    assert outcomes["crashed"] == 0
    unjudged = {row.case for row in rows if row.outcome in ("not judged", "estimated")}
    assert unjudged <= {"deepseek-v4-flash-2xgh200-too-long", "phi-2-h100-0.19.0-2048", "phi-2-h100-0.19.0"}


@pytest.mark.parametrize(
    ("kind", "least", "median"),
    [
        ("total_params", 33, 0.0025),
        ("active_params", 26, 0.0125),
        ("checkpoint_bytes", 6, 0.001),
        ("kv_bytes_per_token", 11, None),
        ("verdict", 157, None),
        ("weights", 136, 0.0025),
        ("kv_tokens", 92, 0.0025),
        ("tokens_of_memory", 132, 0.0005),
    ],
)
def test_as_much_is_right_as_was(summaries: dict[Kind, Summary], kind: Kind, least: int, median: float | None) -> None:
    summary = summaries[kind]
    assert kind in AIMS
    assert (summary.all.right or 0) >= least
    if median is not None:
        assert (summary.all.median or 0.0) <= median


@pytest.mark.parametrize("kind", ["total_params", "active_params", "weights", "kv_tokens", "tokens_of_memory"])
def test_the_third_that_is_held_out_is_no_worse(summaries: dict[Kind, Summary], kind: Kind) -> None:
    """Constants that were fitted to single cases would show here."""
    summary = summaries[kind]
    assert summary.held_out.answered >= 7
    assert (summary.held_out.median or 0.0) <= 2 * (summary.rest.median or 0.0) + 0.005


@pytest.mark.parametrize(("kind", "least"), [("sure fit", 30), ("sure refusal", 6), ("margin", 30)])
def test_what_is_said_without_reserve_holds_in_95_of_100_held_out_starts(
    kept: tuple[Promise, ...], kind: str, least: int
) -> None:
    held = [promise for promise in kept if promise.held_out and promise.kind == kind]
    rest = [promise for promise in kept if not promise.held_out and promise.kind == kind]
    assert len(held) >= least
    assert sum(promise.kept for promise in held) >= 0.95 * len(held), [each for each in held if not each.kept]
    # A margin that were wide enough for the held-out starts alone would be luck.
    assert sum(promise.kept for promise in rest) >= 0.95 * len(rest), [each for each in rest if not each.kept]


def test_the_cache_is_promised_neither_too_large_nor_too_small(kept: tuple[Promise, ...]) -> None:
    off = sorted(promise.off_gib for promise in kept if promise.kind == "margin")
    assert abs(off[len(off) // 2]) < 0.05
    assert off[-1] < 1.7
    assert off[0] > -1.3


def test_a_margin_is_not_printed_where_no_start_supports_it(cases: Cases, kept: tuple[Promise, ...]) -> None:
    with_margin = {promise.case for promise in kept if promise.kind == "margin"}
    without = {"llama-3.1-8b-h100-0.19.0-pp4", "phi-2-h100-0.19.0-2048", "ds-r1-distill-qwen14b-awq-rx9070xt"}
    assert not without & with_margin
    assert len(with_margin) >= 110


def test_a_third_is_held_out_by_name_alone(cases: Cases) -> None:
    chosen = [held_out(case.id) for case in cases.starts]
    assert 0.25 < sum(chosen) / len(chosen) < 0.42
    assert "".join(filter(held_out, "abcdefghijkl")) == "deij"


def test_the_ground_truth_is_wide(cases: Cases) -> None:
    judged = [case for case in cases.starts if case.left_out is None]
    verdicts = Counter(case.outcome for case in judged if "verdict" in case.judged)
    assert len(judged) >= 190
    assert verdicts["refused"] >= 30
    assert len({case.model for case in judged}) >= 60
    assert len({case.accelerator.name for case in judged}) >= 20
    assert len({case.vllm_version for case in judged}) >= 25
    assert all(release(case.version) <= release(PINNED) for case in judged if case.version)
    assert all(case.source for case in cases.starts)


def test_others_are_asked_the_same_and_shown_beside(cases: Cases, rows: tuple[Row, ...]) -> None:
    judged = {case.id for case in cases.starts if case.left_out is None}
    assert len(cases.others.tools) >= 2
    assert set(cases.others.answers) == judged
    for tool in cases.others.tools:
        told = [answers[tool.name] for answers in cases.others.answers.values()]
        assert sum(bool(answer.figures) for answer in told) >= 0.6 * len(judged)
        assert all(answer.figures or answer.problem for answer in told)
        locked = locked_version((ROOT / "requirements/compare.txt").read_text(), tool.name)
        assert locked == tool.version, "run scripts/compare_planners.py again"
    weights = next(row for row in rows if row.case == START and row.kind == "weights")
    assert {tool.name for tool in cases.others.tools} == set(weights.others)


def test_the_questions_to_others_say_what_the_case_says(cases: Cases) -> None:
    start = next(case for case in cases.starts if case.id == "phi-4-h100-tp4")
    question = compare_planners._question(cases, start)
    assert (question["tp"], question["pp"], question["memory_gib"]) == (4, 1, start.accelerator.memory_gib)
    assert question["config"]["num_key_value_heads"] == 10
    assert question["elements"] == {"BF16": question["weight_bytes"] // 2}


# The comparison itself.


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.chdir(ROOT)
    return commands(capsys, monkeypatch, main=command.main)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One model and one start, both right."""
    for part in ("models", "starts"):
        (tmp_path / part).mkdir()
    name = f"{MODEL.replace('/', '--')}.yaml"
    (tmp_path / "models" / name).write_bytes((FOLDER / "models" / name).read_bytes())
    (tmp_path / "starts/some.yaml").write_text(_one_start())
    return tmp_path


@cache
def _one_start() -> str:
    found = yaml.safe_load((FOLDER / "starts/vllm-0.19-on-h100.yaml").read_text())["cases"]
    text: str = yaml.safe_dump({"cases": [next(case for case in found if case["id"] == START)]}, sort_keys=False)
    return text


Change = Callable[[dict[str, Any]], object]


def change_start(folder: Path, change: Change) -> Path:
    path = folder / "starts/some.yaml"
    content = yaml.safe_load(path.read_text())
    change(content["cases"][0])
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def change_model(folder: Path, change: Change) -> Path:
    path = next((folder / "models").glob("*.yaml"))
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def test_what_is_right_is_green(run: Callable[..., Said], folder: Path) -> None:
    said = run("--cases", folder)
    assert said.status == 0, said.out
    assert "Every aim holds." in said.out
    assert START in said.out


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("verdict", lambda case: case.update(outcome="refused", cause="out_of_memory")),
        ("weights", lambda case: case["measured"].update(weights_gib=14.5)),
        ("kv_tokens", lambda case: case["measured"].update(kv_tokens=440_000)),
        ("tokens_of_memory", lambda case: case["measured"].update(kv_gib=70.0)),
    ],
)
def test_a_start_that_is_wrong_turns_the_command_red(
    run: Callable[..., Said], folder: Path, kind: str, change: Change
) -> None:
    said = run("--cases", change_start(folder, change), "--json")
    found = json.loads(said.out)
    assert said.status == 1
    assert not found["holds"]
    assert kind in {row["kind"] for row in found["rows"] if row["outcome"] == "wrong"}
    assert run("--cases", folder).status == 1


@pytest.mark.parametrize(
    ("tokens", "up_to", "outcome"),
    [
        (400_000, 0.2, "explained"),
        # A larger miss than the reason is for, and a reason that nothing needs any more.
        (400_000, 0.06, "wrong"),
        (None, 0.2, "wrong"),
    ],
)
def test_a_miss_is_excused_by_a_reason_of_its_size_alone(
    run: Callable[..., Said], folder: Path, tokens: int | None, up_to: float, outcome: str
) -> None:
    def with_reason(case: dict[str, Any]) -> None:
        case["measured"]["kv_tokens"] = tokens or case["measured"]["kv_tokens"]
        case["misses"] = {"kv_tokens": {"up_to": up_to, "why": "made up for this test"}}

    change_start(folder, with_reason)
    said = run("--cases", folder, "--only", "kv_tokens", "--json")
    row = json.loads(said.out)["rows"][0]
    assert (row["outcome"], said.status) == (outcome, int(outcome == "wrong"))
    shown = run("--cases", folder, "--only", "kv_tokens").out
    assert ("made up for this test" in shown) == (outcome == "explained")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("total_params", lambda model: model["published"].update(total=8_200_000_000)),
        ("active_params", lambda model: model["published"].update(active=9_000_000_000)),
        ("kv_bytes_per_token", lambda model: model["kv_cache"].update(bytes="131073")),
        ("checkpoint_bytes", lambda model: model.update(checkpoint={"bytes": 10**10, "source": "made up here"})),
    ],
)
def test_a_model_that_is_wrong_turns_the_command_red(
    run: Callable[..., Said], folder: Path, kind: str, change: Change
) -> None:
    said = run("--cases", change_model(folder, change), "--only", kind)
    assert said.status == 1
    assert "do not hold" in said.out
    assert "wrong" in said.out


def test_a_crash_is_a_row_that_counts(run: Callable[..., Said], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("made for this test")

    monkeypatch.setattr("accuracy.planner_answers.fit", broken)
    said = run("--cases", folder, "--json")
    found = json.loads(said.out)
    assert said.status == 1
    assert {row["outcome"] for row in found["rows"] if row["case"] == START} == {"crashed"}
    assert "ZeroDivisionError: made for this test" in found["rows"][-1]["words"]
    monkeypatch.setattr("accuracy.planner_answers.read_config", broken)
    assert {row["outcome"] for row in json.loads(run("--cases", folder, "--json").out)["rows"]} == {"crashed"}


def unknown_architecture(model: dict[str, Any]) -> None:
    model["config"] |= {"architectures": ["Plamo2ForCausalLM"], "model_type": "plamo2"}


def test_a_model_that_planning_refuses_to_judge_counts_unless_it_may(run: Callable[..., Said], folder: Path) -> None:
    change_model(folder, unknown_architecture)
    said = run("--cases", folder, "--json")
    rows = json.loads(said.out)["rows"]
    assert said.status == 1
    assert {(row["outcome"], row["good"]) for row in rows} == {("not judged", False)}
    change_model(folder, lambda model: model.update(may_refuse="an architecture without attention"))
    rows = json.loads(run("--cases", folder, "--json").out)["rows"]
    assert {(row["outcome"], row["good"]) for row in rows} == {("not judged", True)}


def test_a_hybrid_is_judged_by_its_states(rows: tuple[Row, ...]) -> None:
    of_hybrid = [row for row in rows if row.case == "qwen3.5-27b-4x3090-util0.9"]
    assert {row.kind for row in of_hybrid} >= {"verdict", "weights", "kv_tokens", "tokens_of_memory"}
    assert {row.good for row in of_hybrid} == {True}
    (tokens,) = (row for row in of_hybrid if row.kind == "tokens_of_memory")
    assert tokens.predicted == tokens.measured, "whole blocks of 784 tokens"


def test_a_catalog_name_never_asks_the_hub(
    run: Callable[..., Said], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("asked the Hub")

    monkeypatch.setattr(model_lookup, "read_hub", asked)

    def to_catalog(case: dict[str, Any]) -> None:
        del case["model"]
        case["catalog"] = "nobody/nothing"

    said = run("--cases", change_start(folder, to_catalog))
    assert said.status == 1
    assert "is not a model of the catalog" in said.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda case: case.update(colour="red"), "colour"),
        (lambda case: case["measured"].pop("weights_gib"), "`judged` names weights, and `measured` has no weights_gib"),
        (
            lambda case: case["judged"].remove("weights"),
            "`measured` has weights_gib, and neither `judged` nor `not_judged`",
        ),
        (lambda case: case.update(model="meta-llama/Llama-3.1-8B"), "is not a model of the ground truth"),
        (
            lambda case: case.update(misses={"verdict": {"up_to": 1.0, "why": "bad luck"}}),
            "`up_to` does not apply to a verdict",
        ),
        (lambda case: case.update(misses={"kv_tokens": {"why": "bad luck"}}), "`misses.kv_tokens` has no `up_to`"),
        (lambda case: case.update(catalog="tiny-llama"), "names no model, or two"),
        (lambda case: case.update(outcome="refused"), "`cause` says why vLLM did not start"),
        (lambda case: case.update(left_out="for a test"), "`left_out` leaves the whole case out"),
        (lambda case: case.update(judged=[]), "`judged` names no figure"),
        (
            lambda case: case["accelerator"].update(memory_gib=None),
            "the accelerator's memory or its count is not known",
        ),
        (lambda case: case.update(vllm_version=None), "the version is not known"),
        (
            lambda case: case.update(not_judged={"weights": "for a test"}),
            "weights stands in `judged` and in `not_judged`",
        ),
        (lambda case: case["measured"].update(weights_gib="14.99"), "weights_gib"),
        (lambda case: case.update(arguments=["serve"]), "arguments"),
        (lambda case: case.pop("source"), "source"),
    ],
)
def test_a_case_that_is_not_one_is_told_in_words(
    run: Callable[..., Said], folder: Path, change: Change, words: str
) -> None:
    said = run("--cases", change_start(folder, change))
    assert said.status == 2, said.out
    assert words in said.err
    assert "some.yaml" in said.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.update(same_as="somebody/else"), "either its own config or the name of a model"),
        (lambda model: model.update(config=None, same_as="somebody/else"), "is not a model of the ground truth"),
        (lambda model: model.update(config=None, same_as=MODEL), "leads back to itself"),
        (lambda model: model.update(changes={"hidden_size": 1}), "changes without a model"),
        (lambda model: model["published"].pop("active_rounded_to"), "active parameters are incomplete"),
        (lambda model: model["kv_cache"].update(bytes="many"), "kv_cache.bytes"),
    ],
)
def test_a_model_that_is_not_one_is_told_in_words(folder: Path, change: Change, words: str) -> None:
    with pytest.raises(InputError) as raised:
        read_cases(change_model(folder, change))
    assert words in str(raised.value)


def test_every_problem_of_a_folder_is_told_at_once(folder: Path) -> None:
    change_start(folder, lambda case: case.update(colour="red", outcome="perhaps"))
    change_model(folder, lambda model: model.update(form="guessed"))
    with pytest.raises(InputError) as raised:
        read_cases(folder)
    assert len(raised.value.problems) == 3


def test_no_case_stands_twice(folder: Path) -> None:
    for part in ("models", "starts"):
        first = next((folder / part).glob("*.yaml"))
        (folder / part / "zz.yaml").write_bytes(first.read_bytes())
    with pytest.raises(InputError) as raised:
        read_cases(folder)
    assert [problem.message for problem in raised.value.problems] == [
        f"'{MODEL}' stands in two files",
        f"'{START}' stands twice",
    ]


def test_answers_of_others_belong_to_a_case(folder: Path) -> None:
    (folder / "others.yaml").write_text(yaml.safe_dump({"answers": {"no-such-case": {}}}))
    with pytest.raises(InputError, match="is not a case of the ground truth"):
        read_cases(folder)


def test_an_answer_that_a_tool_did_not_give_is_no_blank(run: Callable[..., Said], folder: Path) -> None:
    tool = {
        "name": "some-tool",
        "version": "1.0",
        "asked": "2026-01-01",
        "how": "made up for this test",
        "answers": ["verdict", "weights", "kv_tokens"],
    }
    said = {"figures": {"verdict": "refused", "weights": 15.7395}}
    (folder / "others.yaml").write_text(yaml.safe_dump({"tools": [tool], "answers": {START: {"some-tool": said}}}))
    found = json.loads(run("--cases", folder, "--json").out)
    told = {row["kind"]: row["others"].get("some-tool") for row in found["rows"] if row["case"] == START}
    assert told["weights"] == {"value": 15.7395, "error": 0.05, "words": ""}
    assert told["kv_tokens"] == {"value": None, "error": None, "words": "has no such figure"}
    assert told["cudagraph"] is None
    of_verdict = next(summary for summary in found["summary"] if summary["kind"] == "verdict")
    assert of_verdict["others"]["some-tool"]["right"] == 0
    shown = run("--cases", folder)
    assert shown.status == 0, "another tool's error is not ours"
    assert "refused +5.0% -" in shown.out


def test_a_folder_without_cases_proves_nothing(run: Callable[..., Said], tmp_path: Path) -> None:
    assert run("--cases", tmp_path).status == 2
    assert "holds no case" in run("--cases", tmp_path).err


def test_one_kind_alone(run: Callable[..., Said], folder: Path) -> None:
    found = json.loads(run("--cases", folder, "--only", "weights", "--json").out)
    assert [(row["case"], row["kind"]) for row in found["rows"]] == [(START, "weights")]
    said = run("--cases", folder, "--only", "wights")
    assert said.status == 2
    assert "weights" in said.err
    said = run("--cases", folder, "--only", "max_context")
    assert said.status == 2
    assert "no case has this figure" in said.err


def test_what_is_left_out_is_listed_with_its_reason(run: Callable[..., Said], folder: Path) -> None:
    path = folder / "starts/some.yaml"
    content = yaml.safe_load(path.read_text())
    other = {**deepcopy(content["cases"][0]), "id": "another-start", "judged": [], "left_out": "its card is not known"}
    path.write_text(yaml.safe_dump({"cases": [*content["cases"], other]}, sort_keys=False))
    assert "1 case, its card is not known: another-start" in run("--cases", folder).out
    found = json.loads(run("--cases", folder, "--json").out)
    assert found["left_out"] == {"another-start": "its card is not known"}


def test_the_whole_table(run: Callable[..., Said], cases: Cases) -> None:
    said = run()
    assert said.status in (0, 1)
    shown = {line.split()[0].rstrip("*") for line in said.out.splitlines() if line.strip()}
    left_out = said.out.partition("Left out")[2].replace(",", " ").split()
    for case in cases.starts:
        assert case.id in (shown if case.left_out is None else left_out)
    for name, model in cases.models.items():
        assert name in said.out or not (model.published or model.checkpoint or model.kv_cache)
