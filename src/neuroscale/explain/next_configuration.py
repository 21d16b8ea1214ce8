"""Plans the next configuration of a server that ended: a change that its cause names, judged by the fit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.core.printable import one_line
from neuroscale.explain import Change, Diagnosis, ServerFacts
from neuroscale.explain.server_facts import figure
from neuroscale.planning.fit import Fit
from neuroscale.planning.fit.device import CONTEXT_GIB
from neuroscale.planning.fit_question import Question, answer
from neuroscale.request.field_changes import OVERRIDES
from neuroscale.request.service_request import OVERRIDE_FIELDS
from neuroscale.vllm.argument_values import values_of, words_of
from neuroscale.vllm.arguments import parse_arguments

_WORDS_OF_CARDS = frozenset(
    {"nvidia", "geforce", "tesla", "hbm3", "hbm3e", "hbm2e", "pcie", "sxm4", "sxm5", "sxm", "gpu"}
)
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_MOST_RANKS = 64  # of a next configuration
_OTHERS_MATTER = 0.7  # GiB: less may be the driver's own


@dataclass(frozen=True)
class Proposal:
    """The next configuration, and the fit that shows that it starts. `words`: of `vllm serve` as a whole; `changed` and
    `removed`: arguments of it by vLLM's own names; `overrides`: of the plan, by the fields that `update` takes."""

    words: tuple[str, ...]
    changed: Mapping[str, Any]
    removed: Mapping[str, Any]
    overrides: Mapping[str, Any]
    sentence: str
    fit: Fit


@dataclass(frozen=True)
class Known:
    """What is known of the server: the question for the fit, by the log and the options; `lacks` says why there is
    none."""

    question: Question | None
    lacks: str = ""


def known(facts: ServerFacts, options: Question, catalog: Catalog) -> Known:
    """The question for the fit: the options hold, and the log tells the rest. In `options`, an empty text is none."""
    model = _model(options.model or facts.model, catalog) or options.model
    if not model and not facts.model:
        return Known(None, "The log does not name the model: name it with --model.")
    drafts = [] if options.words else [name for name in _drafts(facts.arguments) if not _model(name, catalog)]
    unknown, option = (facts.model, "--model") if not model else (next(iter(drafts), ""), "--vllm-args")
    if unknown:
        message = f"The log's model {one_line(unknown, 80)} is not in the catalog"
        return Known(None, f"{message}, and a name that only a log gives is not looked up: name it with {option}.")
    words = options.words or words_of(facts.arguments, facts.version)
    accelerator = options.accelerator or _accelerator(facts, catalog)
    memory = options.memory_gib or (None if accelerator in catalog.accelerators else facts.memory_gib)
    if not accelerator and memory is None:
        return Known(None, "The log does not name the accelerator: name it with --accelerator.")
    others = facts.others_gib if (facts.others_gib or 0) > _OTHERS_MATTER else None
    return Known(
        replace(
            options,
            model=model,
            accelerator=accelerator or None,
            words=words,
            vllm_version=options.vllm_version or facts.version,
            memory_gib=memory,
            used_gib=others if options.used_gib is None else options.used_gib,
        )
    )


def _model(name: str, catalog: Catalog) -> str:
    """The catalog's name for a model that is named so, by its address, its folder or without its owner; "" if it has
    none."""
    if name in catalog.models:
        return name
    last = name.rstrip("/").rpartition("/")[2].lower()
    for entry in catalog.models.values():
        if entry.weights.kind == "hub" and entry.weights.path.lower() == name.lower():
            return entry.name
    short = (entry.name for entry in catalog.models.values() if last == entry.name.rpartition("/")[2].lower())
    return next(short, "")


def _drafts(arguments: Mapping[str, Any]) -> list[str]:
    """The models that speculative decoding drafts with."""
    texts = [f"{name}: {json.dumps(value)}" for name, value in arguments.items() if name.startswith("speculative")]
    return re.findall(r"\bmodel\W{1,8}([\w./-]+)", " ".join(texts))


