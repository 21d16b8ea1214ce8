"""The policies refuse what they are there for, in every place and spelling, and let good services pass."""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import comparisons
from examples import examples
from neuroscale.core import schemas, tool_cache
from neuroscale.gate.checks.changed_policies import evaluate_policy_tests, shared_text_findings
from neuroscale.gate.checks.refused_kinds import REFUSED, plural_of
from neuroscale.gate.checks.schema import evaluate_schemas
from neuroscale.gate.evaluation import Evaluation
from neuroscale.manifests.objects import read_manifests
from neuroscale.policies.allowed_list import allowed_entries
from neuroscale.policies.policy_set import SHARED_TEXT, TRIPWIRES, load_policy_set
from neuroscale.policies.render import rendered
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from platform_repository import CATALOG
from policies_support import NAMES, POLICIES, documents, fixture_manifests, fixtures, judge, judges, policy
from roots import CHECKOUT, ROOT

SERVICES = CHECKOUT / "tests" / "data" / "policies" / "services.yaml"
OF_SERVICES = [name for name in NAMES if judges(name, "inferenceservices")]
EXPECTED = "neuroscale.dev/expect-message"
PATH = r"(?:kind|metadata|spec)(?:\.[A-Za-z-]+(?:\[\d+\])?)*"


# The form of a policy folder ------------------------------------------------------------------------------------------


def test_there_are_at_least_ten_policies() -> None:
    assert len(NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_says_what_it_is_why_it_is_there_and_what_to_write_instead(name: str) -> None:
    annotations = policy(name)["metadata"]["annotations"]
    for key in ("policies.kyverno.io/title", "policies.kyverno.io/description", "neuroscale.dev/why"):
        assert annotations[key].strip()
    assert re.fullmatch(r"[A-Z].+\.", annotations["neuroscale.dev/fix"].strip())
    lesson = annotations.get("neuroscale.dev/lesson")
    assert lesson is None or (ROOT / "milestones" / lesson / "before").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_an_object_can_switch_a_policy_off(name: str) -> None:
    spec = policy(name)["spec"]
    assert set(spec) <= {
        *("validationActions", "failurePolicy", "autogen", "matchConstraints"),
        *("variables", "validations"),
    }
    assert (spec["validationActions"], spec["failurePolicy"]) == (["Deny"], "Fail")
    assert spec["autogen"] == {"podControllers": {"controllers": []}}
    assert set(spec["matchConstraints"]) == {"resourceRules"}
    for rule in spec["matchConstraints"]["resourceRules"]:
        assert set(rule) == {"apiGroups", "apiVersions", "operations", "resources"}
        assert "CREATE" in rule["operations"]


@pytest.mark.parametrize("name", NAMES)
def test_every_validation_is_shown_to_refuse_something(name: str) -> None:
    """A bad resource announces each validation's text, so none of them can be removed unnoticed."""
    announced = {value["metadata"]["annotations"][EXPECTED].partition(": ")[2] for value in fixtures(name, "bad")}
    for validation in policy(name)["spec"]["validations"]:
        if "message" in validation:
            text = validation["message"].strip().partition(": ")[2]
        else:
            # The only form of a computed message: the places, then a text that stands in the policy.
            match = re.fullmatch(r"variables\.\w+\.join\(', '\) \+ ': ([^']+)'", validation["messageExpression"])
            assert match, validation["messageExpression"]
            text = match[1]
        assert text in announced


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_resource_announces_where_and_what_without_quoting_itself(name: str) -> None:
    for value in fixtures(name, "bad"):
        places, _, text = value["metadata"]["annotations"][EXPECTED].partition(": ")
        assert text
        assert all(re.fullmatch(PATH, place) for place in places.split(", ")), places


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_that_a_policy_judges_has_a_good_and_a_bad_resource(name: str) -> None:
    judged = {
        (group, resource)
        for rule in policy(name)["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "/" not in resource
    }
    refused = {(group, plural_of(kind)) for group, kind in REFUSED}
    for which, needless in (("good", refused), ("bad", set())):
        shown = {
            (value["apiVersion"].rpartition("/")[0], value["kind"].lower() + "s") for value in fixtures(name, which)
        }
        assert judged - needless <= shown <= judged


@pytest.mark.parametrize("name", NAMES)
def test_the_cases_name_every_good_and_bad_resource_once(name: str) -> None:
    (cases,) = documents(POLICIES / name / ".kyverno-test" / "kyverno-test.yaml")
    named = Counter(
        (result["result"], result["kind"], resource) for result in cases["results"] for resource in result["resources"]
    )
    there = Counter(
        (result, value["kind"], value["metadata"]["name"])
        for which, result in (("good", "pass"), ("bad", "fail"))
        for value in fixtures(name, which)
    )
    assert named == there
    assert len({name for _, _, name in there}) == len(there)  # Kyverno finds resources by their names alone
    assert all(result["policy"] == name and result["isValidatingPolicy"] for result in cases["results"])


def test_the_command_would_render_the_policies_as_they_are() -> None:
    snapshot = FolderSnapshot(ROOT)
    files = rendered(snapshot, load_policy_set(snapshot).policies)
    assert len(files) == 2 * len(NAMES)
    assert [path for path, text in files.items() if (ROOT / path).read_text() != text] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("p.pod != null", "true"), "differs from policies/shared.yaml"),
        (lambda text: text.replace("# Every pod spec of", "# Each pod spec of"), "differs from policies/shared.yaml"),
        (lambda text: text.replace("    # -- end shared: pods --\n", ""), "does not end"),
        (lambda text: text.replace("-- shared: pods --", "-- shared: podz --"), "Did you mean 'pods'"),
        (lambda text: text.replace("shared: pods --", "pods --"), "outside of the shared text"),
        (lambda text: text, ""),
    ],
)
def test_a_policy_with_other_shared_text_is_a_finding(change: Callable[[str], str], words: str) -> None:
    path = "policies/non-root/policy.yaml"
    texts = {one: (ROOT / one).read_text() for one in (path, TRIPWIRES, SHARED_TEXT)}
    texts[path] = change(texts[path])
    snapshot = MemorySnapshot({one: text.encode() for one, text in texts.items()})
    found = shared_text_findings(snapshot, load_policy_set(snapshot).policies)
    assert [words in f"{one.message} {one.fix}" for one in found] == ([True] if words else [])


