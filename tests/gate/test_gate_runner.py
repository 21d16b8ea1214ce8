"""The whole gate on a copy of this repository: what a pull request can do, and what the gate answers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from gate_lab import ISVC, SERVICE, check, edit, gate, pristine, repository, rules
from neuroscale.cli.gate import run_gate
from neuroscale.cli.new import new_service
from neuroscale.cli.options import Reports
from neuroscale.cli.platform import render_platform
from neuroscale.cli.policy import make_policy
from neuroscale.cli.render import render_request
from neuroscale.cli.replan import replan_service
from neuroscale.gate import faults_of_base
from neuroscale.gate.check import Run, Subject
from neuroscale.gate.evaluation import Evaluation, GateResult, guarded
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.verdict import Check, Finding, Outcome, Severity
from neuroscale.repo.snapshot import MemorySnapshot
from plan_factory import ANSWERS
from policies_support import fixtures
from repositories import Repository
from roots import ROOT

__all__ = ["pristine", "repository"]

pytestmark = pytest.mark.tools


def test_a_service_as_the_platform_makes_it_passes(repository: Repository) -> None:
    verdict = gate(repository)
    assert (verdict["exit_status"], verdict["findings"]) == (0, [])
    assert {item["name"] for item in verdict["checks"] if item["outcome"] != "passed"} == {"server"}
    policies = check(verdict, "policy")
    assert policies["tripwires"] == policies["tripwires_caught"] == len(list((ROOT / "policies").glob("*/policy.yaml")))
    (service,) = verdict["services"]
    assert (service["name"], service["change"], service["plan"]["accelerator"]) == (
        "support-chat",
        "added",
        "nvidia-l4",
    )


def test_services_of_models_with_states_pass_and_one_with_too_little_memory_for_them_is_found(
    repository: Repository,
) -> None:
    base = repository.run("rev-parse", "HEAD")
    models = {"gated-delta": "nvidia/Qwen3.6-35B-A3B-NVFP4", "mamba": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"}
    for service, model in models.items():
        answers = repository.root.parent / f"{service}.json"
        answers.write_text(json.dumps({**ANSWERS, "service": service, "model": model, "p95_ttft_seconds": 30}))
        new_service(answers, repository.root, interactive=False)
    repository.commit({}, "Add two services")
    verdict = gate(repository, base=base)
    assert verdict["exit_status"] == 0
    # The catalog knows no commit of these models, and the Hub was not asked.
    assert {(item["severity"], item["rule"]) for item in verdict["findings"]} == {("notice", "unpinned-model")}
    assert {service["name"] for service in verdict["services"]} == set(models)
    text = (repository.root / "manifests/dev/mamba/inferenceservice.yaml").read_text()
    (at_once,) = re.findall(r"--max-num-seqs=(\d+)", text)
    assert 4 <= int(at_once) <= 8  # at least the users of the form, and room for as many more at most
    edit(
        repository,
        "manifests/dev/mamba/inferenceservice.yaml",
        lambda text: re.sub(r"gpu-memory-utilization=[\d.]+", "gpu-memory-utilization=0.4", text),
    )
    assert rules(gate(repository, base=base)) == {"drift/edited", "fit/does-not-fit"}


def test_a_folder_of_the_work_tree_passes_without_git(repository: Repository) -> None:
    shutil.rmtree(repository.root / ".git")
    assert gate(repository, "manifests")["exit_status"] == 0


def test_manifests_of_others_are_judged_without_drift_and_the_verdict_says_so(repository: Repository) -> None:
    shutil.copytree(repository.root / SERVICE, repository.root.parent / "theirs")
    for name in ("request.yaml", "plan.yaml", "catalog-info.yaml"):
        (repository.root.parent / "theirs" / name).unlink()
    verdict = gate(repository, "../theirs")
    assert verdict["exit_status"] == 0
    assert check(verdict, "drift")["outcome"] == "not_run"
    assert any("Drift" in line for line in verdict["not_checked"])


def test_a_change_with_nothing_to_check_passes_and_runs_its_tripwires_all_the_same(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    repository.commit({"README.md": "hello"})
    verdict = gate(repository, base=base)
    assert verdict["exit_status"] == 0
    assert "Nothing to check" in verdict["headline"]
    ran = [item for item in verdict["checks"] if item["name"] != "server"]
    assert all(item["tripwires"] == item["tripwires_caught"] > 0 for item in ran)


def test_a_change_outside_manifests_that_no_checkout_should_get_is_refused(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    repository.commit({".venv/bin/python": "#!/bin/sh\n", "docs/\udce9/.state/x": "", "src/.gitattributes": "* ident"})
    verdict = gate(repository, base=base, only_read_head=True)
    assert verdict["exit_status"] == 1
    assert rules(verdict) >= {"files/written-path", "files/attributes"}
    files = check(verdict, "files")
    assert files["outcome"] == "findings"
    assert files["tripwires"] == files["tripwires_caught"] > 15


def test_removing_a_service_passes(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    repository.run("rm", "--quiet", "-r", SERVICE)
    repository.commit({})
    verdict = gate(repository, base=base)
    assert verdict["exit_status"] == 0
    assert [item["change"] for item in verdict["services"]] == ["removed"]
    assert rules(verdict, "notice") == {"files/removed-service"}


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (ISVC, "v0.32.0", "latest", {"policy/no-mutable-image-tags", "drift/edited"}),
        (ISVC, "    cost-center: cc-ml-inference\n", "", {"drift/edited", "policy/ownership-labels"}),
        (ISVC, "minReplicas: 1", "minReplicas: one", {"schema/invalid", "drift/edited"}),
        (ISVC, "predictor:", "predicter:", {"schema/invalid", "drift/edited"}),
        (ISVC, "  namespace: team-alpha", "  namespace: kube-system", {"files/wrong-namespace", "drift/edited"}),
        (ISVC, "metadata:\n", "metadata:\n  name: twice\n", {"files/unreadable", "drift/edited"}),
        (f"{SERVICE}/networkpolicy.yaml", "port: 8080", "port: 8081", {"drift/edited"}),
        (f"{SERVICE}/poddisruptionbudget.yaml", "maxUnavailable: 1", "maxUnavailable: 0", {"drift/edited"}),
        (f"{SERVICE}/catalog-info.yaml", "owner: team-alpha", "owner: team-beta", {"drift/edited"}),
        (f"{SERVICE}/request.yaml", "concurrent_users: 4", "concurrent_users: 400", {"drift/outdated-plan"}),
        (f"{SERVICE}/request.yaml", "concurrent_users: 4", "concurrent_users: four", {"drift/request"}),
        (f"{SERVICE}/request.yaml", "service: support-chat", "service: other", {"drift/wrong-folder"}),
        (f"{SERVICE}/plan.yaml", "max_concurrency:", "max_concurency:", {"drift/plan"}),
    ],
)  # fmt: skip
def test_each_edit_by_hand_is_found_by_its_own_gate(
    repository: Repository, file: str, old: str, new: str, expected: set[str]
) -> None:
    edit(repository, file, lambda text: text.replace(old, new, 1))
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    assert expected <= rules(verdict)
    assert all(item["message"] and item["fix"] for item in verdict["findings"])


def test_a_folder_from_before_the_file_for_the_catalog_passes(repository: Repository) -> None:
    repository.commit({f"{SERVICE}/catalog-info.yaml": None})
    assert gate(repository)["exit_status"] == 0


def test_a_lock_that_was_edited_together_with_its_manifests_is_found(repository: Repository) -> None:
    """Request, plan and manifests agree with each other, but the planner never said so."""
    edit(repository, f"{SERVICE}/plan.yaml", lambda text: text.replace("max_concurrency: ", "max_concurrency: 9", 1))
    render_request(repository.root / SERVICE / "request.yaml", None, repository.root)
    repository.commit({})
    assert rules(gate(repository)) == {"drift/edited-plan"}


@pytest.mark.parametrize(("old", "new", "same_pods"), [("users: 4", "users: 2", False), ("3.0", "3.1", True)])
def test_a_change_tells_old_and_new_answers_and_whether_the_pods_stay(
    repository: Repository, old: str, new: str, same_pods: bool
) -> None:
    base = repository.run("rev-parse", "HEAD")
    path = repository.root / SERVICE / "request.yaml"
    path.write_text(path.read_text().replace(old, new))
    replan_service("support-chat", repository.root)
    repository.commit({})
    verdict = gate(repository, base=base)
    (service,) = verdict["services"]
    (answer,) = service["answers"]
    assert (answer["before"], answer["after"]) == (old.split()[-1], new.split()[-1])
    assert service["same_pods"] is same_pods
    assert service["quota"] == 64
    assert verdict["exit_status"] == 0


def test_a_new_price_is_a_notice_and_moves_no_manifest(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    prices = repository.root / "platform/catalog/prices/google-cloud.yaml"
    edit(
        repository,
        prices.relative_to(repository.root).as_posix(),
        lambda text: text.replace('"0.72"', '"0.82"'),
    )
    verdict = gate(repository, base=base)
    assert (verdict["exit_status"], rules(verdict)) == (0, set())
    assert rules(verdict, "notice") == {"drift/old-lock"}
    replan_service("support-chat", repository.root)
    replanned = repository.commit({})
    verdict = gate(repository, base=base)
    assert (verdict["exit_status"], verdict["findings"]) == (0, [])
    repository.run("revert", "--no-edit", "HEAD")
    verdict = gate(repository, base=replanned)
    assert (verdict["exit_status"], rules(verdict, "notice")) == (0, {"drift/restored-plan"})
    assert f"commit {base[:12]}" in verdict["findings"][0]["message"]


def test_changed_settings_are_a_notice_and_an_edited_lock_is_an_error(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    edit(repository, "platform/settings.yaml", lambda text: text.replace("max_replicas: ", "max_replicas: 9", 1))
    edit(
        repository,
        "platform/settings.yaml",
        lambda text: re.sub(r"(dev:.*?max_replicas: )", r"\g<1>9", text, flags=re.S),
    )
    verdict = gate(repository, base=base)
    assert (verdict["exit_status"], rules(verdict, "notice")) == (0, {"drift/old-lock", "change/weaker-rule"})


def test_an_old_lock_brought_in_by_a_change_is_found(repository: Repository) -> None:
    """The lock names another catalog, so its plan cannot be told from one that was edited."""
    edit(
        repository,
        f"{SERVICE}/plan.yaml",
        lambda text: text.replace("planner_version: ", "planner_version: 0", 1).replace(
            "max_concurrency: ", "max_concurrency: 9", 1
        ),
    )
    render_request(repository.root / SERVICE / "request.yaml", None, repository.root)
    repository.commit({})
    assert "drift/edited-plan" in rules(gate(repository))


def test_an_expired_override_is_found(repository: Repository) -> None:
    override = '\noverrides:\n  - field: max_num_seqs\n    value: 8\n    reason: trial\n    expires: "2026-01-01"\n'
    edit(repository, f"{SERVICE}/request.yaml", lambda text: text.replace("\noverrides: []\n", override))
    replan_service("support-chat", repository.root)
    repository.commit({})
    assert rules(gate(repository)) == {"drift/override-expired"}


def test_a_typo_in_the_catalog_is_a_finding_with_file_and_line(repository: Repository) -> None:
    edit(
        repository,
        "platform/catalog/accelerators/nvidia-l4.yaml",
        lambda text: (
            text.replace("schema_version", "schema_verson", 1)
            if "schema_version" in text
            else text.replace("name:", "nmae:", 1)
        ),
    )
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    found = [item for item in verdict["findings"] if item["gate"] == "catalog"]
    assert found
    assert all(item["file"].startswith("platform/catalog/accelerators/nvidia-l4.yaml") for item in found)
    assert check(verdict, "drift")["outcome"] == "not_run"


def test_a_change_cannot_weaken_the_policy_that_judges_it(repository: Repository) -> None:
    policy = "policies/no-mutable-image-tags/policy.yaml"
    edit(
        repository,
        policy,
        lambda text: text.replace("- expression: size(variables.mutable) == 0", "- expression: 'true'"),
    )
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    verdict = gate(repository)
    assert "policy/no-mutable-image-tags" in rules(verdict)
    assert any("base's decided" in note for note in verdict["notes"])


def test_a_change_cannot_exempt_itself(repository: Repository) -> None:
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    exception = (
        "schema_version: 1\npolicy: no-mutable-image-tags\nkind: InferenceService\nnamespace: team-alpha\n"
        'name: support-chat\nreason: hurry\napproved_by: me\nexpires: "2099-01-01"\n'
    )
    repository.commit({"policies/exceptions/mine.yaml": exception})
    verdict = gate(repository)
    assert rules(verdict) >= {"policy/no-mutable-image-tags", "policy/exception-term"}
    assert {item["name"] for item in verdict["checks"]} & {"policy-of-head", "policy-tests"} == {"policy-of-head"}
    assert {item["file"] for item in verdict["findings"] if item["rule"] == "exception-term"} == {
        "policies/exceptions/mine.yaml"
    }


@pytest.mark.parametrize(
    "sabotage",
    [
        lambda text: text.replace("- expression: size(", "- expression: no_such_function() && size(", 1),
        lambda text: text.replace("- expression: size(variables.mutable) == 0", "- expression: 'true'"),
        lambda text: text.replace("resources: [inferenceservices]", "resources: [inferenceservice]"),
        lambda text: text.replace("apiVersions: [v1beta1]", "apiVersions: [v1]"),
        lambda text: text.replace("  validations:", "  validatons:"),
        lambda text: text.replace("validationActions: [Deny]", "validationActions: [Audit]"),
        lambda text: text.replace("kind: ValidatingPolicy", "kind: ConfigMap"),
        lambda text: text[: len(text) // 2],
    ],
    ids=["compile-error", "always-true", "wrong-plural", "wrong-version", "misspelt", "audit", "other-kind", "cut-off"],
)
def test_a_sabotaged_policy_of_the_base_makes_the_gate_untrusted(
    repository: Repository, sabotage: Callable[[str], str]
) -> None:
    repository.run("switch", "--quiet", "main")
    edit(repository, "policies/no-mutable-image-tags/policy.yaml", sabotage)
    repository.run("switch", "--quiet", "added")
    verdict = gate(repository)
    assert verdict["exit_status"] == 3
    assert check(verdict, "policy")["outcome"] == "untrusted"
    assert "cannot be trusted" in verdict["headline"]


def test_a_change_that_replaces_the_gate_is_judged_by_the_gate_it_replaces(repository: Repository) -> None:
    repository.commit({"src/neuroscale/cli/app.py": "import sys\n\n\ndef main() -> None:\n    sys.exit(0)\n"})
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    verdict = gate(repository)
    assert verdict["exit_status"] == 3
    assert "policy/no-mutable-image-tags" in rules(verdict)
    assert check(verdict, "gate-of-head")["outcome"] == "untrusted"
    assert any("gate's own code" in note for note in verdict["notes"])


def test_a_change_to_the_gate_that_still_works_passes_and_says_who_judged(repository: Repository) -> None:
    edit(repository, "src/neuroscale/gate/checks/drift.py", lambda text: text + "\n# A remark.\n")
    verdict = gate(repository)
    assert verdict["exit_status"] == 0
    assert check(verdict, "gate-of-head")["outcome"] == "passed"


def test_a_secret_is_found_in_a_commit_that_a_later_one_undid(repository: Repository) -> None:
    token = "hf_" + "QzBvTkxRrEwYpLmNsKdJfHgUiOaZxCvBnM"
    first = repository.commit({"notes.txt": f"token: {token}\n"}, "Add notes")
    repository.commit({"notes.txt": None}, "Remove notes")
    verdict = gate(repository)
    (finding,) = verdict["findings"]
    assert (finding["gate"], finding["file"], finding["line"]) == ("secrets", "notes.txt", 1)
    assert first[:7] in finding["message"]
    assert token not in json.dumps(verdict)


@pytest.mark.parametrize("place", ["message", "allow-comment", "utf-16", "ignore-file"])
def test_a_secret_cannot_hide(repository: Repository, place: str) -> None:
    token = "hf_" + "QzBvTkxRrEwYpLmNsKdJfHgUiOaZxCvBnM"
    if place == "message":
        repository.commit({}, f"Use {token}")
    elif place == "allow-comment":
        repository.commit({"a.txt": f"{token} # gitleaks:allow\n"})
    elif place == "utf-16":
        repository.commit({"a.txt": f"token: {token}\n".encode("utf-16")})
    else:
        repository.commit({"go.sum": f"token: {token}\n", ".gitleaks.toml": "[allowlist]\npaths = ['.*']\n"})
    assert any(rule.startswith("secrets/") for rule in rules(gate(repository)))


def test_a_missing_tool_is_untrusted_and_every_report_says_so(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "empty"))
    verdict = gate(repository)
    assert verdict["exit_status"] == 3
    assert {item["outcome"] for item in verdict["checks"] if item["name"] in ("policy", "schema", "secrets")} == {
        "untrusted"
    }
    assert "make setup" in json.dumps(verdict)


@pytest.mark.parametrize(
    ("paths", "base", "head", "word"),
    [
        (["nowhere"], "", "", "does not exist"),
        (["docs-only"], "", "", "holds no manifests"),
        ([], "main", "nowhere", "not a commit"),
        ([], "", "", "names neither"),
        (["manifests"], "main", "HEAD", "names neither"),
    ],
)
def test_input_that_cannot_be_judged_is_unusable_and_leaves_no_green_report(
    repository: Repository, paths: list[str], base: str, head: str, word: str
) -> None:
    (repository.root / "docs-only").mkdir()
    (repository.root / "docs-only/README.md").write_text("hi")
    report = repository.root.parent / "verdict.json"
    report.write_text('{"exit_status": 0}')
    given = [repository.root / path for path in paths]
    assert run_gate(given, base, head, repository.root, Reports(json=report)) == 2
    verdict = json.loads(report.read_text())
    assert verdict["exit_status"] == 2
    assert word in verdict["headline"]


def test_a_defect_of_the_gate_is_untrusted_and_not_a_traceback(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("neuroscale.gate.checks.schema.evaluate_schemas", broken)
    verdict = gate(repository)
    assert verdict["exit_status"] == 3
    assert "boom" in check(verdict, "schema")["detail"]
    monkeypatch.setattr("neuroscale.gate.runner.read_change", broken)
    assert gate(repository)["exit_status"] == 3


def test_untrusted_outranks_findings(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    edit(repository, ISVC, lambda text: text.replace("8080", "8081"))
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "empty"))
    verdict = gate(repository)
    assert verdict["exit_status"] == 3
    assert "drift/edited" in rules(verdict)


def test_many_new_services_are_each_judged(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for two Kyverno processes at once, each twice."""
    monkeypatch.setattr("neuroscale.gate.checks.policy._MOST_OBJECTS", 12)
    files: dict[str, bytes | str | None] = {}
    for number in range(20):
        for path in sorted((repository.root / SERVICE).iterdir()):
            text = path.read_text().replace("support-chat", f"chat-{number}")
            files[f"manifests/dev/chat-{number}/{path.name}"] = text
    repository.commit(files)
    verdict = gate(repository)
    assert check(verdict, "drift")["evaluated"] == 21
    assert check(verdict, "schema")["evaluated"] == 63
    # Their plans were copied, not planned: the request digest tells.
    assert rules(verdict) == {"drift/outdated-plan"}
    assert len(verdict["findings"]) == 20


