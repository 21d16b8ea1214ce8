"""Services of production environments: two replicas, a PodDisruptionBudget, images by digest, removals, exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale.catalog.settings import PRODUCTION_RULES, ProductionRules
from neuroscale.core.yaml_io import dump
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.checks import production
from neuroscale.gate.checks.production import ProductionCheck, production_tripwires
from neuroscale.gate.evaluation import GateResult
from neuroscale.gate.judged_files import GateInput, ServiceFolder
from neuroscale.gate.verdict import Outcome, Severity
from neuroscale.manifests.objects import read_manifests
from neuroscale.manifests.pod_sets import pods_kept, selects
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import RENDERED_KINDS, ServicePath
from neuroscale.repo.snapshot import MemorySnapshot, read_all
from neuroscale.request.service_request import Override
from plan_factory import ANSWERS, make_request
from platform_repository import CATALOG, PLATFORM, SETTINGS, SNAPSHOT

TODAY = date(2026, 11, 21)
SERVICE = ServicePath("prod", "support-chat")
FILES = read_all(SNAPSHOT, SNAPSHOT.entries("platform/settings.yaml", "platform/serving", "policies"))
ALL_BLOCK = {"environments": ["prod"], **dict.fromkeys(set(ProductionRules.model_fields) - {"environments"}, "block")}
BUDGET = f"{SERVICE.folder}/poddisruptionbudget.yaml"
ISVC = f"{SERVICE.folder}/inferenceservice.yaml"
LOOSE, PINNED = "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-4-12B-it-qat-w4a16-ct"
"""Models of the Hub whose entry has no revision, and has one."""
DIGEST = f"@sha256:{'a' * 64}"
REMOVAL = "production-removal"
ONE_REPLICA = "its predictor may run 1 replica: nothing answers while that node drains"


def rendered(
    availability: str = "high", overrides: tuple[Override, ...] = (), model: str = ANSWERS["model"]
) -> dict[str, bytes]:
    """The files of a service of production."""
    answers = {**ANSWERS, "environment": SERVICE.environment, "availability": availability, "model": model}
    request = make_request(**answers, overrides=overrides)
    made = plan(request, CATALOG, SETTINGS, PLATFORM.template.version)
    files = render(request, made, PLATFORM.template)
    return {f"{SERVICE.folder}/{name}": text.encode() for name, text in files.items()}


def with_rules(**rules: Any) -> dict[str, bytes]:
    value = yaml.safe_load(FILES["platform/settings.yaml"])
    return {**FILES, "platform/settings.yaml": dump({**value, "production": rules}).encode()}


def judged(
    files: Mapping[str, bytes],
    platform: Mapping[str, bytes] = FILES,
    *,
    service: ServicePath = SERVICE,
    head: Mapping[str, bytes] | None = None,
) -> GateResult | None:
    """The check's result. `platform`: the files of the base; `head`: those of the change, if they differ."""
    snapshot = MemorySnapshot({**(head or platform), **files})
    folder = ServiceFolder(service, "added", tuple(snapshot.entries(service.folder)))
    given = GateInput(snapshot, (folder,))
    run = Run(Subject(given, list, snapshot if head is None else MemorySnapshot(platform)), TODAY, Path())
    manifests = tuple(
        one
        for name in RENDERED_KINDS
        if (data := files.get(f"{service.folder}/{name}"))
        for one in read_manifests(data, f"{service.folder}/{name}", service)
    )
    return begin(ProductionCheck(), run.ended_with("files", None, manifests))()


def told(result: GateResult | None, severity: Severity = Severity.ERROR) -> dict[str, str]:
    assert result is not None
    return {one.rule: one.message for one in result.findings if one.severity is severity}


def test_what_the_planner_makes_for_production_passes_and_only_its_tag_is_named() -> None:
    result = judged(rendered())
    assert result is not None
    assert (result.check.outcome, result.check.evaluated, result.check.tripwires_caught) == (Outcome.PASSED, 1, 11)
    assert [*told(result, Severity.NOTICE)] == ["production-image-digest"]


