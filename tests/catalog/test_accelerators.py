"""The catalog's accelerators: how a pod asks for each, by kind of cluster, and what a card does not compute."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import ProductionRules, check_settings
from neuroscale.core.errors import InputError
from neuroscale.manifests.accelerators import GKE_SLICES, doubles, find_accelerator
from neuroscale.manifests.pod_resources import Pod
from neuroscale.planning.fit_question import Question, answer
from neuroscale.planning.planner import plan
from neuroscale.request.service_request import Request
from platform_repository import CATALOG
from platform_repository import SETTINGS as SHIPPED

# The tests keep one environment, so no production environment either.
SETTINGS = SHIPPED.model_copy(update={"production": ProductionRules()})
WAYS = [(name, way) for name, one in CATALOG.accelerators.items() if one.resource for way in one.ways]


def a_request(model: str) -> Request:
    return Request(
        service="chat",
        model=model,
        team="team-alpha",
        environment="dev",
        concurrent_users=2,
        longest_prompt_tokens=1024,
        longest_answer_tokens=256,
        p95_ttft_seconds=60.0,
        availability="standard",
    )


def planned(model: str, accelerator: str, cluster: Any) -> Any:
    environment = SETTINGS.environments["dev"].model_copy(update={"accelerators": (accelerator,), "cluster": cluster})
    return plan(a_request(model), CATALOG, SETTINGS.model_copy(update={"environments": {"dev": environment}}))


def test_no_two_accelerators_are_asked_for_alike() -> None:
    assert not list(doubles(CATALOG))
    card = CATALOG.accelerators["nvidia-l4"]
    copy = card.model_copy(update={"name": "copy"})
    elsewhere = copy.model_copy(update={"node_selector": {"a/b": "c"}, "asked_for": {}})
    for other, told in ((copy, 1), (copy.model_copy(update={"counts": (64,)}), 0), (elsewhere, 0)):
        cards = {**CATALOG.accelerators, "copy": other}
        both = Catalog(CATALOG.models, cards, CATALOG.prices, CATALOG.runtimes, CATALOG.teams)
        problems = list(doubles(both))
        assert len(problems) == told
        assert all("'copy' also asks for 'nvidia-l4'" in problem.message for problem in problems)


@pytest.mark.parametrize(("name", "way"), WAYS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_pod_that_asks_in_any_way_is_known_by_its_accelerator(name: str, way: Any) -> None:
    labels = {key: frozenset({value}) for key, value in way.node_selector.items()}
    pod = Pod(devices={way.resource: Decimal(way.counts[0])}, nodes=(labels,))
    assert find_accelerator(pod, CATALOG, ()) == (name, way.counts[0])


@pytest.mark.parametrize(
    "labels",
    [
        {"cloud.google.com/gke-accelerator": {"nvidia-tesla-a100"}, GKE_SLICES: {"1g.5gb"}},
        {"nvidia.com/gpu.product": {"NVIDIA-A100-SXM4-40GB"}, GKE_SLICES: {"2g.10gb"}},
        {"nvidia.com/gpu.product": {"NVIDIA-L4"}, GKE_SLICES: {"1g.5gb", "2g.10gb"}},
        {GKE_SLICES: {"1g.5gb"}},
    ],
)
def test_a_slice_that_the_catalog_lacks_is_not_taken_for_the_whole_card(labels: dict[str, set[str]]) -> None:
    nodes = ({key: frozenset(values) for key, values in labels.items()},)
    pod = Pod(devices={"nvidia.com/gpu": Decimal(1)}, nodes=nodes)
    with pytest.raises(ValueError, match=r"the catalog has no accelerator for .*1g\.5gb|of the size 2g\.10gb"):
        find_accelerator(pod, CATALOG, ("nvidia-a100-40gb",))


@pytest.mark.parametrize(
    ("cluster", "label"),
    [
        ("gke", "cloud.google.com/gke-accelerator"),
        ("eks", "karpenter.k8s.aws/instance-gpu-name"),
        ("kind", "nvidia.com/gpu.product"),
    ],
)
def test_a_plan_asks_in_the_way_of_its_cluster(cluster: str, label: str) -> None:
    made = planned("Qwen/Qwen3-0.6B", "nvidia-l4", cluster)
    assert made.verdict != "refused"
    assert set(made.resources.node_selector) == {label}


def test_a_card_without_bfloat16_is_not_planned_for_weights_in_it() -> None:
    refused = planned("Qwen/Qwen3-0.6B", "tesla-t4", "gke")
    assert refused.verdict == "refused"
    assert "computes no bfloat16" in refused.reasons[0]
    question = Question("Qwen/Qwen3-0.6B", "tesla-t4", vllm_version="0.32.0")
    found = answer(question, CATALOG)
    assert found.verdict == "refused"
    assert "--dtype=float16" in found.reasons[0]
    assert answer(replace(question, words=("--dtype", "half", "--max-model-len", "2048")), CATALOG).verdict != "refused"


def test_a_slice_is_asked_for_as_its_cluster_offers_it() -> None:
    here = planned("Qwen/Qwen3-0.6B", "nvidia-h100-mig-1g-10gb", "kind").resources
    assert here.accelerator_resource == "nvidia.com/mig-1g.10gb"
    assert here.node_selector == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    there = planned("Qwen/Qwen3-0.6B", "nvidia-h100-mig-1g-10gb", "gke").resources
    assert (there.accelerator_resource, len(there.node_selector)) == ("nvidia.com/gpu", 2)
    assert there.node_selector["cloud.google.com/gke-gpu-partition-size"] == "1g.10gb"


def test_amds_cards_are_planned_for_models_known_to_run_there_and_never_surely() -> None:
    made = planned("meta-llama/Llama-3.1-8B-Instruct", "amd-mi300x", "kind")
    assert (made.verdict, made.confidence) == ("tight", "low")
    assert made.runtime.image.startswith("vllm/vllm-openai-rocm:")
    assert made.resources.accelerator_resource == "amd.com/gpu"
    assert any("/dev/kfd" in reason for reason in made.reasons)
    unknown = planned("Qwen/Qwen3-0.6B", "amd-mi325x", "kind")
    assert "not known to run on AMD Instinct MI325X" in unknown.reasons[0]


@pytest.mark.parametrize("name", sorted(CATALOG.accelerators))
def test_no_cluster_gets_the_labels_of_another_providers_nodes(name: str) -> None:
    accelerator = CATALOG.accelerators[name]
    for cluster in accelerator.clusters or ("kind", "gke", "eks"):
        labels = accelerator.on(cluster).node_selector
        owners = {"gke" for one in labels if one.startswith("cloud.google.com/")}
        owners |= {"eks" for one in labels if one.startswith("karpenter.k8s.aws/")}
        assert owners <= {cluster}
        assert labels or accelerator.family == "cpu"


@pytest.mark.parametrize("cluster", ["gke", "eks"])
def test_a_cluster_is_not_offered_cards_that_its_provider_lacks(cluster: Any) -> None:
    environment = SETTINGS.environments["dev"].model_copy(update={"accelerators": ("amd-mi300x",), "cluster": cluster})
    settings = SETTINGS.model_copy(update={"environments": {"dev": environment}})
    with pytest.raises(InputError, match="do not have 'amd-mi300x'"):
        check_settings(settings, CATALOG)
    check_settings(
        settings.model_copy(update={"environments": {"dev": environment.model_copy(update={"cluster": "kind"})}}),
        CATALOG,
    )


def test_a_whole_card_and_its_slices_on_gke_cannot_be_told_apart_by_labels() -> None:
    names = ("nvidia-h100-80gb", "nvidia-h100-mig-1g-10gb", "nvidia-l4")
    environment = SETTINGS.environments["dev"].model_copy(update={"accelerators": names, "cluster": "gke"})
    settings = SETTINGS.model_copy(update={"environments": {"dev": environment}})
    with pytest.raises(InputError, match="'nvidia-h100-80gb' could start on nodes of 'nvidia-h100-mig-1g-10gb'"):
        check_settings(settings, CATALOG)
    elsewhere = environment.model_copy(update={"cluster": "kind"})
    check_settings(settings.model_copy(update={"environments": {"dev": elsewhere}}), CATALOG)


def test_environments_get_no_accelerator_that_their_settings_do_not_name() -> None:
    named = {name for environment in SETTINGS.environments.values() for name in environment.accelerators}
    assert named == {
        *("cpu", "nvidia-a100-80gb", "nvidia-h100-80gb", "nvidia-h200-141gb", "nvidia-l4", "nvidia-rtx-pro-6000"),
        *("tpu-v6e-1", "tpu-v6e-4"),
    }