@pytest.mark.slow
def test_a_change_to_a_policy_runs_its_tests_and_finds_what_it_broke(repository: Repository) -> None:
    """It fails if the test of a policy does not compare the place and the message that a bad object announces."""
    edit(repository, "policies/non-root/good.yaml", lambda text: text.replace("runAsUser: 1001", "runAsUser: 0", 1))
    cases = "policies/non-root/cases.yaml"
    edit(repository, cases, lambda text: text.replace("runAsUser: 0", "runAsUser: 1001", 1))
    elsewhere = 'message: "spec.predictor.explainer: '
    edit(repository, cases, lambda text: text.replace('message: "spec.predictor.model: ', elsewhere, 1))
    new = "description: >-\n      REPLACE: "
    edit(repository, "policies/non-root/policy.yaml", lambda text: text.replace("description: >-\n      ", new))
    edit(repository, "policies/non-root/policy.yaml", lambda text: text.replace("# Every pod spec", "# Each pod spec"))
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    assert {"policy-of-head/unfinished-policy", "policy-tests/shared-text"} <= rules(verdict)
    messages = [item["message"] for item in verdict["findings"] if item["rule"] == "non-root"]
    assert any(message.startswith("is refused: ") for message in messages)
    assert "is not refused" in messages
    wrong_place = "is refused with 'spec.predictor.model: .+', but announces 'spec.predictor.explainer: .+'"
    assert any(re.fullmatch(wrong_place, message) for message in messages)
    tests = check(verdict, "policy-tests")
    resources = [*fixtures("non-root", "good"), *fixtures("non-root", "bad")]
    assert tests["evaluated"] == tests["expected"] == len(resources) > 20