def test_one_replica_is_refused_at_its_line_with_the_two_ways_out() -> None:
    result = judged(rendered("standard"))
    assert told(result) == {"production-replicas": ONE_REPLICA}
    assert result is not None
    (finding,) = (one for one in result.findings if one.severity is Severity.ERROR)
    assert finding.file == ISVC
    assert finding.line is not None
    assert "minReplicas: 1" in rendered("standard")[ISVC].decode().splitlines()[finding.line - 1]
    assert "Answer high" in finding.fix
    assert "override replicas.min" in finding.fix


@pytest.mark.parametrize(
    ("expires", "reason", "severity"),
    [
        ("2027-01-31", "A trial for ten users of one team.", Severity.NOTICE),
        ("2026-11-20", "A trial for ten users of one team.", Severity.ERROR),
        ("2027-01-31", "because", Severity.ERROR),
    ],
)
def test_an_override_of_the_replicas_is_a_recorded_exception_while_it_holds(
    expires: str, reason: str, severity: Severity
) -> None:
    override = Override(field="replicas.min", value=1, reason=reason, expires=date.fromisoformat(expires))
    message = told(judged(rendered(overrides=(override,))), severity)["production-replicas"]
    assert message.startswith(ONE_REPLICA)
    assert (f"in force until {expires}: {reason}" in message) == (severity is Severity.NOTICE)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("maxUnavailable: 0", "keeps 2 of 2 pods of its predictor: no node can drain"),
        ("minAvailable: 2", "keeps 2 of 2 pods of its predictor: no node can drain"),
        ('minAvailable: "100%"', "keeps 2 of 2 pods of its predictor: no node can drain"),
        ("unhealthyPodEvictionPolicy: AlwaysAllow", "keeps 2 of 2 pods of its predictor: no node can drain"),
        ("maxUnavailable: 2", "its PodDisruptionBudget keeps none of the 2 pods"),
        ('maxUnavailable: "60%"', "its PodDisruptionBudget keeps none of the 2 pods"),
        ("minAvailable: 0", "its PodDisruptionBudget keeps none of the 2 pods"),
        ("maxUnavailable: 1\n  minAvailable: 1", "cannot be read: it has both maxUnavailable and minAvailable"),
        ("maxUnavailable: one", "cannot be read: 'one' is neither a count nor a percentage"),
        ("", "no PodDisruptionBudget keeps one of the 2 pods"),
    ],
)
def test_a_budget_lets_a_node_drain_and_keeps_a_pod(budget: str, message: str) -> None:
    files = rendered()
    if budget:
        files[BUDGET] = files[BUDGET].replace(b"maxUnavailable: 1", budget.encode())
    else:
        files.pop(BUDGET)
    assert message in told(judged(files))["production-disruption-budget"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    matchLabels:\n      serving", "    matchLabels:\n      app: other\n      serving"),
        ("    matchLabels:\n      serving", "    matchLabels:\n      app: support-chat\n      serving"),
        ("namespace: team-alpha", "namespace: team-beta"),
    ],
)
def test_a_budget_of_other_pods_is_none(old: str, new: str) -> None:
    files = rendered()
    assert old in files[BUDGET].decode()
    files[BUDGET] = files[BUDGET].replace(old.encode(), new.encode(), 1)
    assert "no PodDisruptionBudget keeps one" in told(judged(files))["production-disruption-budget"]


def test_two_budgets_of_the_same_pods_let_no_node_drain() -> None:
    files = rendered()
    files[BUDGET] += b"---\n" + files[BUDGET].replace(b"name: support-chat\n  namespace", b"name: second\n  namespace")
    message = told(judged(files))["production-disruption-budget"]
    assert message == "2 PodDisruptionBudgets select the pods of its predictor: no node can drain"


