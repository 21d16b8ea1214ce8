"""Models of the Hub without a commit: notices in development, findings where nobody knows the environment."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.fit import model_revisions
from neuroscale.gate.fit.check import FitCheck
from neuroscale.gate.fit.model_revisions import RULE, loose_models, must_be_caught
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.verdict import Severity
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.repo.layout import ServicePath
from platform_repository import SNAPSHOT

COMMIT = "a" * 40
Object = dict[str, Any]


def isvc(**model: Any) -> Object:
    model = {"modelFormat": {"name": "vLLM"}, "runtime": "neuroscale-vllm", **model}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"predictor": {"model": model}},
    }


def llm(uri: str, **container: Any) -> Object:
    main = {"name": "main", "image": "docker.io/vllm/vllm-openai:v0.32.0", **container}
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"model": {"uri": uri}, "template": {"containers": [main]}},
    }


def deployment(*words: str) -> Object:
    main = {"name": "main", "image": "docker.io/vllm/vllm-openai:v0.32.0", "command": [*words]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"template": {"spec": {"containers": [main]}}},
    }


def manifests(value: Object, service: ServicePath | None = None) -> list[Manifest]:
    return list(read_manifests(dump(value).encode(), "chat.yaml", service))


def told(value: Object) -> list[tuple[str, str]]:
    run = Run(Subject(GateInput(SNAPSHOT), list, SNAPSHOT), date(2026, 11, 21), Path())
    return [(one.name, ".".join(map(str, one.at))) for one in loose_models(manifests(value), run.runtimes)]


@pytest.mark.parametrize(
    ("value", "loose"),
    [
        (isvc(args=["--model=owner/name"]), [("owner/name", "spec.predictor.model.args.0")]),
        (isvc(args=["--model=gpt2"]), [("gpt2", "spec.predictor.model.args.0")]),
        (isvc(args=["--model=owner/name", "--revision=main"]), [("owner/name", "spec.predictor.model.args.1")]),
        (isvc(args=["--model=owner/name", "--revision="]), [("owner/name", "spec.predictor.model.args.0")]),
        (isvc(args=["--model", "owner/name", "--rev", COMMIT]), []),
        (isvc(args=["--model=/mnt/models"], storageUri="gs://bucket/name"), []),
        (
            isvc(storageUri="hf://owner/name", args=["--model=/mnt/models"]),
            [("owner/name", "spec.predictor.model.storageUri")],
        ),
        (isvc(storageUri=f"hf://owner/name:{COMMIT}", args=["--model=/mnt/models"]), []),
        # Without --model, vLLM serves a model of its own choice.
        (isvc(), [("Qwen/Qwen3-0.6B", "spec.predictor.model")]),
        (isvc(runtime="of-another-team", args=["--model=owner/name"]), [("", "spec.predictor.model.runtime")]),
        (isvc(args=["--config=/etc/vllm.yaml"]), [("", "spec.predictor.model")]),
        (
            isvc(args=["--model=/mnt/models", '--speculative-config={"model": "owner/draft"}']),
            [("owner/draft", "spec.predictor.model.args.1")],
        ),
        (isvc(args=["--model=/mnt/models", '--speculative-config={"method": "ngram"}']), []),
        (llm("hf://owner/name"), [("owner/name", "spec.model.uri")]),
        (llm(f"hf://owner/name:{COMMIT}"), []),
        (llm("gs://bucket/name", args=["--revision=main"]), []),
        (
            llm("gs://b/n", command=["vllm", "serve", "owner/name"]),
            [("owner/name", "spec.template.containers.0.command.2")],
        ),
        (deployment("vllm", "serve", "owner/name"), [("owner/name", "spec.template.spec.containers.0.command.2")]),
        (deployment("vllm", "serve", "owner/name", "--revision", COMMIT), []),
        (
            deployment("sh", "-c", "exec vllm serve owner/name --port 8000"),
            [("owner/name", "spec.template.spec.containers.0.command.2")],
        ),
        (deployment("vllm", "serve", "s3://bucket/name"), []),
    ],
)
def test_each_model_of_the_hub_without_a_commit_is_found_at_its_place(
    value: Object, loose: list[tuple[str, str]]
) -> None:
    assert told(value) == loose


@pytest.mark.parametrize(
    ("environment", "strict", "severity"),
    [
        ("dev", True, Severity.NOTICE),
        ("dev", False, Severity.NOTICE),
        ("", False, Severity.NOTICE),
        ("", True, Severity.ERROR),
        ("prod", True, None),  # the production check judges it
    ],
)
def test_development_gets_a_notice_and_an_unknown_environment_a_finding(
    environment: str, strict: bool, severity: Severity | None
) -> None:
    run = Run(Subject(GateInput(SNAPSHOT), list, SNAPSHOT, strict=strict), date(2026, 11, 21), Path())
    service = ServicePath(environment, "chat") if environment else None
    run = run.ended_with("files", None, tuple(manifests(isvc(args=["--model=owner/name"]), service)))
    result = begin(FitCheck(), run)()
    assert result is not None
    found = [one for one in result.findings if one.rule == RULE]
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert one.message == "loads owner/name from the Hub without a revision: each start takes whatever is newest"
        assert "--revision=COMMIT, with the 40 digits" in one.fix
        assert ("`neuroscale catalog add owner/name`" in one.fix) == bool(environment)


def test_a_run_that_misses_its_own_loose_models_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert must_be_caught() == 2
    monkeypatch.setattr(model_revisions, "_COMMIT", re.compile(".*"))
    with pytest.raises(UntrustedError, match="a model of the Hub without a revision"):
        must_be_caught()