@pytest.mark.slow
def test_a_wider_list_of_registries_is_told_decides_once_it_is_merged_and_stands_in_settings_and_policy(
    repository: Repository,
) -> None:
    start = repository.run("rev-parse", "HEAD")
    settings, policy = "platform/settings.yaml", "policies/allowed-registries/policy.yaml"
    edit(repository, settings, lambda text: text.replace("registries:\n", "registries:\n  - docker.io/evil\n", 1))
    alone = gate(repository, base=start)
    assert alone["exit_status"] == 1
    assert ("platform/not-rendered", policy) in {
        (f"{one['gate']}/{one['rule']}", one["file"]) for one in alone["findings"]
    }
    render_platform(repository=repository.root)
    repository.commit({}, "Render the policy")
    both = gate(repository, base=start)
    assert both["exit_status"] == 0
    told = {(one["rule"], one["file"]) for one in both["findings"] if one["severity"] == "notice"}
    assert told >= {("weaker-rule", settings), ("changed-policy", policy)}

    edit(
        repository, ISVC, lambda text: re.sub(r"image: \S+", "image: docker.io/evil/vllm-openai:v0.32.0", text, count=1)
    )
    assert "policy/allowed-registries" in rules(gate(repository, base=start))
    assert "policy/allowed-registries" not in rules(gate(repository, base="HEAD~1"))
    text = (repository.root / settings).read_text()
    repository.commit({settings: text.replace("  - docker.io/evil\n", "")}, "Narrow the settings alone")
    assert "platform/not-rendered" in rules(gate(repository, base=start))


