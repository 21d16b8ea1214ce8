"""What the gate saw is what Argo CD applies: its own repo server is asked for the objects of every kind of folder.

Each case is a commit. Either the gate refuses it, or Argo CD applies the very objects that the gate judged. Whatever
Argo CD would apply beside those was judged by nobody.

The cases, and the sample of `make test`, notice each of these defects alone: a remark to Argo CD, an escaped slash,
`?` in flow or a large integer passes; dashes with text behind them, or a byte order mark, pass. The gate's own
tripwires notice a repeated key, a hidden file or a second object that passes. Nothing here notices that NEL, `...`,
`1e3` or an octal number passes: that changes no answer, or another check of the gate still refuses the file.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from comparisons import MANIFESTS
from gitops_lab import APPLICATIONS, ENVIRONMENT, NAMESPACE, GitOps, ManifestAsker, service_files
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import GateInput, ServiceFolder
from neuroscale.gate.verdict import Severity
from neuroscale.kube.client import Object
from neuroscale.repo.layout import RENDERED_KINDS, ServicePath
from neuroscale.repo.snapshot import GitSnapshot
from repositories import Repository

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

SERVICE = ServicePath(ENVIRONMENT, "judged")
MAIN_FILE = "inferenceservice.yaml"
TRACKING = "argocd.argoproj.io/tracking-id"
HIDDEN = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: hidden\n  namespace: team-alpha\n"
OTHER = HIDDEN.replace("Secret", "ConfigMap").replace("hidden", "other")


@dataclass(frozen=True)
class Case:
    """A change of the good folder: files by name (None removes one), links, and what else is done to it."""

    name: str
    files: dict[str, bytes | str | None] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    edit: Callable[[str], str | bytes] | None = None
    """What becomes of the text of inferenceservice.yaml."""
    executable: bool = False


def _edited(name: str, edit: Callable[[str], str | bytes]) -> Case:
    return Case(name, edit=edit)


def _extra(name: str, content: str | bytes = HIDDEN) -> Case:
    return Case(f"with {name!r}", {name: content})


def _with_annotation(key: str, value: str) -> Case:
    there = "\n  annotations:\n"
    added = f"{there}    {key}: {json.dumps(value)}\n"
    return _edited(f"annotation {key}={value}", lambda text: text.replace(there, added, 1))


def _source(text: str) -> Case:
    """Argo CD lets a file in the folder change how the folder is read."""
    return Case(
        f".argocd-source.yaml: {text!r}",
        {".argocd-source.yaml": text, "extra.yaml": HIDDEN, "kustomization.yaml": "resources: [extra.yaml]\n"},
    )


KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [inferenceservice.yaml]\n"
CHART = "apiVersion: v2\nname: judged\nversion: 1.0.0\n"

FOLDERS = [
    Case("as rendered"),
    Case("executable", executable=True),
    Case("without its network policy", {"networkpolicy.yaml": None}),
    Case("empty but for the request", dict.fromkeys(RENDERED_KINDS)),
    *(
        _extra(name)
        for name in (
            *("secret.yaml", "secret.yml", "secret.json", "secret.yaml.bak", "secret.YAML", ".secret.yaml"),
            *("inferenceservice.yml", "inferenceservice.json", "Inferenceservice.yaml", " inferenceservice.yaml"),
            *("inferenceservice.yaml ", "inferenceservice.yaml\n", "sub/secret.yaml", "sub/inferenceservice.yaml"),
            *(".hidden/secret.yaml", "networkpolicy.yaml.yaml", "templates/secret.yaml", "*.yaml", "a\\b.yaml"),
        )
    ),
    _extra("request.yaml"),
    _extra("plan.yaml"),
    _extra("catalog-info.yaml"),
    _extra("main.jsonnet", '{apiVersion: "v1", kind: "Secret", metadata: {name: "hidden"}}'),
    _extra("kustomization.yaml", KUSTOMIZATION),
    _extra("kustomization.yml", KUSTOMIZATION),
    _extra("Kustomization", KUSTOMIZATION),
    _extra("Chart.yaml", CHART),
    _extra("xChart.yaml", CHART),
    _extra("values.yaml", "a: 1\n"),
    _extra("plugin.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: {name: p}\n"),
    Case("a chart", {"Chart.yaml": CHART, "values.yaml": "a: 1\n", "templates/hidden.yaml": HIDDEN}),
    Case("a kustomization of another file", {"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": HIDDEN}),
    _source("directory: {include: '*'}\n"),
    _source("directory: {recurse: true, include: '**'}\n"),
    _source("directory: null\nkustomize: {namePrefix: x-}\n"),
    _source("kustomize: {namePrefix: x-}\n"),
    _source("helm: {values: 'a: 1'}\n"),
    _source("plugin: {name: p}\n"),
    _source("path: manifests\ndirectory: {recurse: true, include: '**'}\n"),
    Case("a link to a manifest", {"target.txt": OTHER, MAIN_FILE: None}, links={MAIN_FILE: "target.txt"}),
    Case(
        "a link out of the folder", {"networkpolicy.yaml": None}, links={"networkpolicy.yaml": "../../../outside.yaml"}
    ),
    Case("a link that leads nowhere", {"networkpolicy.yaml": None}, links={"networkpolicy.yaml": "nothing.yaml"}),
    Case("another file that is a link", links={"secret.yaml": "../../../outside.yaml"}),
    Case("a folder where a file belongs", {MAIN_FILE: None, f"{MAIN_FILE}/secret.yaml": HIDDEN}),
]

DOCUMENTS = [
    _edited("CRLF", lambda text: text.replace("\n", "\r\n")),
    _edited("line ends that are no line feeds", lambda text: text.replace("\n", "\r")),
    _edited("without an end of the last line", str.rstrip),
    _edited("byte order mark", lambda text: b"\xef\xbb\xbf" + text.encode()),
    _edited("UTF-16", lambda text: text.encode("utf-16")),
    _edited("Latin-1", lambda text: text.encode() + "# caf\xe9\n".encode("latin-1")),
    _edited("NUL", lambda text: text + "# \0\n"),
    _edited("empty", lambda _: ""),
    _edited("a remark to Argo CD", lambda text: text + "# +argocd:skip-file-rendering\n"),
    _edited("comments only", lambda _: "# nothing\n"),
    _edited("null", lambda _: "null\n"),
    _edited("a list of objects", lambda text: "- " + text.replace("\n", "\n  ")),
    _edited("JSON in it", lambda text: json.dumps(_value(text))),
    _edited("JSON in it, and a comment", lambda text: json.dumps(_value(text)) + " # end\n"),
    _edited("two JSON objects", lambda text: json.dumps(_value(text)) + "\n" + json.dumps(_value(HIDDEN))),
    _edited("JSON, then YAML", lambda text: json.dumps(_value(text)) + "\n---\n" + HIDDEN),
    _edited("JSON on the line of dashes", lambda text: "--- " + json.dumps(_value(text)) + "\n"),
    _edited("a tag", lambda text: "!!map\n" + text),
    _edited("a directive", lambda text: "%YAML 1.1\n---\n" + text),
    _edited("an anchor", lambda text: text + "x: &a {b: 1}\ny: *a\n"),
    _edited("a merge key", lambda text: text + "x: &a {b: 1}\ny: {<<: *a}\n"),
    _edited("a key that stands twice", lambda text: text + "kind: Secret\n"),
    _edited("an explicit key", lambda text: text + "? extra\n: value\n"),
    _edited("an unknown field", lambda text: text + "extra: value\n"),
    _edited("a tab", lambda text: text + "extra:\tvalue\n"),
    _edited(
        "numbers of two minds", lambda text: text + "extra: [1e3, 0o17, 017, 0x1F, 1_000, 12:30, .5, yes, on, ~]\n"
    ),
    _edited("a large number", lambda text: text + "extra: 123456789012345678901234567890\n"),
    _edited("a fraction", lambda text: text + "extra: [1.0, 1.5, 1.0e+3]\n"),
    _edited("words that are true", lambda text: text + "extra: [true, True, TRUE, 'true', null, Null]\n"),
    _edited("characters beyond the first plane", lambda text: text + 'extra: "\U0001f600 \\U0001F600 \\x41 \\e"\n'),
    _edited("an escaped slash", lambda text: text + 'extra: "\\/"\n'),
    _edited("a byte order mark in a later line", lambda text: text + "\ufeff# remark\n"),
    _edited("flow that reads two ways", lambda text: text + "extra: [http://x/a:b, a:b, {a: b}]\n"),
    _edited("a question mark in flow", lambda text: text + "extra: {a?b: 1, ?x: 2}\n"),
    _edited("deep nesting", lambda text: text + "extra: " + "[" * 90 + "]" * 90 + "\n"),
    _edited("deeper nesting", lambda text: text + "extra: " + "[" * 200 + "]" * 200 + "\n"),
    _edited("a long line", lambda text: text + "extra: " + "x" * 9000 + "\n"),
    _edited("a long key", lambda text: text + "x" * 1100 + ": 1\n"),
    _edited("two documents", lambda text: text + "---\n" + HIDDEN),
    _edited("a document of a comment before it", lambda text: "# first\n---\n" + text),
    _edited("a document of nothing behind it", lambda text: text + "---\n"),
    _edited("dashes with a remark", lambda text: "--- # remark\n" + text),
    _edited("dashes, spaces and CR", lambda text: "---  \r\n" + text),
    _edited("dashes and a remark without a space", lambda text: "---# remark\n" + text),
    _edited("an object under a key of dashes", lambda text: text + "---#x:\n" + _indented(HIDDEN)),
    _edited("an object under a key of dashes and a letter", lambda text: text + "---x:\n" + _indented(HIDDEN)),
    _edited("an object behind dashes in quotes", lambda text: text + 'extra: "\n---#\n' + HIDDEN + '---#"\n'),
    _edited("an object in a block of text", lambda text: text + "extra: |\n  ---\n" + _indented(HIDDEN, 2)),
    _edited("an object behind the end of the document", lambda text: text + "...\n" + HIDDEN),
    _edited("an object behind an end and dashes", lambda text: text + "...\n---\n" + HIDDEN),
    _edited(
        "an object behind another line end", lambda text: text + "# \u2028---\u2028" + HIDDEN.replace("\n", "\u2028")
    ),
    _edited("an object in a comment of CR", lambda text: text + "# \r---\r" + HIDDEN.replace("\n", "\r")),
    _edited("an object in a comment of NEL", lambda text: text + "# \x85---\x85" + HIDDEN.replace("\n", "\x85")),
    _edited("a list", lambda text: json.dumps(_list("List", text))),
    _edited("a list of its kind", lambda text: json.dumps(_list("InferenceServiceList", text))),
    _edited("items in an object", lambda text: json.dumps({**_value(text), "items": [_value(HIDDEN)]})),
    _edited("items of nothing", lambda text: json.dumps({**_value(text), "items": None})),
    _edited("no items", lambda text: json.dumps({**_value(text), "items": []})),
    _edited("a list in a list", lambda text: json.dumps({**_list("List", text), "items": [_list("List", text)]})),
    _edited("another kind", lambda _: HIDDEN),
    _edited("no kind", lambda text: text.replace("kind: InferenceService\n", "")),
    _edited("no name", lambda text: text.replace(f"name: {SERVICE.service}\n", "generateName: x-\n", 1)),
    _edited("Kustomize's kind", lambda _: KUSTOMIZATION),
    _edited("keys in quotes and a syntax error", lambda text: json.dumps(_value(text))[:-1]),
    _with_annotation("argocd.argoproj.io/hook", "Skip"),
    _with_annotation("argocd.argoproj.io/hook", "PreSync"),
    _with_annotation(TRACKING, "other:v1/Secret:a/b"),
    _with_annotation("argocd.argoproj.io/compare-options", "IgnoreExtraneous"),
    _with_annotation("helm.sh/hook", "pre-install"),
]


def _value(text: str) -> Any:
    return yaml.safe_load(text)


def _list(kind: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": [_value(text), _value(HIDDEN)]}


def _indented(text: str, by: int = 1) -> str:
    return "".join(f"{' ' * by}{line}" for line in text.splitlines(keepends=True))


# What separates, quotes and hides in YAML, and the pieces of an object.
_PIECES = [
    *("\n---\n", "\n--- ", "\n---#", "\n...\n", "\n%YAML 1.2\n", "---", "\r\n", "\r", "\u2028", "\x85", "\ufeff"),
    *("#", " #", ": ", ":", "- ", "? ", "|\n", ">-\n", "'", '"', "{", "}", "[", "]", ",", "&a ", "*a", "!!str ", "\t"),
    *(
        "  ",
        "\n",
        "\n\n",
        "~",
        "null",
        "yes",
        "0x1",
        "1e3",
        "items: []",
        "\nitems:\n- ",
        "\nkind: Secret",
        "\\",
        "<<: ",
    ),
    *(f"\n---\n{HIDDEN}", f"\n{_indented(HIDDEN)}", HIDDEN, f"{json.dumps({'kind': 'Secret'})}"),
]


def _variant(text: str, seed: int) -> str:
    """The text with a few pieces put in or taken away at random places, the same ones for the same seed."""
    dice = random.Random(seed)
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(len(text) + 1)
        if dice.random() < 0.3:
            # At the start of a line, where structure is.
            place = text.rfind("\n", 0, place) + 1
        if dice.random() < 0.2:
            text = text[:place] + text[place + dice.randint(1, 30) :]
        else:
            text = text[:place] + dice.choice(_PIECES) + text[place:]
    return text


# Of the others both refuse what they read: a gate that reads them more laxly fails by `DOCUMENTS` as well.
_REFUSED_AND_APPLIED = (4, 16, 30, 35, 83, 89, 97)
_READ_ALIKE = (13, 14, 22, 39, 43, 44, 50, 51, 54, 66, 67, 70, 72, 76, 78, 79, 82, 84, 85, 88, 90, 104, 107)
_SEEDS = MANIFESTS.sample(range(120), (*_REFUSED_AND_APPLIED, *_READ_ALIKE))
VARIANTS = [_edited(f"variant {seed}", lambda text, seed=seed: _variant(text, seed)) for seed in _SEEDS]  # type: ignore[misc]
CASES = [*FOLDERS, *DOCUMENTS, *VARIANTS]


@dataclass(frozen=True)
class Judged:
    """What a commit is to the gate, and to Argo CD (its objects, or why it applies nothing)."""

    case: Case
    findings: tuple[str, ...]
    seen: list[Object]
    applied: list[Object] | str


@pytest.fixture(scope="module")
def judged(gitops: GitOps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Judged]]:
    """Every case, judged by both."""
    repository = Repository(tmp_path_factory.mktemp("cases") / "repository")
    commits = [_commit(repository, case) for case in CASES]
    pushed = gitops.local.create_repository(f"cases-{os.urandom(4).hex()}", repository.root)
    asker = gitops.asker(pushed, _source_of_services(gitops))
    try:
        yield [_judge(repository, case, commit, asker) for case, commit in zip(CASES, commits, strict=True)]
    finally:
        asker.close()
        repository.git.close()


def _source_of_services(gitops: GitOps) -> dict[str, Any]:
    """How the platform's own ApplicationSet lets Argo CD read a service's folder."""
    found = gitops.cluster.get(APPLICATIONS, "ApplicationSet", f"services-{ENVIRONMENT}", NAMESPACE)
    assert found is not None
    return {**found["spec"]["template"]["spec"]["source"], "path": SERVICE.folder}


def _commit(repository: Repository, case: Case) -> str:
    folder = repository.root / SERVICE.folder
    shutil.rmtree(folder, ignore_errors=True)
    files: dict[str, bytes | str | None] = dict(service_files(SERVICE.service))
    if case.edit is not None:
        path = f"{SERVICE.folder}/{MAIN_FILE}"
        files[path] = case.edit(str(files[path]))
    for name, content in case.files.items():
        files[f"{SERVICE.folder}/{name}"] = content
    repository.write({path: content for path, content in files.items() if content is not None})
    for name, target in case.links.items():
        (folder / name).symlink_to(target)
    if case.executable:
        (folder / MAIN_FILE).chmod(0o755)
    return repository.commit({"outside.yaml": HIDDEN}, case.name)


def _judge(repository: Repository, case: Case, commit: str, asker: ManifestAsker) -> Judged:
    snapshot = GitSnapshot(repository.git, commit)
    folder = ServiceFolder(SERVICE, "checked", tuple(snapshot.entries(SERVICE.folder)))
    evaluation, manifests = evaluate_files(GateInput(snapshot, (folder,)), (ENVIRONMENT,))
    red = tuple(f"{one.rule}: {one.message}" for one in evaluation.findings if one.severity is Severity.ERROR)
    return Judged(case, red, [manifest.value for manifest in manifests], asker.objects(commit))


def _alike(objects: list[Object]) -> list[str]:
    """The objects as texts that can be compared: without order and Argo CD's own mark, and 1.0 the same as 1."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key != TRACKING}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return sorted(json.dumps(plain(one), sort_keys=True) for one in objects)


