"""The pods of each kind of object: the fit check, the cost and a cluster's capacity see those that a person expects."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from cost_examples import Object, added
from neuroscale.cluster import capacity_reader
from neuroscale.cluster.capacity import Demand
from neuroscale.core.units import GIB
from neuroscale.core.yaml_io import Document, dump
from neuroscale.gate.fit.vllm_containers import VllmContainer
from neuroscale.gate.fit.vllm_pods import servers
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.manifests.pod_resources import requests
from neuroscale.manifests.pod_sets import PodSet, UnknownPods
from neuroscale.manifests.pods_of_objects import pods_of_objects
from neuroscale.manifests.workloads import read_workloads
from plan_factory import make_plan
from pod_examples import EXAMPLES, VLLM, Asked, Example, Pods, modelled, runtime, service, vllm

_GPU = "nvidia.com/gpu"

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)


def sets(value: Object, *others: Object) -> list[PodSet]:
    """The pods of one object, all of which are known."""
    first, *_ = pods_of_objects([value, *others])
    assert not [one for one in first.found if isinstance(one, UnknownPods)]
    return [one for one in first.found if isinstance(one, PodSet)]


def amounts(asked: dict[str, Decimal]) -> tuple[int, int, int]:
    """Cores, GiB of memory and accelerators."""
    none = Decimal(0)
    found = asked.get("cpu", none), asked.get("memory", none) / GIB, asked.get(_GPU, none)
    assert all(one == int(one) for one in found)
    return int(found[0]), int(found[1]), int(found[2])


def of_one(container: Any) -> tuple[int, int, int]:
    return amounts(requests({"containers": [container]}))


def told(one: PodSet) -> Pods:
    """A set of pods as a person would write it down."""
    pods = tuple((count, {each["name"]: of_one(each) for each in spec["containers"]}) for spec, count in one.specs)
    bounds = None if one.bounds is None else (one.bounds.fewest, one.bounds.most)
    return Pods(one.part, bounds, pods, not one.passing)


def total(pods: tuple[tuple[int, Asked], ...]) -> tuple[int, int, int]:
    """What pods ask for together."""
    asked = [(count, each) for count, pod in pods for each in pod.values()]
    cpu, memory, gpus = (sum(count * each[at] for count, each in asked) for at in range(3))
    return cpu, memory, gpus


@each_example
def test_the_reading_is_what_a_person_expects(example: Example) -> None:
    read = [told(one) for one in sets(example.value, *example.others)]
    assert read == [Pods(one.part, one.replicas, one.pods, one.priced) for one in example.expected]


@each_example
def test_the_cost_is_that_of_these_pods(example: Example) -> None:
    found, _ = added(example.value, *example.others)
    subject = f"{example.value['kind']} team-alpha/{example.value['metadata']['name']}"
    priced = {
        one.subject.removeprefix(subject).strip(): (
            (one.replicas_min, one.replicas_max),
            amounts({"cpu": one.cpu, "memory": one.memory_gib * GIB, _GPU: Decimal(one.accelerators)}),
        )
        for one in found.workloads
    }
    assert priced == {one.part: (one.replicas, total(one.pods)) for one in example.expected if one.priced}


@each_example
def test_a_clusters_room_is_judged_for_these_pods(example: Example) -> None:
    for read, expected in zip(sets(example.value, *example.others), example.expected, strict=True):
        for (spec, _), (_, pod) in zip(read.specs, expected.pods, strict=True):
            demand = Demand("chat", "team-alpha", dict(spec), expected.replicas or (0, 0))
            assert amounts(demand.requests) == total(((1, pod),))
    if "model" not in example.value["spec"].get("predictor", {}):
        return
    rendered = {"inferenceservice.yaml": dump(example.value)}
    demand = capacity_reader.demand(make_plan(), rendered, example.others)
    ((_, pod),) = example.expected[0].pods
    assert {one["name"]: of_one(one) for one in demand.pod["containers"]} == pod
    assert demand.replicas == example.expected[0].replicas


@each_example
def test_the_fit_check_judges_every_server_of_these_pods(example: Example) -> None:
    text = "---\n".join(dump(one) for one in (example.value, *example.others))
    read = servers(read_manifests(text.encode(), "file.yaml"), lambda _: None)
    found = [one for one in read if isinstance(one, VllmContainer) and not one.description]
    judged = Counter((one.container.get("image"), *of_one(one.container)) for one in found)
    there = [
        (each, count)
        for one in sets(example.value, *example.others)
        for spec, count in one.specs
        for each in spec["containers"]
    ]
    assert judged == Counter((VLLM, *of_one(each)) for each, _ in there if each.get("image") == VLLM)
    if example.name == "several-nodes":
        assert [one.pods for one in found] == [3]
    if example.name == "leaders-and-workers":
        assert {one.pods for one in found} == {3}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, item in inside:
        yield from places(item, (*path, key))


@each_example
def test_anything_anywhere_is_read_or_named_and_never_crashes(example: Example) -> None:
    given = [example.value, *example.others]
    for number, value in enumerate(given):
        for path in [one for one in places(value) if one[:1] == ("spec",)]:
            for odd in (None, True, -1, "x", [], {}, [None], ["x"], {"x": [1]}):
                changed = copy.deepcopy(given)
                inside: Any = changed[number]
                for key in path[:-1]:
                    inside = inside[key]
                inside[path[-1]] = odd
                read_workloads(changed)
                manifests = [Manifest("file.yaml", dict(one), Document(one, {(): 1})) for one in changed]
                for _ in servers(manifests, lambda _: None):
                    pass


# What a service and its runtime are together


def serving(value: Object, *others: Object) -> Any:
    return sets(value, *others)[0].specs[0][0]["containers"][0]


def test_arguments_follow_each_other_and_placeholders_are_filled() -> None:
    value = service("chat", "none", modelled("plain", args=["--max-model-len=8192"]))
    assert serving(value, runtime("plain"))["args"] == [
        "--model=/mnt/models",
        "--served-model-name=chat",
        "--max-model-len=8192",
    ]
    value["spec"]["predictor"]["model"] |= {"command": ["other"], "args": []}
    merged = serving(value, runtime("plain"))
    assert (merged["command"], merged["args"]) == (["other"], ["--model=/mnt/models", "--served-model-name=chat"])


def test_lists_with_keys_are_merged_by_them() -> None:
    theirs = runtime("plain", volumes=[{"name": "a", "emptyDir": {}}], tolerations=[{"key": "theirs"}])
    container = theirs["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
    container["volumeMounts"] = [{"name": "a", "mountPath": "/a"}]
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    predictor = modelled(
        "plain",
        env=[{"name": "B", "valueFrom": secret}, {"name": "C", "value": "3"}],
        volumeMounts=[{"name": "b", "mountPath": "/b"}],
    )
    predictor |= {"volumes": [{"name": "b", "emptyDir": {}}], "tolerations": [{"key": "ours"}]}
    (pod, _), *_ = sets(service("chat", "none", predictor), theirs)[0].specs
    merged = pod["containers"][0]
    assert merged["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": secret},
        {"name": "C", "value": "3"},
    ]
    assert [one["mountPath"] for one in merged["volumeMounts"]] == ["/a", "/b"]
    assert [one["name"] for one in pod["volumes"]] == ["a", "b"]
    assert pod["tolerations"] == [{"key": "ours"}]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}


def test_a_container_that_changes_requests_is_merged_too() -> None:
    transformer = "transformer-container"
    theirs = runtime("plain", vllm(transformer, gpus=0, args=["--a"]), vllm("beside", gpus=0))
    value = service("chat", "none", {**modelled("plain"), "containers": [{"name": transformer, "args": ["--b"]}]})
    first, second, third = sets(value, theirs)[0].specs[0][0]["containers"]
    assert [one["name"] for one in (first, second, third)] == ["kserve-container", transformer, "beside"]
    assert second["args"] == ["--a", "--b"]


@pytest.mark.parametrize(
    ("model", "server_type", "gpus", "image"),
    [
        ({}, "", 1, "vllm/vllm-openai:v0.32.0"),
        ({"runtimeVersion": "v1"}, "", 1, "vllm/vllm-openai:v1"),
        ({"runtimeVersion": "v1", "image": "example.org:5000/own"}, "", 1, "example.org:5000/own:v1"),
        ({"runtimeVersion": "v1", "image": "own@sha256:0"}, "", 1, "own@sha256:0"),
        ({}, "vllmserver", 1, "vllm/vllm-openai:v0.32.0"),
        ({}, "vllmserver", 0, "vllm/vllm-openai-cpu:v0.32.0"),
        ({}, "huggingfaceserver", 1, "vllm/vllm-openai:v0.32.0-gpu"),
        ({}, "huggingfaceserver", 0, "vllm/vllm-openai:v0.32.0"),
    ],
)
def test_the_image_is_the_one_that_kserve_takes(model: Object, server_type: str, gpus: int, image: str) -> None:
    theirs = runtime("plain")
    theirs["metadata"]["annotations"] = {"serving.kserve.io/server-type": server_type}
    theirs["spec"]["containers"] = [vllm("kserve-container", gpus=gpus)]
    assert serving(service("chat", "none", modelled("plain", **model)), theirs)["image"] == image


def test_a_formats_own_description_comes_before_the_model() -> None:
    value = service("chat", "none", {**modelled("plain"), "huggingface": {"resources": {"limits": {"cpu": "9"}}}})
    (read, *_) = pods_of_objects([value, runtime("plain")])
    assert isinstance(read.found[0], PodSet)
    (container,) = read.found[0].specs[0][0]["containers"]
    assert container["resources"] == {"limits": {"cpu": "9"}}


def test_an_unknown_runtime_leaves_what_the_service_says() -> None:
    value = service("chat", "none", modelled("other", resources={"limits": {_GPU: "1"}}))
    (read,) = pods_of_objects([value])
    known, unknown = read.found
    assert isinstance(known, PodSet)
    assert known.specs[0][0]["containers"][0]["resources"] == {"limits": {_GPU: "1"}}
    assert isinstance(unknown, UnknownPods)
    assert not unknown.decisive
