"""Reads a command line of `vllm serve` as that version's own parser would, and says what it would refuse."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Literal, NoReturn

from neuroscale.models.overrides import of_context
from neuroscale.vllm.argument_spelling import UnfinishedError, Word, gathered, misses_its_model, model_first, spelled
from neuroscale.vllm.argument_values import convert
from neuroscale.vllm.engine_arguments import EngineArguments
from neuroscale.vllm.known_arguments import Argument, Snapshot, load, nearest
from neuroscale.vllm.removed_arguments import REMOVED
from neuroscale.vllm.unplanned_arguments import unplanned

Program = Literal["serve", "module"]
"""`vllm serve`, or `python -m vllm.entrypoints.openai.api_server`, which reads the same arguments."""

ProblemKind = Literal["unknown", "removed", "ambiguous", "incomplete", "value", "stray", "ignored", "config", "ends"]

# The converters of a parser note what they refuse.
_ONE_AT_A_TIME = Lock()
_NOT_THE_MODEL = "is not taken for the model: as a module, vLLM serves what --model names, or else its default"
_CONFIG_UNREAD = "Write the file's arguments into the command: what is in the file cannot be checked here."


@dataclass(frozen=True)
class ArgumentProblem:
    """Something for which vLLM does not start or serves another model, or for which the command cannot be read here.

    `place`: the number of the word, from 0 (None: of none). `ends`: vLLM prints something and ends. `ignored`: it
    starts, and does not do what is written.
    """

    kind: ProblemKind
    word: str
    place: int | None
    message: str
    fix: str


@dataclass(frozen=True)
class Parsed:
    """A command line as `version` reads it, the known version that is nearest to the one that was `asked` for.

    `values` holds what was said, by vLLM's own names, and `places` the number of the word that said it last. Where
    there are problems, the rest is what remains without the words that make them.
    """

    version: str
    asked: str
    arguments: EngineArguments
    problems: tuple[ArgumentProblem, ...]
    values: Mapping[str, Any] = field(repr=False)
    places: Mapping[str, int] = field(repr=False)

    @property
    def exact(self) -> bool:
        """Whether the version that was asked for is known."""
        return self.version == self.asked

    @property
    def snapshot(self) -> Snapshot:
        """What that version accepts."""
        return load(self.version)

    def value(self, dest: str) -> Any:
        """What was said of an argument, or else vLLM's default (None where that is no plain value)."""
        return self.values[dest] if dest in self.values else self.snapshot.arguments[dest].default


def parse_arguments(words: Iterable[str], version: str, *, program: Program = "serve") -> Parsed:
    """Read the words that follow `vllm serve` (or the module's name), variables filled in."""
    return _parsed(tuple(words), version, program)


# The gate reads the commands of its known-bad services at every run, and of one service in several commits.
@lru_cache(maxsize=256)
def _parsed(words: tuple[str, ...], version: str, program: Program) -> Parsed:
    snapshot = nearest(version)
    given = list(words)
    problems: list[ArgumentProblem] = []
    prepared = _prepared([Word(text, place) for place, text in enumerate(given)], given, program, problems)
    with _ONE_AT_A_TIME:
        parser = _parser(snapshot.version)
        known = _without_unknown(prepared, given, parser, problems)
        namespace, places = _parse(known, given, parser, problems)
    values = {dest: value for dest, value in vars(namespace).items() if not isinstance(value, _Refused)}
    if (tag := values.pop("model_tag", None)) is not None:
        place = places.pop("model_tag", 0)
        if program == "serve":
            values["model"], places["model"] = tag, place
        else:
            problems.append(ArgumentProblem("ignored", str(tag), place, _NOT_THE_MODEL, f"Write --model={tag}."))
    order = sorted(problems, key=lambda problem: len(given) if problem.place is None else problem.place)
    return Parsed(snapshot.version, version, engine_arguments(values), tuple(order), values, places)