def test_every_image_has_a_digest_where_the_settings_demand_it() -> None:
    files, platform = rendered(), with_rules(**ALL_BLOCK)
    assert [*told(judged(files, platform))] == ["production-image-digest"]
    image = next(line for line in files[ISVC].splitlines() if line.strip().startswith(b"image:"))
    by_digest = image.rstrip(b'"') + f'{DIGEST}"'.encode()
    files[ISVC] = files[ISVC].replace(image, by_digest)
    result = judged(files, platform)
    assert result is not None
    assert (result.check.outcome, result.findings) == (Outcome.PASSED, ())
    sidecar = b"    initContainers:\n      - name: first\n        image: example.com/first:1.0.0\n    volumes:\n"
    files[ISVC] = files[ISVC].replace(b"    volumes:\n", sidecar)
    assert "example.com/first:1.0.0" in told(judged(files, platform))["production-image-digest"]


def test_a_model_from_an_image_has_a_digest() -> None:
    files, platform = rendered(), with_rules(environments=["prod"], image_digest="block")
    line = next(line for line in files[ISVC].decode().splitlines() if line.strip().startswith("storageUri:"))
    for address, refused in (("oci://example.com/m:1", True), (f"oci://example.com/m{DIGEST}", False)):
        changed = files[ISVC].replace(line.encode(), f"{line.partition(':')[0]}: {address}".encode())
        message = told(judged({**files, ISVC: changed}, platform))["production-image-digest"]
        assert (f"{address} is an image without a digest" in message) is refused


def test_a_model_of_the_hub_has_a_commit_and_the_finding_says_how_to_enter_it() -> None:
    files = rendered(model=LOOSE)
    result = judged(files)
    assert result is not None
    (finding,) = (one for one in result.findings if one.severity is Severity.ERROR)
    assert finding.rule == "production-model-revision"
    assert finding.message == f"loads {LOOSE} from the Hub without a revision: each start takes whatever is newest"
    assert finding.fix.startswith(
        f"Run `neuroscale catalog add {LOOSE}`, which enters the newest commit of the Hub, and"
    )
    assert f"`neuroscale replan {SERVICE.folder}`" in finding.fix
    assert finding.line is not None
    assert f"--model={LOOSE}" in files[ISVC].decode().splitlines()[finding.line - 1]


def test_a_revision_that_the_catalog_holds_is_enough() -> None:
    files = rendered(model=PINNED)
    assert f"--revision={CATALOG.models[PINNED].weights.revision}".encode() in files[ISVC]
    assert told(judged(files)) == {}
    for revision in ("main", "v1.0", "1d2c2d7", "1" * 41):
        line = next(line for line in files[ISVC].splitlines() if b"--revision=" in line)
        changed = files[ISVC].replace(line, line.partition(b"--revision=")[0] + f'--revision={revision}"'.encode())
        message = told(judged({**files, ISVC: changed}))["production-model-revision"]
        assert f"with a revision that is not a commit ({revision})" in message


@pytest.mark.parametrize(
    ("field", "refused"),
    [
        ("storageUri: hf://owner/name", True),
        (f"storageUri: hf://owner/name:{'a' * 40}", False),
        (f"storageUri: hf://owner/name:{'A' * 40}", True),
        ("storage: {path: owner/name, parameters: {type: hf}}", True),
        (f"storage: {{path: 'owner/name:{'a' * 40}', parameters: {{type: hf}}}}", False),
        ('speculative: \'--speculative-config={"model": "owner/draft"}\'', True),
        (f'speculative: \'--speculative-config={{"model": "owner/draft", "revision": "{"a" * 40}"}}\'', False),
        ("runtime: vllm-of-another-team", True),
    ],
)
def test_every_way_to_load_from_the_hub_is_judged(field: str, refused: bool) -> None:
    value = yaml.safe_load(rendered()[ISVC])
    model = value["spec"]["predictor"]["model"]
    key, content = next(iter(yaml.safe_load(field).items()))
    if key == "speculative":
        model["args"].append(content)
    elif key == "runtime":
        model["runtime"], model["args"] = content, []
        model.pop("image", None)
        model.pop("command", None)
    else:
        model[key] = content
    result = judged({**rendered(), ISVC: dump(value).encode()})
    assert ("production-model-revision" in told(result)) is refused