def _accelerator(facts: ServerFacts, catalog: Catalog) -> str:
    """The catalog's accelerator that the driver calls so, or the only one with that memory."""
    wanted = _words(facts.card)
    if wanted:
        fitting = [
            each for each in catalog.accelerators.values() if wanted <= _words(each.title) and "mig" not in each.name
        ]
        if fitting:
            return min(fitting, key=lambda each: len(_words(each.title))).name
    if facts.memory_gib:
        near = [
            each.name
            for each in catalog.accelerators.values()
            if each.family == "cuda" and each.memory_gib.value and abs(each.memory_gib.value - facts.memory_gib) < 0.02
        ]
        if len(near) == 1:
            return near[0]
    return ""


def _words(title: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", title.lower())) - _WORDS_OF_CARDS


def next_configuration(
    diagnosis: Diagnosis,
    question: Question,
    catalog: Catalog,
    asks: Callable[[Proposal], bool] = lambda _: True,
    refused: Callable[[], Mapping[str, str]] = dict,
) -> tuple[Proposal | None, str]:
    """The first change of the cause that the fit accepts and no policy refuses, and a sentence that says why there is
    none. `asks`: whether the service's request can ask for it; a change for which it cannot comes last, and without
    overrides. `refused`: the policy that refuses an argument, by vLLM's own name for it."""
    if not diagnosis.next:
        return None, ""
    fitting: Proposal | None = None
    by_policy = ""
    for attempt, result in _fitting(diagnosis, question, catalog):
        if (proposal := _changed(question, attempt, result)) is not None:
            policy = next((refused()[name] for name in proposal.changed if name in refused()), "")
            if policy:
                by_policy = f"{attempt.sentence} would be refused: the policy {policy} allows it in no service here."
                continue
            if asks(proposal):
                return proposal, ""
            fitting = fitting or replace(proposal, overrides={})
    if fitting is not None:
        return fitting, ""
    if by_policy:
        return None, by_policy
    return None, "No change that the cause names fits by the plan: `neuroscale fit` says why, and what fits instead."


def _fitting(diagnosis: Diagnosis, question: Question, catalog: Catalog) -> Iterator[tuple[_Attempt, Fit]]:
    """The attempts that the fit accepts. A change that does not fit alone is tried together with what planning finds on
    top of it: at once where it mends the cause, and last where smaller steps of it follow."""
    last: list[_Attempt] = []
    for change in diagnosis.next:
        steps = change.kind in ("lower", "free_share")
        mends = change.kind in ("set", "drop", "without_refused")
        for at, attempt in enumerate(_attempts(change, diagnosis, question, catalog)):
            result = _judged(attempt.judged, catalog)
            if result is None:
                continue
            if result.verdict != "refused":
                yield attempt, result
            elif mends:
                yield from _on_top(attempt, catalog)
            elif steps and at == 0:
                last.append(attempt)
    for attempt in last:
        yield from _on_top(attempt, catalog)


def _on_top(attempt: _Attempt, catalog: Catalog) -> Iterator[tuple[_Attempt, Fit]]:
    """A refused attempt with each change on top of it that planning finds and the fit accepts."""
    for planned in _planned(attempt.question, _values(attempt.question), catalog):
        result = _judged(planned.judged, catalog)
        if result is not None and result.verdict != "refused":
            yield replace(planned, sentence=f"{attempt.sentence} {planned.sentence}"), result


def _changed(question: Question, attempt: _Attempt, result: Fit) -> Proposal | None:
    """The attempt as the next configuration; None if it changes nothing."""
    words, old, new = attempt.question.words, _values(question), _values(attempt.question)
    changed = {name: value for name, value in new.items() if name not in old or old[name] != value}
    removed = {name: value for name, value in old.items() if name not in new}
    moved = attempt.question.accelerator != question.accelerator
    same = (attempt.question.model, attempt.question.count) == (question.model, question.count)
    if not changed and not removed and not moved and same:
        if words == question.words:
            return None
        # The same argument, spelled otherwise.
        changed = {name: new[name] for name in new if not {*words_of({name: new[name]})} <= {*question.words}}
    return Proposal(words, changed, removed, _overrides(changed, result, moved=moved), attempt.sentence, result)


def _overrides(changed: Mapping[str, Any], result: Fit, *, moved: bool) -> dict[str, Any]:
    """The overrides of the plan that give these arguments. `moved`: the configuration runs on another kind of
    accelerator."""
    values = dict(changed)
    if "tensor_parallel_size" in values:
        values["accelerator_count"] = result.count
    if moved:
        values["accelerator"] = result.accelerator
    return {
        f"{OVERRIDES}{name}": value
        for name, value in values.items()
        if name in OVERRIDE_FIELDS and not isinstance(value, bool) and value not in (None, "")
    }


def _values(question: Question) -> dict[str, Any]:
    return values_of(question.words, question.vllm_version)


def _judged(question: Question, catalog: Catalog) -> Fit | None:
    """The fit; None for a question that cannot be judged, such as a command that its version refuses."""
    try:
        return answer(question, catalog)
    except InputError:
        return None


@dataclass(frozen=True)
class _Attempt:
    """`measured`: arguments for the fit alone, which tell it what the log measured."""

    question: Question
    sentence: str
    measured: tuple[str, ...] = ()

    @property
    def judged(self) -> Question:
        """The question for the fit."""
        return replace(self.question, words=(*self.question.words, *self.measured))


def _attempts(change: Change, diagnosis: Diagnosis, question: Question, catalog: Catalog) -> Iterator[_Attempt]:
    present = _values(question)
    if change.kind == "set":
        values = {name: _filled(value, diagnosis.captured) for name, value in change.values.items()}
        if None not in values.values() and any(present.get(name) != value for name, value in values.items()):
            attempt = _with(question, {**present, **values}, f"Set {_as_options(values)}.")
            yield replace(attempt, measured=_measured(values, diagnosis, present))
    elif change.kind == "drop":
        gone = [name for name in change.values if name in present]
        if gone:
            rest = {name: value for name, value in present.items() if name not in gone}
            yield _with(question, rest, f"Leave out {' and '.join(f'--{name}'.replace('_', '-') for name in gone)}.")
    elif change.kind == "lower":
        yield from _lowered(change, question, present, catalog)
    elif change.kind == "planned":
        yield from _planned(question, present, catalog)
    elif change.kind == "fewer_ranks":
        yield from _fewer_ranks(diagnosis, question, present)
    elif change.kind == "free_share":
        yield from _free_share(diagnosis, question, present)
    elif change.kind == "without_refused":
        yield from _without_refused(diagnosis, question)


def _with(question: Question, arguments: Mapping[str, Any], sentence: str) -> _Attempt:
    """The attempt with these arguments, which say in how many parts the model is served on several accelerators."""
    if (question.count or 1) > 1 and not any(arguments.get(name) for name in _SIZES):
        arguments = {**arguments, "tensor_parallel_size": question.count}
    return _Attempt(replace(question, words=words_of(arguments, question.vllm_version)), sentence)


def _measured(values: Mapping[str, Any], diagnosis: Diagnosis, present: Mapping[str, Any]) -> tuple[str, ...]:
    """What vLLM measured of the KV cache before it named the longest context that fits: its memory, or its tokens. The
    plan's estimate of it says less. The message rounds to 0.01 GiB; vLLM keeps one block for itself."""
    captured = diagnosis.captured
    if "max_model_len" not in values or "longest" not in captured:
        return ()
    if (available := figure(captured.get("available_gib", ""))) is not None:
        return (f"--kv-cache-memory-bytes={int((available + 0.005) * (1 << 30))}",)
    if diagnosis.cause is None or diagnosis.cause.name != "length_exceeds_kv":
        return ()
    return (f"--num-gpu-blocks-override={math.ceil(values['max_model_len'] / _size(present, 'block_size', 16)) + 1}",)


def _size(present: Mapping[str, Any], name: str, default: int) -> int:
    """The value of an argument that is a whole number from 1; what it is without it, if it is none."""
    value = present.get(name)
    return value if isinstance(value, int) and value > 0 else default


def _as_options(values: Mapping[str, Any]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}={value}" for name, value in values.items())


def _filled(value: Any, captured: Mapping[str, str]) -> Any:
    """The value with what the line captured; None if that is not there."""
    if not isinstance(value, str) or "{" not in value:
        return value
    number = figure(captured.get(value.strip("{}"), ""))
    return None if number is None else int(number)


def _lowered(change: Change, question: Question, present: Mapping[str, Any], catalog: Catalog) -> Iterator[_Attempt]:
    judged = _judged(question, catalog)
    if judged is None:
        return
    resolved = judged.resolved
    now = {
        "gpu_memory_utilization": resolved.utilization,
        "max_num_seqs": resolved.max_num_seqs,
        "max_num_batched_tokens": resolved.max_num_batched_tokens,
    }
    for name, values in change.values.items():
        for value in values:
            if value < now.get(name, math.inf):
                yield _with(question, {**present, name: value}, f"Lower {_as_options({name: value})}.")


def _planned(question: Question, present: Mapping[str, Any], catalog: Catalog) -> Iterator[_Attempt]:
    """The changes that planning finds for a start that it refuses, too."""
    refused = _judged(question, catalog)
    if refused is None:
        return
    for choice in refused.choices:
        changed = values_of(choice.arguments, question.vllm_version)
        arguments = {**present, **changed}
        if choice.accelerator_count != refused.count:
            arguments["tensor_parallel_size"] = choice.accelerator_count
        model = choice.model if choice.model in catalog.models else question.model
        is_known = choice.accelerator in catalog.accelerators
        place = choice.accelerator if is_known else question.accelerator
        yield _Attempt(
            replace(
                question,
                model=model,
                accelerator=place,
                count=choice.accelerator_count if question.count is not None else None,
                memory_gib=question.memory_gib if place == question.accelerator else None,
                used_gib=question.used_gib if place == question.accelerator else None,
                words=words_of(arguments, question.vllm_version),
            ),
            choice.change,
        )


def _fewer_ranks(diagnosis: Diagnosis, question: Question, present: Mapping[str, Any]) -> Iterator[_Attempt]:
    now = _size(present, "tensor_parallel_size", question.count or 1)
    most = min(now - 1, int(diagnosis.captured.get("cards", now)), _MOST_RANKS)
    for ranks in range(most, 0, -1):
        arguments = {**present, "tensor_parallel_size": ranks}
        yield _with(question, arguments, f"Use {ranks} ranks of tensor parallelism.")


def _free_share(diagnosis: Diagnosis, question: Question, present: Mapping[str, Any]) -> Iterator[_Attempt]:
    captured = diagnosis.captured
    free, total = figure(captured.get("free_gib", "")), figure(captured.get("total_gib", ""))
    if free is None or not total:
        return
    most = math.floor(100 * free / total - 0.5) / 100
    used = max(total - free - CONTEXT_GIB, 0.0)
    for less in (0.0, 0.01, 0.02, 0.04, 0.07, 0.1):  # what comes after the cache needs memory outside the share
        share = round(most - less, 2)
        if share >= 0.05:
            arguments = {**present, "gpu_memory_utilization": share}
            attempt = _with(question, arguments, f"Let vLLM take {share:.0%} of the memory, which is free.")
            yield replace(attempt, question=replace(attempt.question, used_gib=used, memory_gib=total))


def _without_refused(diagnosis: Diagnosis, question: Question) -> Iterator[_Attempt]:
    """The command without what its version refuses, or with what it has instead."""
    words = question.words
    wrong = parse_arguments(words, question.vllm_version, names_model=False).problems
    changed, sentences = list(words), []
    for problem in sorted(wrong, key=lambda each: -(each.place if each.place is not None else -1)):
        if problem.place is None or problem.place >= len(words) or problem.kind == "ignored":
            continue
        instead = re.fullmatch(r"Write (--[\w.-]+)\.", problem.fix)
        word = words[problem.place]
        if instead:
            changed[problem.place] = instead[1] + word[len(word.partition("=")[0]) :]
        else:
            after = problem.place + 1
            alone = "=" not in word and after < len(words) and not words[after].startswith("-")
            del changed[problem.place : after + (1 if alone else 0)]
        sentences.append(f"{problem.word}: {problem.message}. {problem.fix}")
    if sentences:
        yield _Attempt(replace(question, words=tuple(changed)), " ".join(reversed(sentences)))
    refused = diagnosis.captured.get("flags", "")
    named = {word.partition("=")[0] for word in refused.split() if re.match(r"--\w", word)}
    if named and (left := [word for word in words if word.partition("=")[0] not in named]):
        yield _Attempt(replace(question, words=tuple(left)), f"Leave out {', '.join(sorted(named))}.")