@pytest.mark.slow
def test_a_policy_of_ones_own_judges_services_once_it_is_merged_and_must_refuse_its_own_case(
    repository: Repository,
) -> None:
    make_policy("no-debug")
    policy = repository.root / "policies/no-debug/policy.yaml"
    text = policy.read_text().replace("REPLACE: ", "").replace("REPLACE this sentence", "write")
    policy.write_text(text.replace("!= 'refused'", "!= 'REFUSED'"))
    repository.commit({}, "Add a policy that refuses nothing")
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    assert rules(verdict) == {"policy-of-head/no-debug", "policy-tests/no-debug"}
    assert {one["file"] for one in verdict["findings"] if one["severity"] == "error"} == {
        "policies/no-debug/cases.yaml"
    }
    policy.write_text(text)
    repository.commit({}, "Correct the policy")
    assert gate(repository)["exit_status"] == 0
    base = repository.run("rev-parse", "HEAD")
    edit(
        repository,
        ISVC,
        lambda text: text.replace("  annotations:\n", "  annotations:\n    neuroscale.dev/no-debug: refused\n", 1),
    )
    verdict = gate(repository, base=base)
    assert rules(verdict) == {"policy/no-debug", "drift/edited"}
    assert check(verdict, "policy")["tripwires"] == len(list((ROOT / "policies").glob("*/policy.yaml"))) + 1


