"""Reads a command line of `vllm serve` as the parser of its version does, and names the arguments that it refuses."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from threading import Lock
from typing import Any, Literal

from neuroscale.vllm.engine_arguments import EngineArguments, engine_arguments
from neuroscale.vllm.known_arguments import Argument, Snapshot, load, nearest
from neuroscale.vllm.version_parser import (
    ArgparseError,
    Refused,
    UnfinishedError,
    VersionParser,
    Word,
    dest_of,
    gathered,
    misses_its_model,
    model_first,
    parser_of,
    recognised,
    spelled,
    take_refusals,
)

ProblemKind = Literal["unknown", "removed", "ambiguous", "incomplete", "value", "stray", "ignored", "config", "ends"]
CONFIG_UNREAD = "Write the file's arguments into the command: what is in the file cannot be checked here."


@dataclass(frozen=True)
class ArgumentProblem:
    """A problem: vLLM does not start, or serves another model, or this reader cannot read the command. `ends`: vLLM
    prints something and ends. `ignored`: vLLM starts, and ignores the word."""

    kind: ProblemKind
    word: str
    place: int | None  # the number of the word, from 0 (None: the problem is not about one word)
    message: str
    fix: str


def unknown_argument(written: str, place: int, built: VersionParser) -> ArgumentProblem:
    """An option that the version does not have; the message suggests one with a similar name."""
    close = get_close_matches(written.replace("_", "-"), list(built.spellings), n=1, cutoff=0.8)
    fix = f"Write {close[0]}." if close else "Remove it, or look its new name up in the documentation of that version."
    return ArgumentProblem("unknown", written, place, "vLLM has no such argument", fix)


def incomplete_argument(written: str, place: int, reason: str) -> ArgumentProblem:
    """An option without its value, or with a value that it cannot have. `reason`: argparse's own message."""
    option = written.partition("=")[0]
    if "ignored explicit argument" in reason:
        return ArgumentProblem(
            "incomplete", option, place, "takes no value", f"Write {option} alone, or its --no- form."
        )
    return ArgumentProblem("incomplete", option, place, f"is incomplete: {reason}", "Write its value behind it.")


def without_model(written: str, place: int) -> ArgumentProblem:
    """A served name before the model's."""
    message = "is refused where no model is named: vLLM begins with the model, or --model"
    return ArgumentProblem("incomplete", written.partition("=")[0], place, message, "Name the model.")


def value_fix(argument: Argument) -> str:
    """The advice on what to write in place of a refused value."""
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


REMOVED = {
    "--calculate-kv-scales": "Remove it: a checkpoint brings its scales, and without them they are 1.",
    "--disable-log-requests": "Remove it: requests are logged only with --enable-log-requests.",
    "--device": "Remove it: the image decides.",
    "--enable-reasoning": "Remove it: --reasoning-parser alone is enough.",
    "--guided-decoding-backend": "Write --structured-outputs-config.backend=NAME.",
    "--guided-decoding-disable-additional-properties": (
        "Write --structured-outputs-config.disable_additional_properties=true."
    ),
    "--guided-decoding-disable-any-whitespace": "Write --structured-outputs-config.disable_any_whitespace=true.",
    "--guided-decoding-disable-fallback": "Remove it: nothing else is tried where a backend cannot do it.",
    "--max-seq-len-to-capture": "Write --max-cudagraph-capture-size=NUMBER, which counts tokens.",
    "--num-scheduler-steps": "Remove it: --async-scheduling is the default where it works.",
    "--rope-scaling": "Write --hf-overrides '{\"rope_parameters\": {...}}'.",
    "--rope-theta": 'Write --hf-overrides \'{"rope_parameters": {"rope_theta": NUMBER, ...}}\'.',
    "--swap-space": "Remove it: nothing is swapped. --kv-offloading-size keeps KV cache in CPU memory.",
    "--task": "Write --runner pooling, and --convert embed, classify or reward; nothing for generation.",
    "--worker-use-ray": "Write --distributed-executor-backend=ray.",
}
"""What to write in place of a removed argument, by its spelling with dashes; other old ones are unknown. An entry does
not apply to a version whose snapshot still has the argument."""

REMOVED_FLAGS = frozenset(
    {
        *("--calculate-kv-scales", "--disable-log-requests", "--enable-reasoning", "--worker-use-ray"),
        *("--guided-decoding-disable-additional-properties", "--guided-decoding-disable-any-whitespace"),
        "--guided-decoding-disable-fallback",
    }
)
"""Those that took no value."""


Program = Literal["serve", "module"]
"""`vllm serve`, or `python -m vllm.entrypoints.openai.api_server`, which reads the same arguments."""


