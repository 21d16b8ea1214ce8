"""Manifests of other people with vLLM: releases before the known one, images with other numbers, unknown models."""

from __future__ import annotations

import io
import re
from datetime import date
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from neuroscale.catalog import Catalog
from neuroscale.gate import runner
from neuroscale.gate.checks.files import FilesCheck
from neuroscale.gate.fit import check as fit_check
from neuroscale.gate.fit.check import FitCheck, evaluate_fit
from neuroscale.gate.fit.known_models import Knowledge, read_knowledge
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import Finding, Outcome, Severity
from neuroscale.manifests.objects import read_manifests
from neuroscale.report import phrases
from neuroscale.report.markdown import markdown
from neuroscale.report.terminal import print_verdict
from neuroscale.vllm.images import image_version, product_of
from platform_repository import SNAPSHOT
from roots import ROOT

CASES = Path(__file__).parent / "cases" / "fit"
TODAY = date(2026, 11, 20)


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    known = read_knowledge(PlatformSources(SNAPSHOT))
    assert known is not None
    return known


def judged(case: str, knowledge: Knowledge, *changed: tuple[str, str]) -> dict[str, Finding]:
    text = (CASES / f"{case}.yaml").read_text()
    for old, new in changed:
        assert old in text
        text = text.replace(old, new)
    # The tripwires have tests of their own.
    with mock.patch.object(fit_check, "tripwires", tuple):
        seen = evaluate_fit(read_manifests(text.encode(), "a.yaml", None), lambda _: None, lambda: knowledge)
    return {one.rule: one for one in seen.findings}


@pytest.mark.parametrize(
    ("case", "changed"), [("hybrid-0.28", ()), ("hybrid-0.32", ()), ("hybrid-0.28", (("v0.28.0", "v0.23.0"),))]
)
def test_a_hybrid_with_too_few_blocks_for_its_states_is_refused_before_0_32_too(
    knowledge: Knowledge, case: str, changed: tuple[tuple[str, str], ...]
) -> None:
    """vLLM of June 2026 ends with 856 blocks on this card (vllm-project/recipes#551)."""
    refused = judged(case, knowledge, *changed)["does-not-fit"]
    assert refused.severity is Severity.ERROR
    there, advised = map(int, re.findall(r"more than the (\d+) blocks.*Write --max-num-seqs=(\d+)", refused.message)[0])
    assert advised < there < 1024
    if changed:
        # Whoever follows the advice starts.
        assert advised < 856 < 1.03 * there


def test_a_hybrid_of_a_release_that_leaves_large_graphs_out_is_not_refused(knowledge: Knowledge) -> None:
    assert "does-not-fit" not in judged("hybrid-0.28", knowledge, ("v0.28.0", "v0.19.1"))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("v0.28.0", "arguments are read as 0.32.0 would, and its memory as 0.28.0 uses it"),
        ("v0.40.0", "newer than what is known here: command and memory are judged as those of vLLM 0.32.0"),
        ("v0.6.0", "whether it fits cannot be judged: vLLM 0.6.0 is older than 0.9.1"),
        ("latest", "does not show its vLLM version: command and memory are judged as those of vLLM 0.32.0"),
    ],
)
def test_the_notice_says_by_which_release_command_and_memory_are_judged(
    knowledge: Knowledge, version: str, words: str
) -> None:
    assert words in judged("vllm-openai-0.19.1", knowledge, ("v0.19.1", version))["not-judged"].message


@pytest.mark.parametrize("case", ["llm-d-cuda-0.7.0", "llm-d-cuda-0.9.0"])
def test_the_number_of_another_product_is_not_the_version_of_vllm(knowledge: Knowledge, case: str) -> None:
    """llm-d-cuda:v0.7.0 holds vLLM 0.19.1; KServe's own defaults use v0.9.0."""
    said = judged(case, knowledge)["not-judged"].message
    assert "llm-d numbers its images itself" in said
    assert "judged as those of vLLM 0.32.0" in said
    assert "0.7.0" not in said
    assert "0.9.0" not in said


@pytest.mark.parametrize(
    ("image", "version", "product"),
    [
        ("vllm/vllm-openai:v0.19.1", "0.19.1", ""),
        ("docker.io/vllm/vllm-openai:v0.19.1-cu130@sha256:12", "0.19.1", ""),
        ("example.com:5000/mirror/vllm-openai:v0.32.0", "0.32.0", ""),
        ("vllm/vllm-openai-cpu:v0.32.0", "0.32.0", ""),
        ("vllm/vllm-openai:latest", "", ""),
        ("example.com/team/our-vllm:v0.32.0", "", ""),
        ("ghcr.io/llm-d/llm-d-cuda:v0.7.0", "", "llm-d"),
        ("lmcache/vllm-openai:v0.3.9", "", "LMCache"),
        ("kserve/huggingfaceserver:v0.20.0-gpu", "", "KServe's server for Hugging Face models"),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.1", "", "Red Hat AI Inference Server"),
        ("nvcr.io/nvidia/vllm:26.04.1-py3", "", "NVIDIA"),
        ("rocm/vllm:rocm6.4.1_vllm_0.9.1_20250715", "", "AMD"),
    ],
)
def test_only_images_with_vllms_own_number_name_a_version(image: str, version: str, product: str) -> None:
    assert (image_version(image), product_of(image)) == (version, product)


def test_an_image_of_the_catalogs_runtimes_has_the_version_that_the_catalog_says(knowledge: Knowledge) -> None:
    image = "example.com/team/our-vllm:2026.9.1"
    runtimes = knowledge.catalog.runtimes
    own = runtimes["neuroscale-vllm"].model_copy(update={"name": "ours", "image": image, "version": "0.32.0"})
    known = knowledge.catalog
    named = Catalog(known.models, known.accelerators, known.prices, {**runtimes, "ours": own}, known.teams)
    swap = ("vllm/vllm-openai:v0.19.1", image)
    assert "not-judged" not in judged("vllm-openai-0.19.1", Knowledge(named, knowledge.settings), swap)
    assert "does not show" in judged("vllm-openai-0.19.1", knowledge, swap)["not-judged"].message


def test_a_command_of_which_nothing_is_known_counts_as_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "all_checks", lambda **_: [FilesCheck(), FitCheck()])
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "unknown.yaml").write_text((CASES / "unknown-model.yaml").read_text())
    verdict = runner.gate_paths([folder], ROOT, TODAY, strict=False)
    (seen,) = (one for one in verdict.checks if one.name == "fit")
    assert (seen.outcome, seen.unjudged, seen.expected) == ("not_run", 1, 1)
    assert verdict.headline == "Passed: 1 file checked; 1 of 1 commands not judged"
    printed = io.StringIO()
    print_verdict(verdict, Console(file=printed, width=200, highlight=False))
    for text in (printed.getvalue(), markdown(verdict)):
        assert "not judged" in text
        assert "0 of 1 commands judged" in text
        assert "1 of 1 commands," not in text
    known = seen.model_copy(update={"outcome": Outcome.PASSED, "evaluated": 3, "expected": 3})
    assert phrases.account(known, str)[:2] == ["2 of 3 commands judged", "1 not judged"]