def test_no_case_lets_argo_cd_apply_what_a_green_gate_did_not_see(judged: list[Judged]) -> None:
    wrong = [
        f"{one.case.name}: the gate saw {_names(one.seen)}, and Argo CD applies {_names(one.applied)}"
        for one in judged
        if not one.findings and (isinstance(one.applied, str) or _alike(one.seen) != _alike(one.applied))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_gate_sees_every_object_of_a_good_folder_and_argo_cd_the_same(judged: list[Judged]) -> None:
    good = next(one for one in judged if one.case.name == "as rendered")
    assert not good.findings
    assert sorted(one["kind"] for one in good.applied if isinstance(one, dict)) == sorted(RENDERED_KINDS.values())


@pytest.mark.parametrize(
    "name",
    ["CRLF", "without an end of the last line", "JSON in it", "dashes with a remark", "an object in a block of text"],
)
def test_what_reads_the_same_everywhere_is_not_refused(judged: list[Judged], name: str) -> None:
    one = next(one for one in judged if one.case.name == name)
    assert not one.findings
    assert isinstance(one.applied, list)


def test_the_cases_do_hold_what_argo_cd_applies_and_the_gate_refuses(judged: list[Judged]) -> None:
    """Otherwise the comparison would be of what nobody applies."""
    applied = [(one.case.name, one.applied) for one in judged if one.findings and isinstance(one.applied, list)]
    hidden = {name for name, found in applied if any(one["metadata"].get("name") == "hidden" for one in found)}
    assert len(applied) >= 20
    assert hidden >= {
        "two documents",
        "an object under a key of dashes",
        "items in an object",
    }


def _names(objects: list[Object] | str) -> str:
    if isinstance(objects, str):
        return f"nothing ({objects[:200]})"
    return ", ".join(f"{one.get('kind')} {one.get('metadata', {}).get('name')}" for one in objects) or "nothing"
