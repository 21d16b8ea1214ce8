"""The gate of a change to the platform: what clusters get must be rendered, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neuroscale.cli.app import app
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.checks.platform_files import LOOKS_AT, PlatformFilesCheck, evaluate_platform, is_renderer_of
from neuroscale.gate.evaluation import GateResult
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.verdict import Check, Outcome, Severity
from neuroscale.rendering.platform.files import differences, is_rendered, render_repository, write
from neuroscale.repo.snapshot import FolderSnapshot
from platform_repository import copy_platform, edit
from repositories import Repository
from roots import CHECKOUT

pytestmark = pytest.mark.slow

TEAM = "platform/catalog/teams/team-alpha.yaml"


def rendered(root: Path) -> list[str]:
    """Render into the folder; returns what changed."""
    snapshot = FolderSnapshot(root)
    return write(root, snapshot, render_repository(snapshot))


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    return copy_platform(tmp_path / "platform")


def test_rendering_twice_changes_nothing_and_removes_what_is_not_wanted_any_more(platform: Path) -> None:
    assert rendered(platform) == []
    times = {path: path.stat().st_mtime_ns for path in platform.rglob("*")}
    assert rendered(platform) == []
    assert {path: path.stat().st_mtime_ns for path in platform.rglob("*")} == times
    (platform / TEAM).unlink()
    assert "platform/tenancy/team-alpha/access.yaml" in rendered(platform)
    assert not (platform / "platform/tenancy/team-alpha").exists()
    assert rendered(platform) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        # Sources without their rendering ...
        ("platform/settings.yaml", "default_branch: main", "default_branch: trunk", "argocd/dev/services.yaml"),
        (TEAM, "namespace: team-alpha", "namespace: alpha", "argocd/dev/projects.yaml"),
        (TEAM, "cpu: 512", "cpu: 5120", "tenancy/team-alpha/quota.yaml"),
        ("platform/catalog/runtimes/neuroscale-vllm-tpu.yaml", "v0.32.0", "v0.33.0", "serving/runtimes/"),
        ("platform/serving/kyverno.yaml", "replicas: 3", "replicas: 1", "clusters/gke/kyverno.yaml"),
        ("platform/clusters/charts.yaml", "version: 3.9.1", "version: 3.9.0", "clusters/eks/kyverno.yaml"),
        (TEAM, "namespace: team-alpha", "namespace: alpha", "monitoring/scrape.yaml"),
        ("platform/monitoring/alerts.yaml", "for: 30s", "for: 31s", "monitoring/prod/prometheusrule.yaml"),
        # ... and renderings that were edited.
        ("platform/monitoring/dev/podmonitor.yaml", "scheme: http", "scheme: https", "dev/podmonitor.yaml"),
        ("platform/tenancy/team-alpha/access.yaml", "[get, create]", "[get, create, delete]", "team-alpha/access.yaml"),
        ("platform/argocd/prod/projects.yaml", "clusterResourceWhitelist: []", "x: []", "argocd/prod/projects.yaml"),
    ],
)
def test_what_is_not_as_rendered_is_found_with_its_line_until_it_is_rendered(
    platform: Path, file: str, old: str, new: str, found: str
) -> None:
    edit(platform, file, old, new)
    evaluation = evaluate_platform(FolderSnapshot(platform))
    assert any(found in finding.file for finding in evaluation.findings)
    assert all(finding.line and "neuroscale platform render" in finding.fix for finding in evaluation.findings)
    rendered(platform)
    assert evaluate_platform(FolderSnapshot(platform)).findings == ()


def test_a_file_beside_the_rendered_ones_is_refused_because_argo_cd_would_apply_it(platform: Path) -> None:
    for path in (
        "platform/tenancy/team-alpha/extra.yaml",
        "platform/tenancy/extra.yaml",
        "platform/clusters/gke/extra.yaml",
        "platform/serving/runtimes/extra.yaml",
        "platform/monitoring/dev/extra.yaml",
    ):
        assert is_rendered(path)
        (platform / path).write_text("kind: ClusterRoleBinding\n")
        (finding,) = evaluate_platform(FolderSnapshot(platform)).findings
        assert (finding.file, finding.fix) == (path, "Remove it.")
        assert rendered(platform) == [path]


def test_a_symlink_in_the_place_of_a_rendered_file_is_refused_and_never_followed(
    platform: Path, tmp_path: Path
) -> None:
    target = platform / "platform/tenancy/team-alpha/quota.yaml"
    elsewhere = tmp_path / "elsewhere.yaml"
    target.rename(elsewhere)
    target.symlink_to(elsewhere)
    (finding,) = evaluate_platform(FolderSnapshot(platform)).findings
    assert "symlink" in finding.message
    with pytest.raises(Exception, match="symlink"):
        rendered(platform)


def test_a_team_in_a_namespace_that_kyverno_leaves_alone_is_refused(platform: Path) -> None:
    edit(platform, TEAM, "namespace: team-alpha", "namespace: kyverno")
    (finding,) = evaluate_platform(FolderSnapshot(platform)).findings
    assert finding.file == TEAM
    assert "Kyverno leaves alone" in finding.message


def test_a_value_that_makes_argo_cd_leave_out_its_file_is_refused(platform: Path) -> None:
    edit(platform, TEAM, "alpha@example.com", "+argocd:skip-file-rendering")
    (finding,) = evaluate_platform(FolderSnapshot(platform)).findings
    assert "leaves out" in finding.fix


@pytest.fixture
def repository(platform: Path) -> Iterator[Repository]:
    made = Repository(platform)
    made.commit({"src/neuroscale/rendering/platform/__init__.py": '"""Older."""\n'}, "platform")
    yield made
    made.git.close()


def evaluated(repository: Repository) -> GateResult | None:
    change = find_change(repository.git, "main~1", "main")
    subject = Subject(read_change(change), list, change.before, change)
    return begin(PlatformFilesCheck(), Run(subject, date(2026, 11, 21), Path()))()


def judged(repository: Repository) -> list[Check]:
    """What the gate's own run says of the platform in the newest commit."""
    result = evaluated(repository)
    return [] if result is None else [result.check]