def test_shared_text_without_its_file_is_a_finding() -> None:
    files = {one: (ROOT / one).read_bytes() for one in ("policies/non-root/policy.yaml", TRIPWIRES)}
    snapshot = MemorySnapshot(files)
    (found,) = shared_text_findings(snapshot, load_policy_set(snapshot).policies)
    assert (found.file, found.message) == (SHARED_TEXT, "is missing")
    files[SHARED_TEXT] = b"variables: [{name: pods, expression: '[]'}]"
    (found,) = shared_text_findings(MemorySnapshot(files), load_policy_set(snapshot).policies)
    assert "each marked block" in found.message


@pytest.mark.parametrize("name", ["allowed-registries", "allowed-storage"])
def test_an_allowed_prefix_cannot_be_extended_to_another_name(name: str) -> None:
    """`docker.io/vllm` without its slash would also allow docker.io/vllm-evil."""
    entries = allowed_entries(FolderSnapshot(ROOT), name)
    assert entries
    assert all(entry.endswith("/") for entry in entries)


def test_every_accelerator_of_the_catalog_is_one_for_the_policy() -> None:
    pattern = next(
        variable["expression"].strip().removeprefix("r'").removesuffix("'")
        for variable in policy("accelerator-limits")["spec"]["variables"]
        if variable["name"] == "accelerators"
    )
    resources = {one.resource for one in CATALOG.accelerators.values() if one.resource}
    assert {one for one in resources if not re.search(pattern, one)} == set()
    assert resources > {"nvidia.com/gpu", "amd.com/gpu", "google.com/tpu"}


