"""Servers in images that were tried with a read-only root file system have one, and a folder for temporary files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale.catalog import Catalog
from neuroscale.catalog.entries import Tried
from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.fit import check as gate
from neuroscale.gate.fit import read_only_root
from neuroscale.gate.fit.check import ChangedFactsFitCheck, FitCheck, evaluate_fit
from neuroscale.gate.fit.known_models import Knowledge
from neuroscale.gate.judged_files import GateInput, ServiceFolder
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import read_manifests
from neuroscale.manifests.serving_runtimes import runtimes_of
from neuroscale.planning.plan import dump_plan, load_plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.platform.runtimes import render_runtimes
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import MemorySnapshot, read_all
from plan_factory import ANSWERS, make_request
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, TEMPLATE
from roots import ROOT

TODAY = date(2026, 11, 21)
CPU, GPU, EXPERTS = "neuroscale-vllm-cpu", "neuroscale-vllm", "neuroscale-vllm-gemma4-moe"
IMAGE = CATALOG.runtimes[CPU].image
KNOWLEDGE = Knowledge(CATALOG, SETTINGS)
LOCAL = yaml.safe_load((ROOT / "templates/examples/tiny-moe-on-this-machine.yaml").read_text())
ROOTS = ("writable-root", "no-temporary-folder")

Object = dict[str, Any]


def tried(catalog: Catalog, **values: bool | None) -> Catalog:
    """The catalog with other answers to whether runtimes, by the end of their names, were tried."""
    entries = {
        name: one.model_copy(update={"read_only_root": Tried(value=values[key], source="a test of the gate")})
        if (key := name.removeprefix("neuroscale-vllm").removeprefix("-").replace("-", "_") or "gpu") in values
        else one
        for name, one in catalog.runtimes.items()
    }
    return Catalog(catalog.models, catalog.accelerators, catalog.prices, entries, catalog.teams)


def files_of(answers: Object, catalog: Catalog = CATALOG) -> dict[str, str]:
    """A service's files as the template renders them."""
    request = make_request(**answers)
    return render(request, plan(request, catalog, SETTINGS, TEMPLATE.version), TEMPLATE)


def service() -> Object:
    """The service of this machine's CPU, as rendered."""
    value: Object = yaml.safe_load(files_of(LOCAL)["inferenceservice.yaml"])
    return value


def model_of(value: Object) -> Object:
    found: Object = value["spec"]["predictor"]["model"]
    return found


def container(read_only: object = None, image: str = IMAGE, **more: Any) -> Object:
    context = {} if read_only is None else {"securityContext": {"readOnlyRootFilesystem": read_only}}
    return {"name": "vllm", "image": image, "args": ["--model=/models/a"], **context, **more}


TMP: Object = {"volumeMounts": [{"name": "temporary", "mountPath": "/tmp"}]}


def deployment(*containers: Object, **spec: Any) -> Object:
    pod = {"containers": list(containers), **spec}
    metadata = {"name": "chat", "namespace": "team-alpha"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"template": {"spec": pod}},
    }


def found(*objects: Object, knowledge: Knowledge | None = KNOWLEDGE, known_runtimes: bool = True) -> list[Finding]:
    """The findings of the two rules."""
    manifests = [one for value in objects for one in read_manifests(dump(value).encode(), "chat.yaml")]
    elsewhere = runtimes_of(SNAPSHOT) if known_runtimes else lambda _: None
    seen = evaluate_fit(manifests, elsewhere, lambda: knowledge).findings
    return [one for one in seen if one.rule in ROOTS]


def rules(*objects: Object, **more: Any) -> list[str]:
    return [one.rule for one in found(*objects, **more)]