def prepared_words(
    words: list[Word], given: list[str], program: Program, problems: list[ArgumentProblem], *, needs_model: bool
) -> list[Word]:
    """The words as argparse gets them. `needs_model`: a served name is refused where the words name no model."""
    problems += [
        ArgumentProblem("value", word.text, word.place, "holds a NUL, which ends an argument", "Remove the NUL.")
        for word in words
        if "\0" in word.text
    ]
    kept = _without_dashes(_without_config(words, problems), problems)
    while True:
        try:
            moved = model_first(kept) if program == "serve" else kept
            prepared = gathered(spelled(moved))
            break
        except UnfinishedError as error:
            problems.append(incomplete_argument(given[error.place], error.place, "expected one argument"))
            kept = [word for word in kept if word.place != error.place]
    configured = any(text == "--config" or text.startswith("--config=") for text in given)
    if program == "serve" and needs_model and not configured and (named := misses_its_model(moved)) is not None:
        problems.append(without_model(given[named.place], named.place))
    return prepared


def _without_config(words: list[Word], problems: list[ArgumentProblem]) -> list[Word]:
    """The words without `--config FILE`; vLLM would insert the arguments of that file."""
    rest: list[Word] = []
    waiting = iter(words)
    for word in waiting:
        if word.text == "--config":
            file = next(waiting, None)
            named = f"its arguments lie in the file {file.text}" if file else "it names no file"
            problems.append(ArgumentProblem("config", word.text, word.place, named, CONFIG_UNREAD))
        else:
            rest.append(word)
    return rest


def _without_dashes(words: list[Word], problems: list[ArgumentProblem]) -> list[Word]:
    """The words without `--option=--`, which argparse turns into an empty list, and vLLM refuses only as it starts."""
    rest: list[Word] = []
    for word in words:
        option, _, value = word.text.partition("=")
        if option.startswith("-") and value == "--":
            problems.append(
                ArgumentProblem("value", word.text, word.place, "has no value: -- is none", "Write a value.")
            )
        else:
            rest.append(word)
    return rest


def without_unknown(
    words: list[Word], given: list[str], built: VersionParser, problems: list[ArgumentProblem]
) -> list[Word]:
    """The words without unknown options, and without the words after them that would be their values."""
    rest: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.text == "--":
            return rest + words[index - 1 :]
        verdict = recognised(word.text, built) if word.text.startswith("-") and word.text != "-" else "known"
        option, equals, _ = word.text.partition("=")
        removed = REMOVED.get(option)
        if verdict == "known" and (removed is None or option in built.spellings):
            rest.append(word)
            continue
        written = given[word.place].partition("=")[0] if given[word.place].startswith("-") else option
        if removed is not None:
            problems.append(ArgumentProblem("removed", written, word.place, "vLLM has removed this argument", removed))
        elif verdict == "unknown":
            problems.append(unknown_argument(written, word.place, built))
        else:
            problems.append(
                ArgumentProblem("ambiguous", written, word.place, verdict, "Write the argument's whole name.")
            )
        takes_value = removed is None or option not in REMOVED_FLAGS
        if not equals and takes_value and index < len(words) and not words[index].text.startswith("-"):
            index += 1
    return rest


# A shared parser's converters collect refusals, so only one command line may be read at a time.
_ONE_AT_A_TIME = Lock()
_NOT_THE_MODEL = "is ignored: started as a module, vLLM serves the model of --model, or its default"


@dataclass(frozen=True)
class Parsed:
    """A command line as `version` reads it, which is the known version nearest to the requested one (`asked`). `values`
    holds the values in the command by vLLM's own names, and `places` the number of the last word that sets it. If there
    are `problems`, the values are those of the command without the words that cause them."""

    version: str
    asked: str
    arguments: EngineArguments
    problems: tuple[ArgumentProblem, ...]
    values: Mapping[str, Any] = field(repr=False)
    places: Mapping[str, int] = field(repr=False)

    @property
    def exact(self) -> bool:
        """Whether the requested version is known."""
        return self.version == self.asked

    @property
    def snapshot(self) -> Snapshot:
        """The arguments that the version accepts."""
        return load(self.version)

    def value(self, dest: str) -> Any:
        """The value of an argument in the command, or else vLLM's default (None if that is not a plain value)."""
        return self.values[dest] if dest in self.values else self.snapshot.arguments[dest].default