# What Kyverno answers -------------------------------------------------------------------------------------------------


ASKED = comparisons.POLICIES.sample(NAMES, NAMES[::5])


@pytest.fixture(scope="module")
def own_tests(tmp_path_factory: pytest.TempPathFactory, kyverno_once: None) -> dict[str, Evaluation]:
    """Each policy's own cases, judged by `kyverno test` and by the gate's evaluation."""

    def run(name: str) -> Evaluation:
        files = {TRIPWIRES: (ROOT / TRIPWIRES).read_bytes()}
        for path in (POLICIES / name).rglob("*.yaml"):
            files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
        snapshot = MemorySnapshot(files)
        return evaluate_policy_tests(
            snapshot,
            load_policy_set(snapshot),
            {name},
            schemas.find(),
            tool_cache.find("kyverno"),
            tmp_path_factory.mktemp(name),
            today=date(2026, 11, 21),
        )

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(ASKED, pool.map(run, ASKED), strict=True))


@pytest.mark.tools
@pytest.mark.parametrize("name", ASKED)
def test_good_resources_pass_and_bad_ones_are_refused_in_the_words_they_announce(
    name: str, own_tests: dict[str, Evaluation]
) -> None:
    """It fails if one of these defects is planted alone: `-dpl` and `-dp2` do not count as data-parallel sizes; an
    image tag may be a major version alone; `0` counts as a number of accelerators.
    """
    evaluation = own_tests[name]
    assert [f"{finding.subject}: {finding.message}" for finding in evaluation.findings] == []
    assert evaluation.evaluated == evaluation.expected == len(fixtures(name, "good")) + len(fixtures(name, "bad"))


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
def test_services_as_they_are_rendered_and_derived_pass_every_policy(tmp_path: Path) -> None:
    objects = documents(SERVICES)
    answers = judge(NAMES, objects, tmp_path)
    assert {key: answer for key, answer in answers.items() if answer[0] != "pass"} == {}
    services = [value["metadata"]["name"] for value in objects if value["kind"] == "InferenceService"]
    assert services
    for name in OF_SERVICES:
        assert all((name, "InferenceService", service) in answers for service in services)


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
def test_no_null_in_a_manifest_ends_in_an_evaluation_error(tmp_path: Path) -> None:
    service = documents(SERVICES)[0]
    objects: list[dict[str, Any]] = []
    shown: set[tuple[str | int, ...]] = set()
    places: dict[str, str] = {}
    for path in paths(service["spec"], ("spec",)):
        # One of the items of a list stands for the others.
        kind = tuple("*" if isinstance(part, int) else part for part in path)
        if kind in shown or {"httpGet", "emptyDir", "volumeMounts", "nodeSelector"} & set(path[:-1]):
            continue
        shown.add(kind)
        value = copy.deepcopy(service)
        place = value
        for part in path[:-1]:
            place = place[part]  # type: ignore[index]
        place[path[-1]] = None  # type: ignore[index]
        value["metadata"]["name"] = f"null-{len(objects)}"
        places[value["metadata"]["name"]] = ".".join(map(str, path))
        objects.append(value)
    assert len(objects) > 30
    objects = comparisons.POLICIES.sample(objects, objects[::6])
    with ThreadPoolExecutor(max_workers=2) as pool:
        halves = pool.map(lambda part: judge(OF_SERVICES[part::2], objects, tmp_path / str(part)), (0, 1))
    answers = {key: answer for half in halves for key, answer in half.items()}
    assert len(answers) == len(objects) * len(OF_SERVICES)
    ended = {
        (policy, places[name]): answer
        for (policy, _, name), answer in answers.items()
        if answer[0] not in ("pass", "fail")
    }
    assert ended == {}, "read what may be null with optional.ofNonZeroValue(...)"


def paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


