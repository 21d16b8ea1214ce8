"""A change of the pin between two real versions of the tool: an organisation's gate takes the next one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from neuroscale import __version__
from pin_lab import NEW_FIELD, NEW_TEMPLATE, NEWER, TwoVersions, two_versions, upgraded

pytestmark = [pytest.mark.tools, pytest.mark.slow]

POLICY = "policies/no-legacy-deployment-mode/policy.yaml"
EDITS = {**NEW_FIELD, **NEW_TEMPLATE, POLICY: lambda text: f"{text}# Newer.\n"}
"""A field of the catalog with a value in a delivered file, a policy and the template."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> TwoVersions:
    folder = tmp_path_factory.mktemp("versions")
    made = two_versions(folder, EDITS)
    example = next(iter(sorted((made.adopter.root / "templates/examples").glob("gemma*qat.yaml"))))
    done = made.adopter.run("new", "--answers", example)
    assert done.returncode == 0, done.stderr
    made.adopter.git("add", "--all")
    made.adopter.git("commit", "--quiet", "--message=A service")
    return replace(made, newer_tool=upgraded(made, folder))


def test_the_next_version_passes_where_a_token_is_in_reach_and_the_verdict_names_both_tools(two: TwoVersions) -> None:
    status, verdict, printed = two.gate("upgrade", "--only-read-head")
    assert status == 0, printed
    (note,) = [note for note in verdict["notes"] if note.startswith("Judged by")]
    assert note == f"Judged by neuroscale {__version__}, the base's pin, and by {NEWER}, the change's."
    assert verdict["tool_version"] == __version__
    checks = {check["name"]: check["outcome"] for check in verdict["checks"]}
    assert {"pin", "catalog", "drift", "effects", "effects-fit", "fit", "platform", "cost"} <= set(checks)
    assert {outcome for name, outcome in checks.items() if name != "server"} == {"passed"}
    fields = {value["field"] for value in verdict["altered"]["values"] if value["file"].endswith("nvidia-l4.yaml")}
    assert fields == {"shelf"}


def test_an_upgrade_smuggles_in_neither_a_loosened_policy_nor_a_service_over_budget(
    two: TwoVersions, tmp_path: Path
) -> None:
    """The field that the base does not know would keep it from reading prices, and so from counting."""
    adopter = two.adopter
    adopter.git("switch", "--quiet", "--create", "smuggled", "upgrade")
    policy = adopter.root / POLICY
    policy.write_text(policy.read_text().replace("'Knative']", "'Knative', 'Any']"))
    example = next(iter(sorted((adopter.root / "templates/examples").glob("gemma*qat.yaml"))))
    text = example.read_text().replace("support-chat", "everybody")
    (tmp_path / "request.yaml").write_text(re.sub(r"concurrent_users: \d+", "concurrent_users: 100", text))
    done = two.newer_tool.run("new", "--answers", tmp_path / "request.yaml")
    assert done.returncode == 0, done.stderr
    adopter.git("add", "--all")
    adopter.git("commit", "--quiet", "--message=And more")
    status, verdict, printed = two.gate("smuggled")
    assert status == 1, printed
    errors = {(one["gate"], one["rule"]) for one in verdict["findings"] if one["severity"] == "error"}
    assert {("platform", "not-delivered"), ("cost", "over-budget")} <= errors