def parse_arguments(
    words: Iterable[str], version: str, *, program: Program = "serve", names_model: bool = True
) -> Parsed:
    """Read the words that follow `vllm serve` (or the module's name), variables filled in. `names_model`: they name the
    model, too; otherwise something else names it, and the command gets it."""
    return _parsed(tuple(words), version, program, names_model)


# In each run, the gate reads the commands of its known-bad services, and the same service in several commits.
@lru_cache(maxsize=256)
def _parsed(words: tuple[str, ...], version: str, program: Program, names_model: bool) -> Parsed:
    snapshot = nearest(version)
    given = list(words)
    problems: list[ArgumentProblem] = []
    placed = [Word(text, place) for place, text in enumerate(given)]
    prepared = prepared_words(placed, given, program, problems, needs_model=names_model)
    with _ONE_AT_A_TIME:
        parser = parser_of(snapshot.version)
        known = without_unknown(prepared, given, parser, problems)
        namespace, places = _parse(known, given, parser, problems)
    values = {dest: value for dest, value in vars(namespace).items() if not _is_refused(value)}
    if (tag := values.pop("model_tag", None)) is not None:
        place = places.pop("model_tag", 0)
        if program == "serve":
            values["model"], places["model"] = tag, place
        else:
            problems.append(ArgumentProblem("ignored", str(tag), place, _NOT_THE_MODEL, f"Write --model={tag}."))
    order = sorted(problems, key=lambda problem: len(given) if problem.place is None else problem.place)
    return Parsed(snapshot.version, version, engine_arguments(values), tuple(order), values, places)


def _is_refused(value: Any) -> bool:
    return isinstance(value, Refused) or (isinstance(value, list) and any(isinstance(each, Refused) for each in value))


def _parse(
    words: list[Word], given: list[str], built: VersionParser, problems: list[ArgumentProblem]
) -> tuple[argparse.Namespace, dict[str, int]]:
    """Lets argparse read words whose options are all known; removes a word that it cannot read."""
    while True:
        namespace = argparse.Namespace()
        try:
            _, extra = built.parser.parse_known_args([word.text for word in words], namespace)
        except (ArgparseError, argparse.ArgumentError) as error:
            refused = error if isinstance(error, ArgparseError) else ArgparseError(str(error))
            take_refusals(built)
            guilty = _guilty(words, refused.option, built)
            if guilty is None:
                problems.append(ArgumentProblem("incomplete", "", None, refused.message, "Correct the command."))
                return argparse.Namespace(), {}
            problems.append(incomplete_argument(given[guilty.place], guilty.place, refused.message))
            words = [word for word in words if word is not guilty]
            continue
        break
    places: dict[str, int] = {}
    for word in words:
        if (dest := dest_of(word.text, built)) is not None:
            places[dest] = word.place
        elif "model_tag" not in places and getattr(namespace, "model_tag", None) == word.text:
            places["model_tag"] = word.place
    for dest, refused_values in take_refusals(built).items():
        argument = built.converters[dest].argument
        for text, reason in refused_values:
            place = _place_of(words, dest, text, built)
            message = f"{argument.flag}: {reason}"
            problems.append(ArgumentProblem("value", text, place, message, value_fix(argument)))
    if getattr(namespace, "help", False):
        message = "vLLM prints its help and ends"
        problems.append(ArgumentProblem("ends", "--help", places.get("help"), message, "Remove it."))
    if (file := getattr(namespace, "config", None)) is not None:
        message = f"vLLM does not read {file}: it looks for the word --config alone"
        problems.append(ArgumentProblem("config", f"--config={file}", places.get("config"), message, CONFIG_UNREAD))
    for text in extra:
        place = next((word.place for word in words if word.text == text), None)
        message = "belongs to no argument"
        problems.append(ArgumentProblem("stray", text, place, message, "Remove it, or name the argument it is for."))
    return namespace, places


def _guilty(words: list[Word], option: str, built: VersionParser) -> Word | None:
    """The word that argparse complains of: among several with the same option, the one without a value."""
    mine = [
        (index, word)
        for index, word in enumerate(words)
        if dest_of(word.text, built) == built.spellings.get(option, "")
    ]
    for index, word in mine:
        last = index + 1 == len(words) or words[index + 1].text.startswith("-")
        if ("=" in word.text) != last:
            return word
    return mine[-1][1] if mine else None


def _place_of(words: list[Word], dest: str, text: str, built: VersionParser) -> int | None:
    """The place of a refused value: after the option, or in the same word."""
    for index, word in enumerate(words):
        if dest_of(word.text, built) == dest and (
            word.text.partition("=")[2] == text
            or word.text.endswith(text)
            or any(later.text == text for later in words[index + 1 :])
        ):
            return word.place
    return None