@pytest.mark.tools
def test_test_resources_are_valid_for_their_kinds(tmp_path: Path) -> None:
    """A path that the definitions do not know would test nothing."""
    kinds = {"InferenceService", "LLMInferenceService", "ServingRuntime", "ClusterServingRuntime"}
    manifests = [
        manifest
        for made in [
            *(fixture_manifests(name, "good") for name in NAMES),
            *(read_manifests(path.read_bytes(), path.name) for path in (ROOT / TRIPWIRES, SERVICES)),
        ]
        for manifest in made
        if manifest.kind in kinds
    ]
    evaluation = evaluate_schemas(manifests, schemas.find(), tool_cache.find("kubeconform"), tmp_path / "run")
    assert evaluation.findings == ()
    assert evaluation.evaluated == len(manifests) > 100


# Flags as vLLM's own parser takes them --------------------------------------------------------------------------------


class VllmParser(argparse.ArgumentParser):
    """The flags of vLLM 0.32 that matter here, read like its parser reads them: argparse's abbreviations, and dashes
    for underscores in a flag's name."""

    def __init__(self) -> None:
        super().__init__(prog="vllm", add_help=False)
        for number in (
            *("data-parallel-size -dp", "data-parallel-rank -dpn", "data-parallel-start-rank -dpr"),
            *("data-parallel-size-local -dpl", "data-parallel-rpc-port -dpp"),
            *("tensor-parallel-size -tp", "pipeline-parallel-size -pp", "max-model-len", "max-num-seqs", "port"),
        ):
            long, *short = number.split()
            self.add_argument(f"--{long}", *short, type=int)
        for text in ("data-parallel-address -dpa", "data-parallel-backend -dpb", "model", "dtype", "download-dir"):
            long, *short = text.split()
            self.add_argument(f"--{long}", *short)
        for switch in ("enable-expert-parallel -ep", "enable-prefix-caching", "data-parallel-hybrid-lb -dph"):
            long, *short = switch.split()
            self.add_argument(f"--{long}", *short, action=argparse.BooleanOptionalAction)

    def read(self, words: list[str]) -> argparse.Namespace | None:
        """What the words mean, or None where vLLM would refuse to start."""
        dashed = [
            "=".join([word.split("=", 1)[0].replace("_", "-"), *word.split("=", 1)[1:]])
            if word.startswith("--")
            else word
            for word in words
        ]
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                return self.parse_args(dashed)
            except SystemExit:
                return None


PARSER = VllmParser()


def spellings(names: tuple[str, ...]) -> list[str]:
    """Each name with every mixture of dashes and underscores, whole and cut short."""
    found: dict[str, None] = {}
    for name in names:
        for length in range(len(name) - 6, len(name) + 1) if name.startswith("--") else (len(name),):
            head, *rest = name[:length].removeprefix("--").split("-")
            for joints in itertools.product("-_", repeat=len(rest)):
                body = head + "".join(joint + part for joint, part in zip(joints, rest, strict=True))
                found["--" + body if name.startswith("--") else name] = None
    return list(found)


