"""Defines the catalog's entries: the content of the files below `platform/catalog/`.

Each figure stands with its source. A figure that nobody has published or measured is null and never guessed: the plan
then says so and becomes less confident. GiB is 2^30 bytes, GB is 10^9 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from neuroscale.catalog.alert_contacts import AlertContact
from neuroscale.catalog.measurements import MOST_MEASUREMENTS, Measurement, weights_digest
from neuroscale.core.frozen import Frozen, Label, Positive, Source
from neuroscale.core.validation import wrong

if TYPE_CHECKING:
    from neuroscale.models.facts import ModelFacts

Quantization = Literal["none", "awq", "compressed-tensors-w4a16", "fp8", "gptq", "int8", "mxfp4", "nvfp4"]
Dtype = Literal["bfloat16", "float16", "float32"]
KvCacheDtype = Literal["auto", "fp8"]
Family = Literal["cuda", "rocm", "tpu", "cpu"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")]
LabelValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]


class Figure(Frozen):
    """A number and its source; `value` is null if the number is unknown."""

    value: Positive | None
    source: Source


class Tried(Frozen):
    """Whether something works, as somebody saw it, and the source; `value` is null if nobody has tried it."""

    value: bool | None
    source: Source


class Parameters(Frozen):
    """The publisher's numbers of parameters (null: unknown). The plan counts from `config`; tests compare the two."""

    published_total: Annotated[int, Field(ge=1)] | None
    published_active: Annotated[int, Field(ge=1)] | None
    active_excludes_embedding: bool
    source: Source


class Checkpoint(Frozen):
    """The size of the files, and of the weights once they are loaded.

    `download_gib`: the size of the files. `resident_gib`: the number in vLLM's 'Model loading took', at tensor parallel
    size 1. `host_memory_gib`: the peak of the process while it loads.
    """

    dtype: Dtype
    quantization: Quantization
    quantization_group_size: int | None = None
    download_gib: Figure
    resident_gib: Figure
    host_memory_gib: Figure


class Weights(Frozen):
    """Where the files are: a Hugging Face repository, or a folder in the environment's own model store.

    `gated`: the Hub gives the files only to users whom the publisher admits (null: unknown). `read_on`: the day on
    which `neuroscale catalog add` read revision, licence and sizes.
    """

    kind: Literal["hub", "store"]
    path: Name
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None
    gated: bool | None
    license: str | None
    source: Source
    read_on: date | None = None


class Serving(Frozen):
    """How vLLM serves this model. A parser is null if there is none for the model.

    `families`: the kinds of accelerators on which the model is known to run; plans use no other kind. `multimodal`: it
    takes images or sound as well as text. `chat_template`: the files hold one (null: unknown); vLLM refuses chats with
    a model without a template.
    """

    families: Annotated[tuple[Family, ...], Field(min_length=1)]
    tool_call_parser: str | None
    reasoning_parser: str | None
    multimodal: bool
    minimum_vllm_version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None
    source: Source
    chat_template: bool | None = None


class GoodAt(Frozen):
    """The strengths of the model in a few words of its publisher."""

    text: Annotated[str, Field(min_length=3, max_length=80, pattern=r"^[^\n]+$")]
    source: Source