def test_a_change_elsewhere_does_not_answer_for_what_was_left_on_main(repository: Repository) -> None:
    repository.commit({"platform/tenancy/left.yaml": "a: 1\n"})
    repository.commit({"README.md": "hello\n"})
    assert judged(repository) == []


def test_a_change_of_the_catalog_must_bring_its_rendering(repository: Repository) -> None:
    text = (repository.root / TEAM).read_text()
    repository.commit({TEAM: text.replace("cpu: 512", "cpu: 1")})
    (check,) = judged(repository)
    assert check.outcome is Outcome.FINDINGS
    repository.commit({TEAM: text})
    (check,) = judged(repository)
    assert (check.outcome, check.evaluated) == (Outcome.PASSED, check.expected)


def test_a_change_of_settings_with_one_domain_for_two_clusters_is_told_the_fix_and_passes(
    repository: Repository,
) -> None:
    edit(repository.root, "platform/settings.yaml", "    domain: dev.models.example.com\n", "")
    rendered(repository.root)
    assert not (repository.root / "platform/clusters/dev/upstream").exists()
    repository.commit({}, "one domain")
    result = evaluated(repository)
    assert result is not None
    assert [(one.rule, one.severity) for one in result.findings] == [("shared-domain", Severity.NOTICE)]
    assert "`domain: dev.models.example.com` below environments.dev" in result.findings[0].fix
    assert result.check.outcome is Outcome.PASSED
    status, said = command("--repository", str(repository.root))
    assert status == 0
    assert "Note: platform/settings.yaml: domain: models.example.com is the domain of dev and prod" in said