def test_the_cost_of_a_new_service_is_what_its_plan_says(repository: Repository) -> None:
    verdict = gate(repository)
    planned, cost = verdict["services"][0]["plan"], verdict["cost"]
    assert cost["total"]["past"] == {"min": "0.00", "max": "0.00"}
    assert cost["total"]["difference"] == {
        "min": planned["cost"]["monthly_min"],
        "max": planned["cost"]["monthly_max"],
    }
    (service,) = cost["services"]
    assert (service["change"], service["output_tokens"] is not None) == ("added", True)
    assert [center["cost_center"] for center in cost["cost_centers"]] == ["cc-ml-inference"]
    assert [used["date"] for used in cost["price_lists"]] == [planned["cost"]["price_date"]]
    text = (repository.root.parent / "verdict.md").read_text()
    assert "### Cost" in text
    assert f"**+{planned['cost']['monthly_min']}" in text


def test_replicas_edited_by_hand_are_refused_and_their_cost_is_told(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    edit(repository, ISVC, lambda text: re.sub(r"(min|max)Replicas: \d+", r"\1Replicas: 9", text))
    verdict = gate(repository, base=base)
    assert "drift/edited" in rules(verdict)
    difference = verdict["cost"]["total"]["difference"]
    assert difference["min"] == difference["max"]
    assert float(difference["min"]) > 0


def test_a_bound_that_nothing_scales_to_costs_nothing(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    edit(repository, ISVC, lambda text: re.sub(r"maxReplicas: \d+", "maxReplicas: 9", text))
    verdict = gate(repository, base=base)
    assert "drift/edited" in rules(verdict)
    assert verdict["cost"] is None


def test_a_change_that_costs_nothing_is_silent_about_cost(repository: Repository) -> None:
    base = repository.run("rev-parse", "HEAD")
    edit(
        repository,
        ISVC,
        lambda text: re.sub(r"terminationGracePeriodSeconds: \d+", "terminationGracePeriodSeconds: 61", text),
    )
    verdict = gate(repository, base=base)
    assert verdict["cost"] is None
    assert "### Cost" not in (repository.root.parent / "verdict.md").read_text()
    assert gate(repository, "manifests")["cost"] is None


def test_a_defect_in_the_cost_hides_no_finding_and_is_untrusted_where_a_rule_may_block(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("neuroscale.gate.checks.priced_change.compare", broken)
    edit(repository, ISVC, lambda text: text.replace("8080", "8081"))
    verdict = gate(repository)
    assert (verdict["exit_status"], verdict["cost"]) == (3, None)
    assert "boom" in check(verdict, "cost")["detail"]
    assert "drift/edited" in rules(verdict)
    # Without a rule that may block, a cost that nobody knows is named, and decides nothing.
    repository.run("switch", "--quiet", "main")
    edit(repository, "platform/settings.yaml", lambda text: text.replace("over_budget: block", "over_budget: warn"))
    verdict = gate(repository, base="main", head="added")
    assert (verdict["exit_status"], verdict["cost"]) == (1, None)
    assert any("cost is not known" in line and "boom" in line for line in verdict["not_checked"])


def test_a_change_cannot_make_a_service_fit_by_rewriting_the_facts(repository: Repository) -> None:
    repository.run("switch", "--quiet", "main")
    service = "manifests/dev/large-chat/inferenceservice.yaml"
    predictor = {
        "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        "containers": [
            {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.32.0",
                "args": ["--model=google/gemma-4-31B-it", "--max-model-len=4096"],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
    }
    value = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "large-chat", "namespace": "team-alpha"},
        "spec": {"predictor": predictor},
    }
    card = "platform/catalog/accelerators/nvidia-l4.yaml"
    larger = (repository.root / card).read_text().replace("value: 21.96", "value: 219.6")
    base = repository.run("rev-parse", "HEAD")
    repository.commit({service: json.dumps(value), card: larger}, "Serve it on a card of my own facts")
    verdict = gate(repository, base=base)
    assert "fit/does-not-fit" in rules(verdict)
    assert any("catalog" in note for note in verdict["notes"])
    assert check(verdict, "fit-of-head")["outcome"] == "passed"


def test_corrected_facts_are_held_against_the_services_that_are_there(repository: Repository) -> None:
    repository.run("branch", "--quiet", "--force", "main", "added")
    edit(
        repository,
        "platform/catalog/accelerators/nvidia-l4.yaml",
        lambda text: text.replace("value: 21.96", "value: 15.0"),
    )
    verdict = gate(repository)
    assert check(verdict, "fit")["outcome"] == "passed"
    assert check(verdict, "fit-of-head")["outcome"] == "findings"
    assert any(item["rule"] == "does-not-fit" and item["file"] == ISVC for item in verdict["findings"])


def test_a_skeleton_that_renders_what_a_policy_refuses_is_refused_and_shown(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no service on main: the examples show it."""
    repository.run("switch", "--quiet", "--create", "skeleton", "main")
    edit(
        repository,
        "templates/llm-inference-service/skeleton/inferenceservice.yaml",
        lambda text: text.replace(
            "    enableServiceLinks: false\n", "    enableServiceLinks: false\n    hostPID: true\n"
        ),
    )
    verdict = gate(repository)
    assert (verdict["exit_status"], rules(verdict)) == (1, {"policy/no-host-access"})
    (finding,) = verdict["findings"]
    assert finding["file"] == "templates/llm-inference-service/skeleton/inferenceservice.yaml"
    assert "more like it" in finding["message"]
    (shown,) = verdict["effects"]["differences"]
    assert (shown["kind"], shown["field"]) == ("InferenceService", "spec.predictor.hostPID")
    assert (shown["before"], shown["after"], shown["services"]) == (None, "true", verdict["effects"]["rendered"])
    markdown = (repository.root.parent / "verdict.md").read_text()
    assert "### What services would get" in markdown
    for report in (markdown.replace("`", ""), capsys.readouterr().out):
        assert "InferenceService spec.predictor.hostPID: not there → true (4 services, such as" in report


def test_a_broken_catalog_is_found_and_the_cost_is_named_as_unknown(repository: Repository) -> None:
    edit(repository, "platform/catalog/prices/google-cloud.yaml", lambda text: text.replace("vcpu_hour", "vcpu_hours"))
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    assert verdict["cost"] is None
    assert any("cost is not known" in line for line in verdict["not_checked"])


def test_a_broken_service_on_main_refuses_no_change_of_the_catalog_but_what_the_change_breaks_does(
    repository: Repository,
) -> None:
    price = "platform/catalog/prices/aws-us-east-1.yaml"
    other = repository.root.parent / "other.json"
    other.write_text(json.dumps({**ANSWERS, "service": "other"}))
    new_service(other, repository.root, interactive=False)
    repository.commit({}, "Add another service")
    # Drift, a command that does not fit, and a policy: three checks, of which one runs other programs.
    edit(repository, ISVC, lambda text: re.sub(r"--max-model-len=\d+", "--max-model-len=2000000", text))
    edit(repository, ISVC, lambda text: text.replace("runAsNonRoot: true", "runAsNonRoot: false"))
    base = repository.run("rev-parse", "HEAD")
    broken = {"drift/edited", "fit/does-not-fit", "policy/non-root"}

    edit(repository, price, lambda text: f"{text}# Looked at again.\n")
    verdict = gate(repository, base=base)
    assert (verdict["exit_status"], rules(verdict)) == (0, set()), verdict["headline"]
    assert broken <= rules(verdict, "notice")
    (drift,) = [one for one in verdict["findings"] if one["rule"] == "edited"]
    assert drift["message"].startswith("the base has this already, and the change leaves the service alone: differs")
    assert "1 finding that the base has, too" in check(verdict, "drift")["detail"]

    # The same service, which the change touches: it must be mended then.
    edit(repository, f"{SERVICE}/networkpolicy.yaml", lambda text: f"{text}# touched\n")
    verdict = gate(repository, base=base)
    assert verdict["exit_status"] == 1
    assert broken <= rules(verdict)
    repository.run("reset", "--quiet", "--hard", "HEAD~1")

    # A service that was right, and that the change of the catalog breaks.
    quota = "nvidia.com/gpu: 64"
    team = f"platform/catalog/teams/{ANSWERS['team']}.yaml"
    edit(repository, team, lambda text: text.replace(quota, "nvidia.com/gpu: 0"))
    render_platform(repository=repository.root)
    repository.commit({}, "Render")
    verdict = gate(repository, base=base)
    assert verdict["exit_status"] == 1
    red = {(one["file"].split("/")[2], one["rule"]) for one in verdict["findings"] if one["severity"] == "error"}
    assert ("other", "beyond-quota") in red
    assert ("support-chat", "beyond-quota") in red, "the broken one is broken otherwise now"


def test_only_what_the_base_refuses_in_the_same_words_is_excused() -> None:
    file = f"{SERVICE}/plan.yaml"
    fault = Finding(gate="drift", rule="beyond-quota", file=file, message="the quota holds 2", fix="Raise it.")

    def of(finding: Finding, outcome: Outcome = Outcome.FINDINGS) -> GateResult:
        return GateResult(Check(name="drift", title="Drift", outcome=outcome), (finding,))

    def excused(base: GateResult) -> tuple[Outcome, Severity]:
        run = _a_run().ended_with("drift", of(fault), None)
        left = {"drift": [fault]}
        (result,) = faults_of_base.with_faults_of_base_as_notices(
            run, left, _a_run().ended_with("drift", base, None)
        ).results
        return result.check.outcome, result.findings[0].severity

    red = (Outcome.FINDINGS, Severity.ERROR)
    assert excused(of(fault)) == (Outcome.PASSED, Severity.NOTICE)
    assert excused(of(fault.model_copy(update={"message": "the quota holds 3"}))) == red
    assert excused(of(fault.model_copy(update={"file": "manifests/dev/other/plan.yaml"}))) == red
    assert excused(of(fault.model_copy(update={"severity": Severity.NOTICE}))) == red, "the base only remarked it"
    assert excused(of(fault, Outcome.UNTRUSTED)) == red, "a check that cannot be trusted excuses nothing"


def test_what_the_bounds_of_a_verdict_cut_is_not_excused() -> None:
    def found(*messages: str, severity: Severity = Severity.ERROR) -> list[Finding]:
        file = f"{SERVICE}/plan.yaml"
        return [
            Finding(gate="drift", rule="edited", file=file, message=message, fix="Render.", severity=severity)
            for message in messages
        ]

    def ended(findings: list[Finding]) -> Run:
        result = guarded("drift", "Drift", lambda: Evaluation(tuple(findings), 1, 1, "files", 1, 1))
        return _a_run().ended_with("drift", result, None)

    def outcome(head: list[Finding], base: list[Finding]) -> Outcome:
        run = ended(head)
        left = {"drift": faults_of_base._errors(run.results[0])}
        (result,) = faults_of_base.with_faults_of_base_as_notices(run, left, ended(base)).results
        return result.check.outcome

    old = found(*map(str, range(1005)))
    noticed = found("a remark", severity=Severity.NOTICE)
    assert outcome(old[:1000], old[:1000]) is Outcome.PASSED
    assert outcome([*old, *found("new")], [*old, *noticed]) is Outcome.FINDINGS, "as many are not listed on each side"
    long = "a" * 2000
    assert outcome(found(long), found(long)) is Outcome.PASSED
    assert outcome(found(f"{long}b"), found(f"{long}c")) is Outcome.FINDINGS, "they differ where nobody sees it"


def _a_run() -> Run:
    snapshot = MemorySnapshot({})
    return Run(Subject(GateInput(snapshot), lambda: (), snapshot), date(2026, 11, 29), Path())