def test_what_the_template_renders_is_read_only_where_the_catalog_says_so_and_as_before_elsewhere() -> None:
    rendered = service()
    assert model_of(rendered)["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"name": "temporary", "mountPath": "/tmp"} in model_of(rendered)["volumeMounts"]
    assert {"name": "temporary", "emptyDir": {"sizeLimit": "4Gi"}} in rendered["spec"]["predictor"]["volumes"]
    assert rules(rendered) == []
    for files in (
        files_of(ANSWERS),
        files_of(LOCAL, tried(CATALOG, cpu=None)),
        files_of(LOCAL, tried(CATALOG, cpu=False)),
    ):
        assert not any("read_only_root" in text or "readOnlyRoot" in text or "/tmp" in text for text in files.values())


def test_a_service_whose_plan_is_older_gets_its_root_and_its_folder_from_the_runtime() -> None:
    old = files_of(LOCAL, tried(CATALOG, cpu=None))
    locked = load_plan(old["plan.yaml"], "plan.yaml")
    assert dump_plan(locked) == old["plan.yaml"]
    assert render(make_request(**LOCAL), locked, TEMPLATE) == old
    assert rules(yaml.safe_load(old["inferenceservice.yaml"])) == []


@pytest.mark.parametrize("read_only", [False, "true", 1, None])
def test_a_writable_root_is_refused_where_the_service_or_its_pod_says_it(read_only: object) -> None:
    value = service()
    if read_only is None:
        assert rules(deployment(container())) == ["writable-root"]
        return
    model_of(value)["securityContext"]["readOnlyRootFilesystem"] = read_only
    (finding,) = found(value)
    assert (finding.rule, finding.severity) == ("writable-root", Severity.ERROR)
    assert CPU in finding.message
    assert rules(deployment(container(read_only))) == ["writable-root"]


def in_a_canary(value: Object) -> Object:
    model_of(without_a_known_runtime(value))["image"] = "vllm/vllm-openai-cpu:v0.31.0"
    assert rules(value) == []
    value["spec"]["canary"] = [{"trafficPercent": 10, "predictor": {"model": {"image": IMAGE}}}]
    return value


def beside(value: Object) -> Object:
    value["spec"]["predictor"]["containers"] = [container(False, name="second")]
    return value


def as_sidecar(value: Object) -> Object:
    value["spec"]["predictor"]["initContainers"] = [container(name="side", restartPolicy="Always")]
    return value


def by_a_custom_container(value: Object) -> Object:
    predictor = value["spec"]["predictor"]
    del predictor["model"]
    predictor["containers"] = [container(name="kserve-container")]
    return value


def without_a_known_runtime(value: Object) -> Object:
    model_of(value)["runtime"] = "another"
    del model_of(value)["securityContext"]["readOnlyRootFilesystem"]
    return value


def from_a_mirror(value: Object) -> Object:
    model_of(value)["image"] = f"registry.example.com:5000/a/{IMAGE.split('/')[1]}@sha256:{'a' * 64}"
    model_of(value)["securityContext"]["readOnlyRootFilesystem"] = False
    return value


@pytest.mark.parametrize(
    "spoil", [in_a_canary, beside, as_sidecar, by_a_custom_container, without_a_known_runtime, from_a_mirror]
)
def test_a_writable_root_is_found_wherever_the_image_runs(spoil: Callable[[Object], Object]) -> None:
    assert "writable-root" in rules(spoil(service()))


def test_other_kinds_and_every_position_count() -> None:
    good, bad = container(True, **TMP), container(name="second")
    assert rules(deployment(good)) == []
    assert rules(deployment(good, bad)) == ["writable-root"]
    job = deployment(bad) | {"apiVersion": "batch/v1", "kind": "Job"}
    llm: Object = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"model": {"uri": "hf://a/b", "name": "b"}, "template": {"containers": [container(name="main")]}},
    }
    assert rules(job) == rules(llm) == ["writable-root"]


@pytest.mark.parametrize(
    "image", ["vllm/vllm-openai-cpu:v0.31.0", "vllm/vllm-openai:v0.32.0", f"vllm/vllm-openai-cpu@sha256:{'b' * 64}"]
)
def test_an_image_that_nobody_tried_may_write(image: str) -> None:
    assert rules(deployment(container(image=image))) == []