def test_a_runtime_whose_image_no_registry_of_the_settings_holds_is_told_and_passes(repository: Repository) -> None:
    file = "platform/catalog/runtimes/neuroscale-vllm.yaml"
    edit(repository.root, file, 'image: "vllm/', 'image: "registry.acme.example/vllm/')
    rendered(repository.root)
    repository.commit({}, "a mirror")
    result = evaluated(repository)
    assert result is not None
    assert [(one.rule, one.severity, one.file) for one in result.findings] == [
        ("image-not-allowed", Severity.NOTICE, file)
    ]
    assert "add its registry to `registries` in platform/settings.yaml" in result.findings[0].fix


def test_who_renders_otherwise_than_the_change_does_not_judge_it(repository: Repository) -> None:
    """The base's gate would refuse every change of a template together with its rendering."""
    older = {
        "src/neuroscale/rendering/platform/__init__.py": '"""Newer."""\n',
        TEAM: (repository.root / TEAM).read_text() + "\n",
    }
    repository.commit({**older})
    (check,) = judged(repository)
    assert check.outcome is Outcome.NOT_RUN
    here = CHECKOUT / "src/neuroscale/rendering/platform"
    same = {
        f"src/neuroscale/rendering/platform/{path.relative_to(here)}": path.read_bytes() for path in source_files(here)
    }
    repository.commit({**same})
    assert is_renderer_of(find_change(repository.git, "main~1", "main"))


def source_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".py", ".yaml")]


def test_it_looks_at_every_source_of_a_rendered_file() -> None:
    for path in ("platform/settings.yaml", TEAM, "platform/serving/kyverno.yaml", "platform/argocd/values.yaml"):
        assert any(path == place or path.startswith(f"{place}/") for place in LOOKS_AT)


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["platform", "render", *arguments])
    return done.exit_code, done.output


def test_the_command_writes_what_differs_and_its_check_only_says_so(platform: Path) -> None:
    here = ("--repository", str(platform))
    assert command("--check", *here)[0] == 0
    edit(platform, "platform/settings.yaml", "domain: models.example.com", "domain: models.example.org")
    before = {path: path.read_bytes() for path in platform.rglob("*") if path.is_file()}
    status, said = command("--check", *here)
    assert status == 1
    assert "platform/clusters/gke/kserve.yaml" in said
    assert {path: path.read_bytes() for path in platform.rglob("*") if path.is_file()} == before
    status, said = command(*here)
    # KServe's values and the gateway of each kind of cluster.
    assert (status, said.count("written")) == (0, 6)
    assert "models.example.org" in (platform / "platform/clusters/eks/kserve.yaml").read_text()
    assert command("--check", *here)[0] == 0
    assert "0 of" in command(*here)[1]


def test_who_approves_a_change_is_rendered_from_the_owners_and_an_edit_by_hand_is_found(platform: Path) -> None:
    owners = platform / ".github/CODEOWNERS"
    assert "* @example/service-owners\n" in owners.read_text()
    owners.write_text(owners.read_text().replace("/policies/ @example/platform-owners", "/policies/ @example/anybody"))
    (problem,) = differences(FolderSnapshot(platform), render_repository(FolderSnapshot(platform)))
    assert (problem.where, problem.line) == (
        ".github/CODEOWNERS",
        owners.read_text()[: owners.read_text().index("@example/anybody")].count("\n") + 1,
    )
    edit(platform, "platform/settings.yaml", '["@example/service-owners"]', '["@acme/everybody", "chief@acme.example"]')
    rendered(platform)
    assert "* @acme/everybody chief@acme.example\n" in owners.read_text()


def test_where_the_repository_holds_no_tool_no_file_of_a_change_switches_the_check_off(repository: Repository) -> None:
    repository.commit({"src/neuroscale/rendering/platform/__init__.py": None}, "an organisation's own")
    access = "platform/tenancy/team-alpha/access.yaml"
    text = (repository.root / access).read_text()
    repository.commit({access: f"{text}# More.\n", "src/neuroscale/rendering/platform/x.yaml": "a: 1\n"})
    (check,) = judged(repository)
    assert check.outcome is Outcome.FINDINGS