class ModelEntry(Frozen):
    """One servable checkpoint. `variant_of` names the model that this is a quantised copy of.

    `family`: its heading in the form (null: the family follows from its name, see catalog/parser_families.py).

    `config`: the keys of its config.json, unchanged; keys that do not affect memory may be left out.

    `measurements`: of its speed and of its starts, each for an accelerator, a version and arguments.
    """

    name: Name
    title: str
    variant_of: Name | None = None
    family: Annotated[str, Field(min_length=2, max_length=40, pattern=r"^[^\n]+$")] | None = None
    good_at: GoodAt | None = None
    weights: Weights
    config: dict[str, Any]
    config_source: Source
    parameters: Parameters
    checkpoint: Checkpoint
    serving: Serving
    measurements: Annotated[tuple[Measurement, ...], Field(max_length=MOST_MEASUREMENTS)] = ()

    @field_validator("measurements")
    @classmethod
    def _once(cls, measurements: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
        keys = [one.key for one in measurements]
        twice = next((one for place, one in enumerate(measurements) if one.key in keys[:place]), None)
        if twice is not None:
            told = f"two measurements are of the same server on {twice.count} x {twice.accelerator}"
            raise wrong(told, "Keep the later one: each holds for a version and arguments of its own.")
        return measurements

    @cached_property
    def weights_digest(self) -> str:
        """By it, a measurement says of which weights it is."""
        return weights_digest(self.config, self.checkpoint.model_dump())

    @property
    def facts(self) -> ModelFacts:
        """The facts in `config`. Raises InputError, which names the key below `config`, if it cannot be read."""
        return self.reading[0]

    @cached_property
    def reading(self) -> tuple[ModelFacts, list[tuple[str, str]]]:
        """The facts, and the keys of `config` that nothing reads, each with the key that was probably meant."""
        from neuroscale.models.config import read_entry  # only who reads a config waits for the families of models

        config = {"dtype": self.checkpoint.dtype, **self.config}
        return read_entry(config, self.name, f"the catalog's {self.name}")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that computes its own facts."""
        copy = super().model_copy(update=update, deep=deep)
        for computed in ("reading", "weights_digest"):
            copy.__dict__.pop(computed, None)
        return copy


class AskedFor(Frozen):
    """How a pod requests an accelerator on one kind of cluster. `resource`: set if it is not the entry's own."""

    resource: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$")] | None = None
    node_selector: dict[str, LabelValue]


class Accelerator(Frozen):
    """One kind of accelerator as a pod can request it.

    `resource` and `node_selector`: how a pod requests it, unless `asked_for` has an entry for the environment's kind of
    cluster (kind: a cluster of one's own). `clusters`: the kinds of clusters that have it (none: every kind). `dtypes`:
    the dtypes of weights with which vLLM starts there.

    `counts`: how many one pod may hold. `memory_gib`: the memory of one that the runtime reports. `bandwidth_gb_s`: of
    its memory. `used_gib`: the memory that other programs hold when vLLM starts (none: nothing, or the common part if
    the host's memory is shared). `bf16_tflops`, `fp8_tflops`, `int8_tflops`, `fp4_tflops`: dense (none: it does not
    compute in that type). `interconnect_gb_s`: to the others of a pod, one direction (none: over PCIe).
    `host_cpu` and `host_memory_gib` are per accelerator, and limit the requests of a pod.
    """

    name: Label
    title: str
    family: Family
    counts: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1)]
    resource: Annotated[str, Field(pattern=r"^$|^[a-z0-9.-]+/[a-z0-9.-]+$")]
    node_selector: dict[str, LabelValue]
    memory_gib: Figure
    bandwidth_gb_s: Figure
    bf16_tflops: Figure
    fp8_tflops: Figure | None = None
    int8_tflops: Figure | None = None
    fp4_tflops: Figure | None = None
    pcie_gb_s: Figure
    interconnect_gb_s: Figure | None = None
    used_gib: Figure | None = None
    quantizations: tuple[Quantization, ...]
    kv_cache_dtypes: Annotated[tuple[KvCacheDtype, ...], Field(min_length=1)]
    support_source: Source
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = ("bfloat16", "float16", "float32")
    asked_for: dict[Literal["kind", "gke", "eks"], AskedFor] = Field(default_factory=dict)
    clusters: tuple[Literal["kind", "gke", "eks"], ...] = ()

    def on(self, cluster: str) -> Accelerator:
        """The accelerator as a pod requests it on that kind of cluster."""
        for name, how in self.asked_for.items():
            if name == cluster:
                return self.model_copy(
                    update={"resource": how.resource or self.resource, "node_selector": how.node_selector}
                )
        return self

    @property
    def ways(self) -> tuple[Accelerator, ...]:
        """The accelerator in every way in which a pod may request it."""
        return (self, *(self.on(name) for name in self.asked_for))

    @field_validator("counts")
    @classmethod
    def _ascending(cls, counts: tuple[int, ...]) -> tuple[int, ...]:
        if list(counts) != sorted(set(counts)):
            raise wrong("counts are not ascending", "List each count once, ascending, such as [1, 2, 4].")
        return counts