def test_an_image_by_its_digest_alone_is_known_by_the_catalogs_digest() -> None:
    digest = f"sha256:{'b' * 64}"
    entry = CATALOG.runtimes[CPU].model_copy(update={"digest": digest})
    catalog = Catalog(CATALOG.models, CATALOG.accelerators, CATALOG.prices, {CPU: entry}, CATALOG.teams)
    bad = deployment(container(image=f"vllm/vllm-openai-cpu@{digest}"))
    assert rules(bad, knowledge=Knowledge(catalog, SETTINGS)) == ["writable-root"]


def test_of_two_runtimes_with_one_image_the_one_that_the_service_names_decides() -> None:
    knowledge = Knowledge(tried(CATALOG, gpu=True, gemma4_moe=None), SETTINGS)
    value = yaml.safe_load(files_of(ANSWERS)["inferenceservice.yaml"])
    for name, expected in ((GPU, ["writable-root"]), (EXPERTS, []), ("another", ["writable-root"])):
        model_of(value)["runtime"] = name
        assert rules(value, knowledge=knowledge) == expected
    assert rules(deployment(container(image=CATALOG.runtimes[GPU].image)), knowledge=knowledge) == ["writable-root"]


def test_a_canary_that_names_no_runtime_runs_in_that_of_the_service() -> None:
    knowledge = Knowledge(tried(CATALOG, gpu=True, gemma4_moe=None), SETTINGS)
    value = yaml.safe_load(files_of(ANSWERS)["inferenceservice.yaml"])
    for canary in ({"minReplicas": 1}, {"model": {"args": ["--seed=1"]}}):
        value["spec"]["canary"] = [{"trafficPercent": 10, "predictor": canary}]
        for name, expected in ((GPU, ["writable-root"] * 2), (EXPERTS, [])):
            model_of(value)["runtime"] = name
            assert rules(value, knowledge=knowledge) == expected


def test_a_catalog_that_cannot_be_read_demands_nothing_because_another_check_reports_it() -> None:
    assert rules(deployment(container()), knowledge=None) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ["no-temporary-folder"]),
        (TMP, []),
        ({"volumeMounts": [{"name": "temporary", "mountPath": "/tmp/"}]}, []),
        ({"volumeMounts": [{"name": "temporary", "mountPath": "/tmp", "readOnly": True}]}, ["no-temporary-folder"]),
        ({"volumeMounts": [{"name": "temporary", "mountPath": "/tmpfiles"}]}, ["no-temporary-folder"]),
        ({"volumeMounts": [{"name": "temporary", "mountPath": "/tmp/vllm"}]}, ["no-temporary-folder"]),
        ({"volumeMounts": [{"name": "temporary", "mountPath": "/var"}]}, []),
        ({"volumeMounts": [{"name": "temporary", "mountPath": "/work"}], "workingDir": "/work"}, []),
        ({"env": [{"name": "TMPDIR", "value": "/home/vllm"}]}, []),
        ({"envFrom": [{"configMapRef": {"name": "settings"}}]}, []),
    ],
)
def test_a_read_only_root_needs_a_folder_for_temporary_files(more: Object, expected: list[str]) -> None:
    assert rules(deployment(container(True, **more))) == expected
    # Whatever the catalog says about the image.
    assert rules(deployment(container(True, image="vllm/vllm-openai:v0.32.0", **more))) == expected


def test_a_runtime_that_is_not_known_may_bring_the_folder() -> None:
    value = service()
    model_of(value)["runtime"] = "another"
    model_of(value)["volumeMounts"].pop()
    assert rules(value, known_runtimes=False) == []


def test_the_rendered_runtime_has_a_folder_with_its_root_and_others_have_neither() -> None:
    for name, text in ((Path(path).stem, text) for path, text in render_runtimes(CATALOG).items()):
        spec = yaml.safe_load(text)["spec"]
        (one,) = spec["containers"]
        read_only = one["securityContext"].get("readOnlyRootFilesystem", False)
        assert read_only == (CATALOG.runtimes[name].has_read_only_root) == (name == CPU)
        assert ("volumeMounts" in one) == ("volumes" in spec) == read_only


