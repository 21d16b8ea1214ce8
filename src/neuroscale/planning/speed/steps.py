"""Computes the seconds of a step of one rank from its work and its rates."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.planning.speed.rates import Rates
from neuroscale.planning.speed.work import Work


@dataclass(frozen=True)
class Prompt:
    """A prompt as vLLM computes it beside the answers, in `chunks` steps. A step has `tokens` tokens of `shared` such
    prompts."""

    tokens: float
    chunks: int
    attention: float  # seconds of attention in a step
    shared: float


@dataclass(frozen=True)
class Steps:
    """The seconds of steps. `captured`: tokens of the largest step for which vLLM captures CUDA graphs of the parts
    between attention. `answering` and `prompting`: factors by which a measurement corrects them."""

    work: Work
    rates: Rates
    eager: bool
    captured: int
    answering: float = 1.0
    prompting: float = 1.0

    def prompt(self, tokens: float, budget: int, answered: float, arriving: float, cached: float = 0.0) -> Prompt:
        """The chunks of a prompt where a step has room for `budget` tokens, one for each answered request included.
        `tokens` are computed, and come after `cached` ones. `arriving`: prompts that come in the time of a step; those
        that there is room for share steps."""
        room = max(budget - answered, budget / 8, 1.0)
        chunks = max(1, -int(-tokens // room))
        flops = sum(
            part.prompt_flops * (part.pairs(cached + tokens) - part.pairs(cached)) for part in self.work.readings
        )
        each = tokens / chunks
        shared = max(1.0, min(arriving * chunks, room / each))
        return Prompt(each * shared, chunks, flops / self.rates.prompt_attention / chunks * shared, shared)

    def answer(self, requests: float, context: float) -> float:
        """Seconds of a step that writes a token of each of `requests` answers, after `context` tokens each."""
        seconds = self._step(requests, requests, requests, context)
        if self.eager:
            seconds = _norm(seconds, self.rates.launching, 4.0)
        return self.answering * seconds

    def beside(self, prompt: Prompt, requests: float, context: float, answer: float) -> float:
        """Seconds by which prompts prolong a step of `answer` seconds for `requests` answers; the whole step, without
        answers."""
        seconds = self._step(requests + prompt.tokens, requests + prompt.shared, requests, context) + prompt.attention
        few = requests + prompt.tokens <= self.captured
        seconds = _norm(seconds, self.rates.launching * (self.rates.captured if few else 1.0), 4.0)
        return self.prompting * max(seconds - (answer / self.answering if requests else 0.0), 0.0)

    def _step(self, tokens: float, sampled: float, requests: float, context: float) -> float:
        work, rates, power = self.work, self.rates, self.rates.sharpness
        seconds = rates.fixed + rates.request * sampled
        together = tokens * work.shares if work.dealt else tokens
        touched = 1.0 - work.missed ** (together**rates.alike) if work.missed else 1.0
        for part, memory, compute in zip(work.matrices, rates.memory, rates.compute, strict=False):
            read = part.bytes * (touched if part.experts else 1.0) / memory
            seconds += _norm(read, part.flops * (together if part.experts else tokens) / compute, power)
        seconds += _norm(work.head.bytes / rates.memory[-1], work.head.flops * sampled / rates.compute[-1], power)
        if requests:
            for reading in work.readings:
                seen = reading.seen(context) * requests
                read = reading.bytes * seen / rates.cache
                if reading.latent:
                    read = max(read, reading.flops * seen / rates.decode_attention)
                seconds += read
        seconds += work.state_bytes * sampled / rates.cache
        return seconds + rates.exchanges + work.exchanged * tokens / rates.exchange_rate


def _norm(one: float, other: float, power: float) -> float:
    """Seconds of two things that overlap in part: their sum at the power 1, and the longer one at a high power."""
    longer, shorter = (one, other) if one > other else (other, one)
    if shorter <= 0.0:
        return longer
    return float(longer * (1.0 + (shorter / longer) ** power) ** (1.0 / power))