def flags(names: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """A flag of one of `names` in a spelling that vLLM takes, with its value."""
    whole = [spelling for spelling in spellings(names) if PARSER.read([spelling, "2"])]
    sizes = st.sampled_from(["1", "2", "4", "16", "02", "1_6"])
    return st.tuples(st.sampled_from(whole), sizes, st.booleans()).map(
        lambda drawn: [f"{drawn[0]}={drawn[1]}"] if drawn[2] else [drawn[0], drawn[1]]
    )


def command_lines(*parts: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    other = st.sampled_from([["--max-model-len=4096"], ["--dtype", "auto"], ["--enable-prefix-caching"]])
    return st.lists(st.one_of(*parts, other), min_size=1, max_size=4).map(lambda drawn: list(itertools.chain(*drawn)))


DATA = ("--data-parallel-size", "--data-parallel-size-local", "-dp", "-dpl")
TENSOR = ("--tensor-parallel-size", "-tp")
PIPELINE = ("--pipeline-parallel-size", "-pp")
EXPERTS = st.sampled_from([["--enable-expert-parallel"], ["-ep"], ["--no-enable-expert-parallel"]])
WAYS = st.sampled_from(["args", "command", "shell"])


def service(name: str, arguments: list[str], way: str = "args", accelerators: int = 0) -> dict[str, Any]:
    model: dict[str, Any] = {"modelFormat": {"name": "vLLM"}}
    if way == "args":
        model["args"] = arguments
    elif way == "command":
        model["command"] = ["vllm", "serve", *arguments]
    else:
        model["command"] = ["sh", "-c", " ".join(["exec vllm serve", *arguments])]
    if accelerators:
        model["resources"] = {"limits": {"nvidia.com/gpu": str(accelerators)}}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "team-alpha"},
        "spec": {"predictor": {"model": model}},
    }


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
def test_data_parallelism_is_refused_in_every_spelling_that_vllm_takes(tmp_path: Path) -> None:
    lines = [
        words
        for spelling in [*spellings(DATA), "-dp2", "--data-parallel-size2"]
        for words in ([spelling, "2"], [f"{spelling}=2"])
        if (meaning := PARSER.read(words)) and 2 in (meaning.data_parallel_size, meaning.data_parallel_size_local)
    ]
    assert len(lines) > 60
    answers = judge(
        ["moe-data-parallelism"], [service(f"s{index}", words) for index, words in enumerate(lines)], tmp_path
    )
    passed = [lines[int(name[1:])] for (_, _, name), (result, _) in answers.items() if result != "fail"]
    assert passed == []
    assert len(answers) == len(lines)


# Without shrinking: a smaller example would cost a second each.
SEARCH = settings(max_examples=examples(3), deadline=None, phases=(Phase.reuse, Phase.generate))


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
@SEARCH
@given(
    lines=st.lists(
        st.tuples(command_lines(flags(DATA), flags(DATA), EXPERTS, flags(TENSOR)), WAYS), min_size=40, max_size=50
    )
)
def test_data_parallelism_that_vllm_would_run_without_experts_is_refused(
    lines: list[tuple[list[str], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    objects = [service(f"service-{index}", *line) for index, line in enumerate(lines)]
    answers = judge(["moe-data-parallelism"], objects, tmp_path_factory.mktemp("spellings"))
    for index, (words, way) in enumerate(lines):
        result, _ = answers["moe-data-parallelism", "InferenceService", f"service-{index}"]
        meaning = PARSER.read(words)
        if meaning is None:
            continue
        sizes = (meaning.data_parallel_size, meaning.data_parallel_size_local)
        if any(size not in (None, 1) for size in sizes) and not meaning.enable_expert_parallel:
            assert result == "fail", (words, way)
        if sizes == (None, None):
            assert result == "pass", (words, way)


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
@SEARCH
@given(
    lines=st.lists(
        st.tuples(command_lines(flags(TENSOR), flags(PIPELINE)), WAYS, st.sampled_from([1, 2, 4, 16])),
        min_size=40,
        max_size=50,
    )
)
def test_a_server_passes_only_when_vllm_would_use_all_of_its_accelerators(
    lines: list[tuple[list[str], str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    objects = [service(f"service-{index}", *line) for index, line in enumerate(lines)]
    answers = judge(["accelerator-limits"], objects, tmp_path_factory.mktemp("sizes"))
    for index, (words, way, accelerators) in enumerate(lines):
        result, _ = answers["accelerator-limits", "InferenceService", f"service-{index}"]
        meaning = PARSER.read(words)
        if meaning is None:
            continue
        used = (meaning.tensor_parallel_size or 1) * (meaning.pipeline_parallel_size or 1)
        if used != accelerators:
            assert result == "fail", (words, way, accelerators)
        elif not any(re.search(r"02|1_6", word) for word in words):
            assert result == "pass", (words, way, accelerators)