def engine_arguments(values: Mapping[str, Any]) -> EngineArguments:
    """What decides about memory, of values by vLLM's own names."""
    limits = values.get("limit_mm_per_prompt") or {}
    speculative = values.get("speculative_config") or {}
    balancing = values.get("eplb_config")
    redundant = balancing.get("num_redundant_experts") if isinstance(balancing, dict) else None
    same = {
        name: values[name]
        for name in (
            *("model", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
            *("enable_expert_parallel", "quantization", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
            *("gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype", "block_size", "enforce_eager"),
            *("async_scheduling", "disable_hybrid_kv_cache_manager", "disable_sliding_window", "language_model_only"),
            *("enable_chunked_prefill", "num_gpu_blocks_override", "decode_context_parallel_size"),
            *("prefill_context_parallel_size", "performance_mode", "mm_encoder_tp_mode", "enable_eplb"),
            *("max_loras", "max_lora_rank"),
        )
        if values.get(name) is not None
    }
    dtype = {"half": "float16", "float": "float32"}.get(values.get("dtype", "auto"), values.get("dtype", "auto"))
    method = values.get("spec_method") or values.get("spec_model")
    if isinstance(speculative, dict) and not method:
        method = speculative.get("method") or speculative.get("model")
    return EngineArguments(
        **same,
        dtype=dtype,
        cpu_offload_gib=float(values.get("cpu_offload_gb") or 0.0),
        images=_limit(limits, "image"),
        videos=_limit(limits, "video"),
        audios=_limit(limits, "audio"),
        speculative=str(method) if method else None,
        redundant_experts=redundant if isinstance(redundant, int) and redundant > 0 else 0,
        # Of fewer matrices, or split otherwise, the room for adapters is not counted.
        enable_lora=bool(values.get("enable_lora"))
        and not (values.get("lora_target_modules") or values.get("fully_sharded_loras")),
        hf_overrides=values["hf_overrides"] if of_context(values.get("hf_overrides")) else None,
        unplanned=unplanned(values),
    )


def _limit(limits: Any, kind: str) -> int | None:
    """The most of a kind in one request: a number, or an object with `count`."""
    limit = limits.get(kind) if isinstance(limits, dict) else None
    if isinstance(limit, dict):
        limit = limit.get("count")
    return limit if isinstance(limit, int) else None


class _Refused:
    """Stands for a value that was refused."""


class _ArgparseError(Exception):
    """What argparse would have ended the program with; `option` is the one it is about, or ""."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        option, colon, _ = message.removeprefix("argument ").partition(": ")
        self.option = option.split("/")[0] if message.startswith("argument ") and colon else ""
        self.message = message.removeprefix("argument ").partition(": ")[2] if self.option else message


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _ArgparseError(message)


class _Converter:
    """Converts texts and notes what it refuses, so that one refusal does not hide the next."""

    def __init__(self, argument: Argument) -> None:
        self.argument = argument
        self.refused: list[tuple[str, str]] = []

    def __call__(self, text: str) -> Any:
        try:
            return convert(self.argument, text)
        except (ValueError, OverflowError, RecursionError) as error:
            self.refused.append((text, str(error)))
            return _Refused()


@dataclass(frozen=True)
class _Built:
    """argparse's parser of a version, its converters by dest, and the dest of every spelling."""

    parser: _Parser
    converters: Mapping[str, _Converter]
    spellings: Mapping[str, str]


@cache
def _parser(version: str) -> _Built:
    snapshot = load(version)
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    converters: dict[str, _Converter] = {}
    spellings: dict[str, str] = {}
    for argument in snapshot.arguments.values():
        converters[argument.dest] = converter = _Converter(argument)
        spellings |= dict.fromkeys(argument.options, argument.dest)
        more: dict[str, Any] = {}
        names: Sequence[str] = argument.options or (argument.dest,)
        if argument.options:
            more["dest"] = argument.dest
        if argument.kind == "boolean":
            more["action"] = argparse.BooleanOptionalAction
            # It makes the --no- forms itself.
            names = [name for name in argument.options if not name.startswith("--no-")] or argument.options
        elif argument.kind in ("store_true", "help"):
            more["action"] = "store_true"
        else:
            more |= {"type": converter, "nargs": argument.nargs}
            if argument.kind == "append":
                more["action"] = "append"
            if argument.const is not None:
                more["const"] = argument.const
        parser.add_argument(*names, **more)
    return _Built(parser, converters, spellings)


def _prepared(words: list[Word], given: list[str], program: Program, problems: list[ArgumentProblem]) -> list[Word]:
    """The words as argparse gets them."""
    problems += [
        ArgumentProblem("value", word.text, word.place, "is no text that a process can be given", "Remove the NUL.")
        for word in words
        if "\0" in word.text
    ]
    kept = _without_config(words, problems)
    while True:
        try:
            moved = model_first(kept) if program == "serve" else kept
            prepared = gathered(spelled(moved))
            break
        except UnfinishedError as error:
            problems.append(_incomplete(given[error.place], error.place, "expected one argument"))
            kept = [word for word in kept if word.place != error.place]
    configured = any(text == "--config" or text.startswith("--config=") for text in given)
    if program == "serve" and not configured and (named := misses_its_model(moved)) is not None:
        problems.append(_without_model(given[named.place], named.place))
    return prepared


def _without_config(words: list[Word], problems: list[ArgumentProblem]) -> list[Word]:
    """Without `--config FILE`, whose arguments vLLM puts among these."""
    rest: list[Word] = []
    waiting = iter(words)
    for word in waiting:
        if word.text == "--config":
            file = next(waiting, None)
            named = f"its arguments lie in the file {file.text}" if file else "it names no file"
            problems.append(ArgumentProblem("config", word.text, word.place, named, _CONFIG_UNREAD))
        else:
            rest.append(word)
    return rest


def _without_unknown(words: list[Word], given: list[str], built: _Built, problems: list[ArgumentProblem]) -> list[Word]:
    """Without options that there are not, and the words behind them that would be their values."""
    rest: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.text == "--":
            return rest + words[index - 1 :]
        verdict = _recognised(word.text, built) if word.text.startswith("-") and word.text != "-" else "known"
        option, equals, _ = word.text.partition("=")
        removed = REMOVED.get(option)
        if verdict == "known" and (removed is None or option in built.spellings):
            rest.append(word)
            continue
        written = given[word.place].partition("=")[0] if given[word.place].startswith("-") else option
        if removed is not None:
            problems.append(
                ArgumentProblem("removed", written, word.place, "vLLM has removed this argument", removed.instead)
            )
        elif verdict == "unknown":
            problems.append(_unknown(written, word.place, built))
        else:
            problems.append(
                ArgumentProblem("ambiguous", written, word.place, verdict, "Write the argument's whole name.")
            )
        takes_value = removed.takes_value if removed is not None else True
        if not equals and takes_value and index < len(words) and not words[index].text.startswith("-"):
            index += 1
    return rest


def _recognised(text: str, built: _Built) -> str:
    """`known`, `unknown`, or what argparse says of an abbreviation of several options."""
    option = text.partition("=")[0]
    if option in built.spellings:
        return "known"
    try:
        _, extra = built.parser.parse_known_args([text], argparse.Namespace())
    except (_ArgparseError, argparse.ArgumentError) as error:
        told = str(error)
        return told if told.startswith("ambiguous option") else "known"
    finally:
        _refusals(built)
    return "unknown" if extra else "known"


def _unknown(written: str, place: int, built: _Built) -> ArgumentProblem:
    close = get_close_matches(written.replace("_", "-"), list(built.spellings), n=1, cutoff=0.8)
    fix = f"Write {close[0]}." if close else "Remove it, or look its new name up in the documentation of that version."
    return ArgumentProblem("unknown", written, place, "vLLM has no such argument", fix)


def _parse(
    words: list[Word], given: list[str], built: _Built, problems: list[ArgumentProblem]
) -> tuple[argparse.Namespace, dict[str, int]]:
    """What argparse makes of words whose options are all known; a word that it cannot read is taken out."""
    while True:
        namespace = argparse.Namespace()
        try:
            _, extra = built.parser.parse_known_args([word.text for word in words], namespace)
        except (_ArgparseError, argparse.ArgumentError) as error:
            refused = error if isinstance(error, _ArgparseError) else _ArgparseError(str(error))
            _refusals(built)
            guilty = _guilty(words, refused.option, built)
            if guilty is None:
                problems.append(ArgumentProblem("incomplete", "", None, refused.message, "Correct the command."))
                return argparse.Namespace(), {}
            problems.append(_incomplete(given[guilty.place], guilty.place, refused.message))
            words = [word for word in words if word is not guilty]
            continue
        break
    places: dict[str, int] = {}
    for word in words:
        if (dest := _dest(word.text, built)) is not None:
            places[dest] = word.place
        elif "model_tag" not in places and getattr(namespace, "model_tag", None) == word.text:
            places["model_tag"] = word.place
    for dest, refused_values in _refusals(built).items():
        argument = built.converters[dest].argument
        for text, told in refused_values:
            place = _place_of(words, dest, text, built)
            message = f"{argument.flag}: {told}"
            problems.append(ArgumentProblem("value", text, place, message, _value_fix(argument)))
    problems.extend(_ends(namespace, places))
    problems.extend(_unread_config(namespace, places))
    for text in extra:
        place = next((word.place for word in words if word.text == text), None)
        message = "belongs to no argument"
        problems.append(ArgumentProblem("stray", text, place, message, "Remove it, or name the argument it is for."))
    return namespace, places


def _refusals(built: _Built) -> dict[str, list[tuple[str, str]]]:
    """What converters refused since they were last asked."""
    found = {}
    for dest, converter in built.converters.items():
        if converter.refused:
            found[dest] = list(dict.fromkeys(converter.refused))
            converter.refused.clear()
    return found


def _guilty(words: list[Word], option: str, built: _Built) -> Word | None:
    """The word about which argparse complains: of several with the same option, the one that misses its value."""
    mine = [
        (index, word) for index, word in enumerate(words) if _dest(word.text, built) == built.spellings.get(option, "")
    ]
    for index, word in mine:
        last = index + 1 == len(words) or words[index + 1].text.startswith("-")
        if ("=" in word.text) != last:
            return word
    return mine[-1][1] if mine else None


def _dest(text: str, built: _Built) -> str | None:
    """The argument that a word names, also by an abbreviation."""
    if not text.startswith("-") or text in ("-", "--"):
        return None
    option = text.partition("=")[0]
    if option in built.spellings:
        return built.spellings[option]
    if option.startswith("--"):
        matching = {dest for spelling, dest in built.spellings.items() if spelling.startswith(option)}
        return matching.pop() if len(matching) == 1 else None
    short = [spelling for spelling in built.spellings if not spelling.startswith("--") and text.startswith(spelling)]
    return built.spellings[max(short, key=len)] if short else None


def _place_of(words: list[Word], dest: str, text: str, built: _Built) -> int | None:
    """Where a refused value stands: behind the option, or in the same word."""
    for index, word in enumerate(words):
        if _dest(word.text, built) == dest and (
            word.text.partition("=")[2] == text
            or word.text.endswith(text)
            or any(later.text == text for later in words[index + 1 :])
        ):
            return word.place
    return None


def _incomplete(written: str, place: int, told: str) -> ArgumentProblem:
    option = written.partition("=")[0]
    if "ignored explicit argument" in told:
        return ArgumentProblem(
            "incomplete", option, place, "takes no value", f"Write {option} alone, or its --no- form."
        )
    return ArgumentProblem("incomplete", option, place, f"is incomplete: {told}", "Write its value behind it.")


def _without_model(written: str, place: int) -> ArgumentProblem:
    message = "is refused where no model is named: vLLM begins with the model, or --model"
    return ArgumentProblem("incomplete", written.partition("=")[0], place, message, "Name the model.")


def _value_fix(argument: Argument) -> str:
    if argument.choices is not None:
        return f"Write one of {', '.join(map(str, argument.choices))}."
    return {
        "int": "Write a whole number.",
        "float": "Write a number.",
        "human_int": "Write a whole number, such as 8192, 8k (8000) or 8K (8192).",
        "human_int_or_auto": "Write a whole number, such as 8192, 8k (8000) or 8K (8192), or auto.",
        "json": "Write JSON, in single quotes for a shell.",
        "json_or_str": "Write JSON, in single quotes for a shell.",
        "object": "Write a JSON object with those keys.",
    }.get(argument.type, "Correct it.")


def _ends(namespace: argparse.Namespace, places: Mapping[str, int]) -> Iterable[ArgumentProblem]:
    if getattr(namespace, "help", False):
        yield ArgumentProblem("ends", "--help", places.get("help"), "vLLM prints its help and ends", "Remove it.")


def _unread_config(namespace: argparse.Namespace, places: Mapping[str, int]) -> Iterable[ArgumentProblem]:
    """`--config=FILE` in one word is accepted, and its file never read."""
    if (file := getattr(namespace, "config", None)) is not None:
        message = f"vLLM does not read {file}: it looks for the word --config alone"
        yield ArgumentProblem("config", f"--config={file}", places.get("config"), message, _CONFIG_UNREAD)
