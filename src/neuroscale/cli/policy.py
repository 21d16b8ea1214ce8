"""`neuroscale policy`: shows policies' demands and reasons, writes what they share, makes new ones and tests them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.options import JsonOption, RepositoryOption, print_json
from neuroscale.core.errors import ExitStatus, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from neuroscale.policies.policy_set import Policy, PolicySet
    from neuroscale.repo.snapshot import FolderSnapshot

app = typer.Typer(name="policy", help="Show, render, create and test policies.", no_args_is_help=True)


@app.command("list")
def list_policies(as_json: JsonOption = False, repository: RepositoryOption = None) -> int:
    """Print every policy and its demand."""
    from neuroscale.policies.description import describe

    snapshot, policies = _read(repository)
    descriptions = [describe(snapshot, policies, policy) for policy in policies.policies]
    if as_json:
        rows = [{"name": each.name, "title": each.title, "demands": each.description} for each in descriptions]
        print_json({"policies": rows})
        return ExitStatus.PASSED
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for title in ("policy", "demands"):
        table.add_column(title, overflow="fold")
    for description in descriptions:
        table.add_row(description.name, description.description)
    _console().print(table)
    return ExitStatus.PASSED


@app.command("explain")
def explain_policy(
    name: Annotated[str, typer.Argument(help="The policy's name.")],
    case: Annotated[str | None, typer.Argument(help="A case of its cases.yaml: print the object whole.")] = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Print what one policy demands and why, the kinds and fields that it reads, and its messages, or one case."""
    from dataclasses import asdict

    from neuroscale.core.yaml_io import dump
    from neuroscale.policies.bad_objects import bad_object
    from neuroscale.policies.description import describe

    snapshot, policies = _read(repository)
    policy = _named(policies, name)
    if case is not None:
        refused = bad_object(snapshot, name, case)
        print_json(refused) if as_json else typer.echo(dump(refused), nl=False)
        return ExitStatus.PASSED
    description = describe(snapshot, policies, policy)
    if as_json:
        print_json(asdict(description))
        return ExitStatus.PASSED
    console = _console()
    console.print(f"{description.name}: {description.title}", style="bold")
    parts = [
        ("Demands", [description.description]),
        ("Why", [description.why]),
        *([("Lesson", [f"neuroscale milestones {description.lesson}"])] if description.lesson else []),
        ("Write instead", [description.fix]),
        ("Judges", description.kinds),
        ("Reads the fields", [", ".join(description.fields) or "of the object as a whole"]),
        ("Says", description.messages),
        ("Tests", [f"{description.good} objects pass, {description.bad} are refused"]),
        ("Exceptions", description.exceptions or ["none"]),
    ]
    for title, lines in parts:
        console.print(f"\n{title}")
        for line in lines:
            _print_indented(console, line)
    return ExitStatus.PASSED


@app.command("coverage")
def show_coverage(as_json: JsonOption = False, repository: RepositoryOption = None) -> int:
    """Print who judges each kind that the gate has a schema for: policies, the gate's own rules, or nobody, and which
    kinds it refuses by name."""
    from neuroscale.core import schemas
    from neuroscale.gate.checks.judged_kinds import HARMLESS, judged_by_rules
    from neuroscale.gate.checks.refused_kinds import REFUSED
    from neuroscale.policies.description import policies_of_kinds

    _, policies = _read(repository)
    of_kinds = policies_of_kinds(policies.policies, schemas.find().kinds)
    by_policies = {kind: names for kind, names in of_kinds.items() if names}
    rest = [kind for kind in of_kinds if kind not in by_policies]
    groups: dict[str, list[tuple[str, str]]] = {"gate_rules": [], "need_no_judge": [], "refused": [], "nobody": []}
    for kind in rest:
        plain = (kind[0].rpartition("/")[0], kind[1])
        judged_so = (
            ("gate_rules", judged_by_rules(*plain)),
            ("need_no_judge", plain in HARMLESS),
            ("refused", plain in REFUSED),
            ("nobody", True),
        )
        groups[next(group for group, is_so in judged_so if is_so)].append(kind)
    if as_json:
        judged = {" ".join(kind): list(names) for kind, names in by_policies.items()}
        print_json({"policies": judged, **{name: [" ".join(kind) for kind in kinds] for name, kinds in groups.items()}})
        return ExitStatus.PASSED
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for title in ("kind", "policies", "not judged by"):
        table.add_column(title, overflow="fold")
    names = [policy.name for policy in policies.policies]
    for (version, of_kind), judges in by_policies.items():
        missing = [name for name in names if name not in judges]
        few = missing if len(missing) <= len(judges) else [f"{len(missing)} others"]
        judged_by = f"all {len(names)}" if not missing else ", ".join(judges) if few != missing else str(len(judges))
        table.add_row(f"{version} {of_kind}", judged_by, ", ".join(few))
    console = _console()
    console.print(table)
    titles = (
        "Judged by the gate's own rules",
        "Need no judge",
        "Refused by name",
        "Judged by nobody: the gate refuses them in a change",
    )
    for title, kinds in zip(titles, groups.values(), strict=True):
        console.print(f"\n{title} ({len(kinds)})")
        versions: dict[str, list[str]] = {}
        for version, of_kind in kinds:
            versions.setdefault(version, []).append(of_kind)
        for version, of_version in versions.items():
            _print_indented(console, f"{version}: {', '.join(of_version)}")
    return ExitStatus.PASSED


