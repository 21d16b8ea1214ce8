"""Describes a request with the entries that it names, and says why a model cannot run on an accelerator at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from neuroscale.catalog import Accelerator, Catalog, ModelEntry, RuntimeEntry
from neuroscale.catalog.settings import Environment
from neuroscale.core.releases import release
from neuroscale.models.facts import ModelFacts
from neuroscale.planning import replica_memory
from neuroscale.planning.fit.argument_defaults import BLOCK
from neuroscale.planning.vllm_flags import model_source
from neuroscale.request.service_request import Request

CHAT_TEMPLATE_TOKENS = 128
"""Room for role markers and the start of the answer. A prompt of exactly the limit leaves none for an answer."""

OverrideValue = str | int | float | bool


def asked_rate(request: Request, environment: Environment) -> float:
    """Tokens per second that each user gets while all ask: the form's answer, else the environment's."""
    asked = request.tokens_per_second_per_user
    return environment.tokens_per_second_per_user if asked is None else asked


@dataclass(frozen=True)
class Case:
    """A request with the catalog entries and settings that it names. `overrides`: values by field."""

    request: Request
    model: ModelEntry
    environment_name: str
    environment: Environment
    catalog: Catalog
    overrides: dict[str, OverrideValue]

    @cached_property
    def facts(self) -> ModelFacts:
        """The facts of the model, with the best known size of its weights."""
        return replica_memory.served_facts(self.model)

    @property
    def wanted_model_len(self) -> int:
        """Longest prompt, longest answer and the chat template, in whole KV cache blocks."""
        whole = math.ceil((self.asked_tokens + CHAT_TEMPLATE_TOKENS) / BLOCK) * BLOCK
        # If only the margin for the template crosses the model's own limit, the limit itself is the length.
        limit = self.model.facts.max_position_embeddings
        return limit if self.asked_tokens < limit < whole else whole

    @property
    def asked_tokens(self) -> int:
        """The tokens of the longest prompt and answer together."""
        return self.request.longest_prompt_tokens + self.request.longest_answer_tokens

    @cached_property
    def typical(self) -> tuple[int, int]:
        """Tokens of the prompt and of the answer of most requests: the form's, else the environment's share of the
        longest. Never longer than the longest."""
        request, share = self.request, self.environment.typical_share

        def tokens(said: int | None, longest: int) -> int:
            return min(longest, math.ceil(share * longest) if said is None else said)

        return (
            tokens(request.typical_prompt_tokens, request.longest_prompt_tokens),
            tokens(request.typical_answer_tokens, request.longest_answer_tokens),
        )

    @property
    def typical_len(self) -> int | None:
        """Tokens of most requests with the chat template, in whole KV cache blocks; None if all requests are of full
        length."""
        request = self.request
        if self.typical == (request.longest_prompt_tokens, request.longest_answer_tokens):
            return None
        whole = math.ceil((sum(self.typical) + CHAT_TEMPLATE_TOKENS) / BLOCK) * BLOCK
        return min(whole, self.max_model_len)

    @property
    def tokens_per_second_per_user(self) -> float:
        """What each user gets while all ask."""
        return asked_rate(self.request, self.environment)

    @property
    def max_model_len(self) -> int:
        value = self.overrides.get("max_model_len")
        return value if isinstance(value, int) else self.wanted_model_len


@dataclass(frozen=True)
class Failure:
    """A reason against a candidate, as a complete sentence."""

    kind: Literal["support", "context", "memory", "speed", "replicas"]
    sentence: str


def never_runs(case: Case, accelerator: Accelerator, runtime: RuntimeEntry, count: int) -> list[Failure]:
    """Every reason why the model cannot run there, whatever memory and speed are."""
    model, facts = case.model, case.model.facts
    quantization = model.checkpoint.quantization
    support, context = [], []
    if accelerator.name not in case.environment.accelerators:
        support.append(
            f"The environment {case.environment_name} does not offer {accelerator.title}; it offers "
            f"{', '.join(case.environment.accelerators)}."
        )
    if count not in accelerator.counts:
        offered = ", ".join(map(str, accelerator.counts))
        support.append(f"A pod can hold {offered} of {accelerator.title}, not {count}.")
    if accelerator.family not in model.serving.families:
        support.append(f"{model.name} is not known to run on {accelerator.title} under vLLM {runtime.version}.")
    if quantization not in accelerator.quantizations:
        what = "16-bit" if quantization == "none" else quantization
        support.append(f"{accelerator.title} cannot serve {what} weights under vLLM {runtime.version}.")
    if model.checkpoint.dtype not in accelerator.dtypes:
        support.append(
            f"{accelerator.title} computes no {model.checkpoint.dtype}, in which {model.name} is stored: vLLM does not "
            "start with it."
        )
    if not model_source(model, case.environment) or (model.weights.kind == "hub" and not case.environment.models.hub):
        origin = "the Hugging Face hub" if model.weights.kind == "hub" else "a model store of the organisation's own"
        support.append(f"{model.name} comes from {origin}, which the environment {case.environment_name} lacks.")
    minimum = model.serving.minimum_vllm_version
    if minimum and release(minimum) > release(runtime.version):
        support.append(f"{model.name} needs vLLM {minimum}; the runtime {runtime.name} has {runtime.version}.")
    group = model.checkpoint.quantization_group_size
    if group and facts.intermediate_size % (group * count):
        support.append(
            f"The MLP of {model.name} ({facts.intermediate_size} wide, quantised in groups of {group}) cannot be "
            f"split over {count} ranks."
        )
    longest = facts.max_position_embeddings
    if "max_model_len" in case.overrides and case.max_model_len < case.asked_tokens:
        context.append(_too_short(case.max_model_len, case.asked_tokens, case.wanted_model_len, longest))
    if (needed := max(case.max_model_len, case.asked_tokens)) > longest:
        context.append(
            f"A request may be {needed} tokens long (prompt, answer and chat template); {model.name} reads at most "
            f"{longest}."
        )
    return [*(Failure("support", each) for each in support), *(Failure("context", each) for each in context)]


def _too_short(overridden: int, asked: int, wanted: int, longest: int) -> str:
    """Why a plan with an overridden context is refused. All are tokens: the context, the longest prompt and answer,
    these with the chat template, and the most that the model reads."""
    fix = f"override it with at least {min(wanted, longest)}, or remove it" if asked <= longest else "remove it"
    told = f"The override of max_model_len is {overridden}, and prompt and answer of the form may have {asked} tokens"
    return f"{told}: {fix}."