class OnlyFor(Frozen):
    """The models that a runtime is for, by their config.json: the language model's `model_type`, and whether it is a
    mixture of experts."""

    model_type: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,60}$")]
    architecture: Literal["dense", "moe"]

    def suits(self, facts: ModelFacts) -> bool:
        """Whether the runtime is for this model."""
        return (facts.model_type, facts.kind) == (self.model_type, self.architecture)


class RuntimeEntry(Frozen):
    """A serving image and how vLLM runs in it.

    `only_for`: the models that get this runtime in place of the family's general one (None: this is the general one).

    `memory_utilization`: share of an accelerator's memory that vLLM may take (null: the flag is not used).
    `start_seconds`: seconds of a start beside weights, compilation and graphs (processes, profiling, warm-up).
    `compile_layer_seconds`: seconds of compilation for each layer of the model, without a cache.
    `capture_layer_seconds`: seconds to capture a graph, for each layer and batch size (null: none is captured).
    `read_only_root`: whether vLLM starts and answers in this image on a read-only root file system, with only HOME,
    `/tmp` and `/dev/shm` to write to (None: nobody has tried it).
    """

    name: Label
    title: str
    family: Family
    only_for: OnlyFor | None = None
    image: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._/-]*[a-z0-9])?:[A-Za-z0-9._-]+$")]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    uid: Annotated[int, Field(ge=1, le=65535)]
    gid: Annotated[int, Field(ge=1, le=65535)]
    environment: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], str]
    args: tuple[Annotated[str, Field(pattern=r"^--[a-z0-9-]+(=\S+)?$")], ...] = ()
    memory_utilization: Annotated[float, Field(gt=0.3, le=0.98)] | None
    start_seconds: Figure
    compile_layer_seconds: Figure
    capture_layer_seconds: Figure
    read_only_root: Tried | None = None
    source: Source

    @field_validator("image")
    @classmethod
    def _pinned(cls, image: str) -> str:
        if image.rsplit(":", 1)[1] in ("latest", "nightly", "main", "dev"):
            raise wrong("the tag moves", "Name a released version, such as v0.32.0.")
        return image

    @property
    def reference(self) -> str:
        """The image, with its digest if that is known."""
        return f"{self.image}@{self.digest}" if self.digest else self.image

    @property
    def has_read_only_root(self) -> bool:
        """Whether its services get a read-only root file system: only where that was tried and works."""
        return self.read_only_root is not None and self.read_only_root.value is True


class Quota(Frozen):
    """The most that a team's pods may request together, in every cluster.

    `accelerators`: numbers by resource name, such as `nvidia.com/gpu: 8`; the team may not use a resource that is not
    listed. The rollout `surge` runs one pod more than the replicas during a change: leave room for it.
    """

    cpu: Annotated[int, Field(ge=1)] = 64
    memory_gib: Annotated[int, Field(ge=1)] = 512
    pods: Annotated[int, Field(ge=1)] = 50
    accelerators: dict[
        Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$")], Annotated[int, Field(ge=0, le=100_000)]
    ] = Field(default_factory=dict)


class Team(Frozen):
    """A team, which may own services. `namespace`: the namespace in which its services run.

    `group`: the group of the identity provider whose members see the namespace (None: the group with the owner's name).
    `alerts`: whom alerts about its services reach (None: the environment's fallback).
    """

    name: Label
    owner: LabelValue
    cost_center: LabelValue
    namespace: Label
    contact: str
    group: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.:@/]{0,200}$")] | None = None
    quota: Quota = Field(default_factory=Quota)
    alerts: AlertContact | None = None

    @field_validator("group")
    @classmethod
    def _of_people(cls, group: str | None) -> str | None:
        if group is not None and group.startswith("system:"):
            raise wrong(f"{group} is one of Kubernetes' own groups", "Name a group of your identity provider.")
        return group

    @property
    def reached_by(self) -> str:
        """The team's name, and whom a fault of its services should reach, for people."""
        return f"{self.name} ({self.alerts.text if self.alerts is not None else self.contact})"
