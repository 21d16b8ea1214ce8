"""Prepares the words of a command line for argparse: rewrites them as vLLM does, and removes those that it refuses.

Lists arguments that vLLM no longer has, and what to write instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neuroscale.vllm.argument_parser import (
    UnfinishedError,
    VersionParser,
    Word,
    gathered,
    misses_its_model,
    model_first,
    recognised,
    spelled,
)
from neuroscale.vllm.argument_problems import (
    CONFIG_UNREAD,
    ArgumentProblem,
    incomplete_argument,
    unknown_argument,
    without_model,
)


@dataclass(frozen=True)
class Removed:
    """A removed argument. `takes_value`: it had a value. `instead`: what to do now, as a sentence."""

    takes_value: bool
    instead: str


_NOTHING = "Remove it: vLLM has no such setting any more."

REMOVED = {
    "--calculate-kv-scales": Removed(False, "Remove it: a checkpoint brings its scales, and without them they are 1."),
    "--disable-async-output-proc": Removed(False, _NOTHING),
    "--disable-log-requests": Removed(False, "Remove it: requests are logged only with --enable-log-requests."),
    "--device": Removed(True, "Remove it: the image decides."),
    "--enable-reasoning": Removed(False, "Remove it: --reasoning-parser alone is enough."),
    "--guided-decoding-backend": Removed(True, "Write --structured-outputs-config.backend=NAME."),
    "--guided-decoding-disable-additional-properties": Removed(
        False, "Write --structured-outputs-config.disable_additional_properties=true."
    ),
    "--guided-decoding-disable-any-whitespace": Removed(
        False, "Write --structured-outputs-config.disable_any_whitespace=true."
    ),
    "--guided-decoding-disable-fallback": Removed(
        False, "Remove it: nothing else is tried where a backend cannot do it."
    ),
    "--max-seq-len-to-capture": Removed(True, "Write --max-cudagraph-capture-size=NUMBER, which counts tokens."),
    "--multi-step-stream-outputs": Removed(False, _NOTHING),
    "--ngram-prompt-lookup-max": Removed(
        True, 'Write --speculative-config \'{"method": "ngram", "prompt_lookup_max": NUMBER, ...}\'.'
    ),
    "--ngram-prompt-lookup-min": Removed(
        True, 'Write --speculative-config \'{"method": "ngram", "prompt_lookup_min": NUMBER, ...}\'.'
    ),
    "--num-lookahead-slots": Removed(True, _NOTHING),
    "--num-scheduler-steps": Removed(True, "Remove it: --async-scheduling is the default where it works."),
    "--num-speculative-tokens": Removed(
        True, "Write --speculative-config '{\"num_speculative_tokens\": NUMBER, ...}'."
    ),
    "--preemption-mode": Removed(True, _NOTHING),
    "--rope-scaling": Removed(True, "Write --hf-overrides '{\"rope_parameters\": {...}}'."),
    "--rope-theta": Removed(True, 'Write --hf-overrides \'{"rope_parameters": {"rope_theta": NUMBER, ...}}\'.'),
    "--scheduler-delay-factor": Removed(True, _NOTHING),
    "--speculative-model": Removed(True, "Write --speculative-config '{\"model\": NAME, ...}'."),
    "--swap-space": Removed(True, "Remove it: nothing is swapped. --kv-offloading-size keeps KV cache in CPU memory."),
    "--task": Removed(True, "Write --runner pooling, and --convert embed, classify or reward; nothing for generation."),
    "--tokenizer-pool-size": Removed(True, _NOTHING),
    "--tokenizer-pool-type": Removed(True, _NOTHING),
    "--use-v2-block-manager": Removed(False, _NOTHING),
    "--worker-use-ray": Removed(False, "Write --distributed-executor-backend=ray."),
}
"""The removed arguments by their spelling with dashes. An entry does not apply to a version whose snapshot still has
the argument."""


Program = Literal["serve", "module"]
"""`vllm serve`, or `python -m vllm.entrypoints.openai.api_server`, which reads the same arguments."""


def prepared_words(
    words: list[Word], given: list[str], program: Program, problems: list[ArgumentProblem]
) -> list[Word]:
    """The words as argparse gets them."""
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
    if program == "serve" and not configured and (named := misses_its_model(moved)) is not None:
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
            problems.append(
                ArgumentProblem("removed", written, word.place, "vLLM has removed this argument", removed.instead)
            )
        elif verdict == "unknown":
            problems.append(unknown_argument(written, word.place, built))
        else:
            problems.append(
                ArgumentProblem("ambiguous", written, word.place, verdict, "Write the argument's whole name.")
            )
        takes_value = removed.takes_value if removed is not None else True
        if not equals and takes_value and index < len(words) and not words[index].text.startswith("-"):
            index += 1
    return rest