def test_pods_that_the_files_do_not_show_are_not_counted_as_good() -> None:
    files = rendered()
    files[ISVC] = files[ISVC].replace(b"autoscalerClass: none", b"autoscalerClass: strange")
    found = told(judged(files, with_rules(**ALL_BLOCK)))
    assert {*found} == {*PRODUCTION_RULES} - {"production-model-revision", REMOVAL}
    assert "is not known: its autoscaler class 'strange'" in found["production-replicas"]


def exception(rule: str, expires: str = "2027-01-31") -> dict[str, bytes]:
    value = {
        "schema_version": 1,
        "policy": rule,
        "kind": "InferenceService",
        "namespace": "team-alpha",
        "name": "support-chat",
        "reason": "The registry that has the digest opens in May.",
        "approved_by": "platform-team",
        "expires": expires,
    }
    return {"policies/exceptions/support-chat.yaml": dump(value).encode()}


@pytest.mark.parametrize("rule", [rule for rule in PRODUCTION_RULES if rule != REMOVAL])
def test_an_exception_of_the_base_lifts_one_rule_for_one_service_until_it_ends(rule: str) -> None:
    files = rendered("standard" if rule == "production-replicas" else "high")
    if rule == "production-model-revision":
        files = rendered(model=LOOSE)
    if rule == "production-disruption-budget":
        files.pop(BUDGET)
    platform = with_rules(**ALL_BLOCK)
    assert rule in told(judged(files, platform))
    held = judged(files, {**platform, **exception(rule)})
    assert rule not in told(held)
    assert "excepted by policies/exceptions/support-chat.yaml until 2027-01-31" in told(held, Severity.NOTICE)[rule]
    assert "expired on 2026-11-20" in told(judged(files, {**platform, **exception(rule, "2026-11-20")}))[rule]
    # The change's own exception excepts nothing.
    assert rule in told(judged(files, platform, head={**platform, **exception(rule)}))


def test_an_exception_that_nothing_needs_is_named() -> None:
    found = told(judged(rendered(), {**FILES, **exception("production-replicas")}), Severity.NOTICE)
    assert "the policy production-replicas does not refuse it" in found["exception-unneeded"]


@pytest.mark.parametrize(("level", "outcome"), [("off", None), ("warn", Outcome.PASSED), ("block", Outcome.FINDINGS)])
def test_the_bases_settings_decide_what_refuses(level: str, outcome: Outcome | None) -> None:
    files = rendered("standard")
    rules = with_rules(environments=["prod"], replicas=level)
    result = judged(files, rules, head=with_rules(environments=["prod"], replicas="off"))
    assert (result and result.check.outcome) == outcome


def test_other_environments_are_left_alone() -> None:
    assert judged(rendered("standard"), with_rules(**{**ALL_BLOCK, "environments": ["dev"]})) is None
    assert judged(rendered("standard"), with_rules()) is None


