"""Lists arguments that vLLM no longer has, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass


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