@app.command("new")
def make_policy(
    name: Annotated[str, typer.Argument(help="The new policy's name: a-z, 0-9 and dashes.")],
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="A kind that it judges; repeat it. Default: InferenceService.")
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option(
            "--shared",
            help="Copy the blocks of shared text up to this one, for a rule about pods: pods, containers, commands, "
            "model_servers or language_model.",
        ),
    ] = None,
    repository: RepositoryOption = None,
) -> int:
    """Write the folder of a new policy with a rule that works and its tests, for you to change."""
    from neuroscale.core import schemas
    from neuroscale.core.files import write_public
    from neuroscale.policies.new_policy import new_policy

    snapshot, policies = _read(repository)
    files = new_policy(snapshot, policies, schemas.find().kinds, name, kind or ["InferenceService"], shared)
    for path, text in files.items():
        file = snapshot.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        write_public(file, text)
        typer.echo(f"  {path}")
    typer.echo(
        "Next (policies/README.md, 'Add a policy', says more):\n"
        f"  1. Replace the rule, all that says REPLACE, and the case in policies/{name}/cases.yaml. Each gate run\n"
        "     sends the first case along as a known-bad object.\n"
        "  2. neuroscale policy render writes the names of the test objects for Kyverno.\n"
        f"  3. neuroscale policy test {name}\n"
        "  4. Commit it: neuroscale gate --base HEAD~1 --head HEAD judges the commit."
    )
    return ExitStatus.PASSED


@app.command("test")
def run_tests(
    name: Annotated[str | None, typer.Argument(help="The policy's name. Default: all policies.")] = None,
    repository: RepositoryOption = None,
) -> int:
    """Ask Kyverno about policies' test objects: good ones must pass, and each case be refused with its message."""
    import tempfile

    from neuroscale.core.errors import Problem, UntrustedError
    from neuroscale.gate.checks.changed_policies import tested_policy
    from neuroscale.gate.verdict import Outcome

    snapshot, policies = _read(repository)
    status = ExitStatus.PASSED
    for policy in [_named(policies, name)] if name else policies.policies:
        with tempfile.TemporaryDirectory() as folder:
            result = tested_policy(snapshot, policies, policy, Path(folder))
        check, findings = result.check, result.findings
        if check.outcome not in (Outcome.PASSED, Outcome.FINDINGS):
            raise UntrustedError(f"{policy.name}: {check.detail}")
        typer.echo(f"{policy.name}: {'not as it must be' if findings else f'all {check.evaluated} test objects'}")
        for each in findings:
            status = ExitStatus.FINDINGS
            typer.echo(f"  {Problem(each.file, each.subject, each.message, each.fix, each.line)}")
    return status


@app.command("render")
def render_policies(repository: RepositoryOption = None) -> int:
    """Write the shared text of policies/shared.yaml into the policies, and each policy's files for `kyverno test`."""
    from neuroscale.core.files import write_public
    from neuroscale.policies.bad_objects import bad_files
    from neuroscale.policies.render import rendered

    snapshot, policies = _read(repository)
    for path, text in {**rendered(snapshot, policies.policies), **bad_files(snapshot, policies.policies)}.items():
        if snapshot.read(path) != text.encode():
            file = snapshot.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            write_public(file, text)
            typer.echo(f"  {path}")
    return ExitStatus.PASSED


def _read(repository: Path | None) -> tuple[FolderSnapshot, PolicySet]:
    from neuroscale.actions.open_repository import repository_root
    from neuroscale.policies.policy_set import load_policy_set
    from neuroscale.repo.snapshot import FolderSnapshot

    snapshot = FolderSnapshot(repository_root(repository))
    return snapshot, load_policy_set(snapshot)


def _named(policies: PolicySet, name: str) -> Policy:
    from neuroscale.core.validation import suggest

    names = {policy.name: policy for policy in policies.policies}
    if name not in names:
        fix = suggest(name, names)
        raise InputError.at("the command line", "NAME", f"{name!r} is not a policy of this repository", fix)
    return names[name]


def _print_indented(console: Console, line: str) -> None:
    from rich.padding import Padding

    console.print(Padding(line, (0, 0, 0, 2)))


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=False)