# ---------------------------------------------------------------- exceptions and tripwires

SERVICE = ServicePath("local", "tiny-chat")
BASE = read_all(SNAPSHOT, SNAPSHOT.entries("platform", "policies"))


def exception(expires: str = "2027-01-31", policy: str = "writable-root") -> dict[str, bytes]:
    value = {
        "schema_version": 1,
        "policy": policy,
        "kind": "InferenceService",
        "namespace": "team-alpha",
        "name": "tiny-chat",
        "reason": "A plugin writes beside its modules until its next release.",
        "approved_by": "platform-team",
        "expires": expires,
    }
    return {"policies/exceptions/chat.yaml": dump(value).encode()}


def a_run(base: dict[str, bytes], *, spoiled: bool = True) -> Run:
    """A run over a service that says that its root is writable, if `spoiled`. `base`: the files that judge."""
    value = service()
    if spoiled:
        model_of(value)["securityContext"]["readOnlyRootFilesystem"] = False
    path, data = f"{SERVICE.folder}/inferenceservice.yaml", dump(value).encode()
    snapshot = MemorySnapshot({**BASE, path: data})
    folder = ServiceFolder(SERVICE, "added", tuple(snapshot.entries(SERVICE.folder)))
    run = Run(Subject(GateInput(snapshot, (folder,)), list, MemorySnapshot(base)), TODAY, Path())
    return run.ended_with("files", None, tuple(read_manifests(data, path, SERVICE)))


def judged(base: dict[str, bytes], *, spoiled: bool = True) -> dict[str, Finding]:
    result = begin(FitCheck(), a_run(base, spoiled=spoiled))()
    assert result is not None
    return {one.rule: one for one in result.findings}


def test_an_exception_of_the_base_makes_it_a_notice_until_it_ends() -> None:
    refused = judged(BASE)["writable-root"]
    assert refused.severity is Severity.ERROR
    assert refused.fix == f"Run `neuroscale replan {SERVICE.folder}` and commit the result."
    held = judged({**BASE, **exception()})["writable-root"]
    assert held.severity is Severity.NOTICE
    assert "excepted by policies/exceptions/chat.yaml until 2027-01-31: A plugin writes" in held.message
    ended = judged({**BASE, **exception("2026-11-20")})["writable-root"]
    assert ended.severity is Severity.ERROR
    assert "expired on 2026-11-20" in ended.message
    assert judged({**BASE, **exception(policy="non-root")})["writable-root"].severity is Severity.ERROR


def test_an_exception_that_nothing_needs_is_named() -> None:
    seen = judged({**BASE, **exception()}, spoiled=False)
    assert "the policy writable-root does not refuse it" in seen["exception-unneeded"].message
    assert "writable-root" not in seen


def test_a_change_that_enters_the_fact_is_judged_by_it_with_the_exceptions_of_the_base() -> None:
    path = f"platform/catalog/runtimes/{CPU}.yaml"
    untried = {**BASE, path: BASE[path].replace(b"  value: true\n", b"  value: null\n")}
    for base, severity in ((untried, Severity.ERROR), ({**untried, **exception()}, Severity.NOTICE)):
        run = a_run(base)
        by_the_base = begin(FitCheck(), run)()
        assert by_the_base is not None
        assert "writable-root" not in {one.rule for one in by_the_base.findings}
        run = run.ended_with(FitCheck.name, by_the_base, None)
        (finding,) = (one for one in ChangedFactsFitCheck().evaluate(run).findings if one.rule in ROOTS)
        assert (finding.rule, finding.severity) == ("writable-root", severity)


@pytest.mark.parametrize("rule", ROOTS)
def test_a_check_that_misses_a_known_bad_root_is_not_trusted(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    whole = read_only_root.root_findings
    monkeypatch.setattr(gate, "root_findings", lambda *given: (one for one in whole(*given) if one.rule != rule))
    with pytest.raises(UntrustedError, match="root"):
        evaluate_fit([], lambda _: None, lambda: None)