@pytest.mark.parametrize("number", range(8))
def test_a_tripwire_that_comes_back_clean_ends_the_trust(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    traps = list(production_tripwires())
    good = (traps[1].objects[0], traps[0].objects[1])
    traps[number] = replace(traps[number], objects=good)
    monkeypatch.setattr(production, "production_tripwires", lambda: tuple(traps))
    result = judged(rendered())
    assert result is not None
    assert (result.check.outcome, "did not catch its tripwire" in result.check.detail) == (Outcome.UNTRUSTED, True)


def removed(
    *services: str,
    stay: Sequence[str] = (),
    added: Sequence[str] = (),
    base: Mapping[str, bytes] = FILES,
    head: Mapping[str, bytes] = FILES,
) -> GateResult | None:
    """The check's result for a change that removes services (`ENVIRONMENT/NAME`) and adds some, while others `stay`."""
    isvc = rendered()[ISVC]

    def files(names: Sequence[str]) -> dict[str, bytes]:
        return {
            f"manifests/{name}/inferenceservice.yaml": isvc.replace(b"support-chat", name.split("/")[1].encode())
            for name in names
        }

    before, after = files(services), MemorySnapshot({**head, **files([*stay, *added])})
    gone = [ServiceFolder(ServicePath(*one.split("/")), "removed", ()) for one in services]
    new = [ServiceFolder(ServicePath(*one.split("/")), "added", ()) for one in added]
    given = GateInput(after, (*gone, *new))
    return begin(ProductionCheck(), Run(Subject(given, list, MemorySnapshot({**base, **before})), TODAY, Path()))()


def test_services_of_production_that_a_change_removes_together_are_named() -> None:
    result = removed("prod/chat", "prod/code", "dev/trial", stay=["prod/search"])
    assert result is not None
    assert result.check.outcome is Outcome.PASSED
    assert [(one.file, one.severity, one.message) for one in result.findings] == [
        (
            f"manifests/prod/{one}",
            Severity.NOTICE,
            f"is removed together with prod/{other}, and 1 service of prod stays",
        )
        for one, other in (("chat", "code"), ("code", "chat"))
    ]
    assert told(removed("prod/chat", "prod/code"), Severity.NOTICE)[REMOVAL].endswith("no other service of prod stays")


def test_the_last_service_of_production_is_named_and_one_of_several_may_retire() -> None:
    last = told(removed("prod/chat", stay=["dev/chat"]), Severity.NOTICE)
    assert last == {REMOVAL: "is removed, and no other service of prod stays"}
    assert told(removed("prod/chat", added=["prod/other"]), Severity.NOTICE) == last
    assert removed("prod/chat", stay=["prod/search"]) is None
    assert removed("dev/chat", "dev/code") is None


def test_the_bases_rule_and_environments_decide_over_removals() -> None:
    block = with_rules(environments=["prod"], removal="block")
    assert removed("prod/chat", base=with_rules(environments=["prod"], removal="off")) is None
    for head in (with_rules(environments=["prod"], removal="off"), with_rules(environments=[], removal="block")):
        assert [*told(removed("prod/chat", base=block, head=head))] == [REMOVAL]
    lifted = removed("prod/support-chat", base={**block, **exception(REMOVAL)})
    assert "excepted by policies/exceptions/support-chat.yaml" in told(lifted, Severity.NOTICE)[REMOVAL]
    expired = removed("prod/support-chat", base={**block, **exception(REMOVAL, "2026-11-20")})
    assert "expired on 2026-11-20" in told(expired)[REMOVAL]


def test_a_removal_that_goes_unnoticed_ends_the_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "removals", lambda *_: [])
    result = judged(rendered())
    assert result is not None
    assert (result.check.outcome, "tripwire" in result.check.detail) == (Outcome.UNTRUSTED, True)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "chat"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat", "b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["chat"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_selector_is_read_as_kubernetes_reads_it(selector: dict[str, Any] | None, chosen: bool) -> None:
    assert selects({"selector": selector}, {"app": "chat"}) is chosen


@pytest.mark.parametrize(
    ("spec", "replicas", "kept"),
    [
        ({"maxUnavailable": "30%"}, 3, 2),
        ({"maxUnavailable": "34%"}, 3, 1),
        ({"minAvailable": "34%"}, 3, 2),
        ({"minAvailable": 5}, 3, 3),
        ({"maxUnavailable": 5}, 3, 0),
    ],
)
def test_percentages_of_a_budget_round_up(spec: dict[str, Any], replicas: int, kept: int) -> None:
    assert pods_kept(spec, replicas) == kept
