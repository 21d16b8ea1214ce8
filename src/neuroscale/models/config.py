"""Reads the facts of a model from its config.json: tensors and their bytes, the KV cache, and rotary tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from neuroscale.core.validation import suggest
from neuroscale.models.config_keys import Keys, parse_config, unknown_choice
from neuroscale.models.context import LONG, LONGEST, UNSAID, context_of, rope_factor, rope_kind, rope_scaling
from neuroscale.models.facts import DTYPE_BYTES, Basis, Dtype, Group, ModelFacts, Quantization, RotaryTable
from neuroscale.models.families import Decoder
from neuroscale.models.families.common import layer_count, routed_experts
from neuroscale.models.headers import Header, Measured, measure
from neuroscale.models.layers import Attention, Experts, LatentAttention, Layer, Mlp, cache_of, states_of
from neuroscale.models.mixers import CompressedAttention
from neuroscale.models.quantization import converted, read_scheme
from neuroscale.models.registry import estimate, family_of, refuse_unplanned, text_keys
from neuroscale.models.towers.counting import towers
from neuroscale.models.weights import Weight, Weights, together


def stored_bytes(shape: Sequence[int], copies: int, quantization: Quantization | None, dtype: str) -> int:
    """Bytes of `copies` tensors, with scales and zero points if they are quantised."""
    count = math.prod(shape)
    if quantization is None:
        return count * copies * DTYPE_BYTES[dtype]
    rows, columns = (shape[0], shape[1]) if len(shape) == 2 else (1, count)
    if quantization.block:
        scales = math.ceil(rows / quantization.block[0]) * math.ceil(columns / quantization.block[1])
    elif quantization.group_size:
        scales = rows * math.ceil(columns / quantization.group_size)
    else:
        scales = rows
    zeros = scales * quantization.bits / 8 if quantization.zero_points else 0
    return copies * (math.ceil(count * quantization.bits / 8 + zeros) + scales * quantization.scale_bytes)


_IN_FULL_PRECISION = ("gpt_oss",)
"""Model types whose table vLLM keeps in float32, whatever the model's dtype (model_executor/models/gpt_oss.py)."""
_WINDOWS_APART = ("gemma3", "gemma3_text", "gemma4", "gemma4_text", "gemma4_unified_text")
"""Model types whose windowed layers have a table of their own, with another base and without scaling."""
_TURNED_PART = {"qwen3_next": 0.25, "qwen3_5_text": 0.25, "qwen3_5_moe_text": 0.25}
"""The default share of a head that is rotated, from the classes of these model types in transformers."""
_STRETCHED = ("linear",)  # scalings whose tables have as many rows as the positions times their factor
_FROM_THE_ORIGINAL = ("yarn", "deepseek_yarn")
"""Scalings whose tables have as many rows as the positions of the first training times their factor."""


def rotary_tables(
    text: Keys, attentions: Sequence[Attention | LatentAttention | CompressedAttention], positions: int
) -> tuple[RotaryTable, ...]:
    """The tables of a language model that reads `positions` tokens: as in vLLM, layers with equal tables share one."""
    apart = text.model_type in _WINDOWS_APART
    found: dict[tuple[bool, int, int], RotaryTable] = {}
    for attention in dict.fromkeys(attentions):  # most layers are equal
        if isinstance(attention, CompressedAttention):
            # Layers with and without compressed tokens turn with other bases, and YaRN is for the former alone.
            rows = _rows(text, positions) if attention.ratio else positions
            found[bool(attention.ratio), rows, attention.rope_dim] = RotaryTable(rows, attention.rope_dim, True)
            continue
        if isinstance(attention, Attention) and not attention.turned:
            continue
        windowed = apart and isinstance(attention, Attention) and attention.reach == "sliding"
        rows = positions if windowed else _rows(text, positions)
        width = _width(text, attention)
        table = RotaryTable(rows, width, full_precision=text.model_type in _IN_FULL_PRECISION)
        found[windowed, rows, width] = table
        if isinstance(attention, LatentAttention) and attention.indexer and not attention.indexer.interleaved:
            # The indexer turns other pairs of values, and so has a table of its own.
            found[True, rows, width] = table
    return tuple(found.values())


def _scaling(text: Keys) -> Keys | None:
    """The rotary scaling of the layers that see the whole context; None if the file has none."""
    said = rope_scaling(text)
    return None if said is None else said.section("full_attention") or said


def _rows(text: Keys, positions: int) -> int:
    scaling = _scaling(text)
    if scaling is not None and rope_kind(scaling) in LONG:
        # vLLM keeps one table for short prompts and one for long prompts.
        first = text.optional("original_max_position_embeddings") or scaling.optional(
            "original_max_position_embeddings"
        )
        return positions + (first or 0)
    if scaling is None or not isinstance(scaling.raw("factor"), int | float):
        return positions
    factor = rope_factor(scaling, 1.0)
    kind = rope_kind(scaling)
    if kind in _STRETCHED:
        return math.ceil(positions * factor)
    original = scaling.optional("original_max_position_embeddings")
    if kind in _FROM_THE_ORIGINAL and original:
        return math.ceil(original * factor)
    return positions


def _width(text: Keys, attention: Attention | LatentAttention) -> int:
    if isinstance(attention, LatentAttention):
        return attention.rope_dim
    if text.model_type in _WINDOWS_APART:
        # The table is as wide as the whole head, even if only a part of the head is rotated.
        return attention.head_dim
    whole = text.optional("rotary_dim")
    if whole:
        return min(whole, attention.head_dim)
    scaling = _scaling(text)
    for said in (text, scaling):
        part = said.raw("partial_rotary_factor") if said is not None else None
        if isinstance(part, int | float) and 0 < part <= 1:
            return int(attention.head_dim * part)
    return int(attention.head_dim * _TURNED_PART.get(text.model_type, 1.0))


def read_config(
    config: str | bytes | Mapping[str, Any],
    name: str,
    source: str = "config.json",
    headers: Sequence[Header] | None = None,
) -> ModelFacts:
    """The facts of the model `name` from its config.json: the file's text, or the object that it holds. `source`: where
    the file comes from; messages name it. `headers`: the headers of the checkpoint's tensors; if given, the bytes come
    from them. Raises InputError, which names the key, for a value that cannot be read, and for a model whose memory
    does not follow the common rules."""
    values = config if isinstance(config, Mapping) else parse_config(config, source)
    return _read(values, name, source, headers)[0]


def read_entry(config: Mapping[str, Any], name: str, source: str) -> tuple[ModelFacts, list[tuple[str, str]]]:
    """As `read_config`, and the keys that nothing reads: dotted paths, each with the key that was probably meant."""
    facts, c = _read(config, name, source, None)
    found: list[tuple[str, str]] = []
    _unread(config, "", c.asked, found)
    return facts, found


def _unread(values: Mapping[str, Any], path: str, asked: Mapping[str, set[str]], found: list[tuple[str, str]]) -> None:
    for key, value in values.items():
        place = f"{path}.{key}".strip(".")
        if key not in asked[path] and key not in _DESCRIBING:
            found.append((place, suggest(key, asked[path])))
        elif isinstance(value, Mapping) and place in asked and key not in ("quantization_config", "compression_config"):
            _unread(value, place, asked, found)


_DESCRIBING = frozenset({"architectures", "model_type", "dtype", "torch_dtype", "transformers_version"})
"""Keys that describe the file itself, and that `_unread` leaves out even if nothing looked them up."""


def _read(
    values: Mapping[str, Any], name: str, source: str, headers: Sequence[Header] | None
) -> tuple[ModelFacts, Keys]:
    c = Keys(values, source, model_type=Keys(values, source).text("model_type"))
    text = text_keys(c)
    family = family_of(c, text)
    refuse_unplanned(c, text, family)
    decoder = family(text) if family else estimate(text)
    scheme = read_scheme(c, text)
    counted = Weights(scheme.groups) if scheme else Weights()
    _text_weights(c, text, decoder, counted)
    of_towers, certainty = towers(c, counted, decoder.hidden)
    notes = [*decoder.notes, *of_towers]
    stored, scheme = converted(counted.all, scheme)
    dtype = _dtype(c, text)
    if headers:
        weights = [weight for weight, _ in stored]
        measured = measure(weights, headers, layer_count(text), quantized=scheme is not None)
        dtype = dtype or _checked_dtype(measured.dtype) or "bfloat16"
    else:
        measured = _count(stored, dtype or "bfloat16")
    notes += measured.notes
    if dtype is None:
        dtype = "bfloat16"
        notes.append("The file names no dtype: bfloat16 is assumed.")
    heads = text.raw("num_key_value_heads")
    if not text.path and heads is not None and not text.written("num_key_value_heads"):
        notes.append(f"The file has no num_key_value_heads: the {heads} of the model type's class are taken.")
    if decoder.estimated:
        kind = text.model_type or "no model type"
        notes.append(f"The architecture is unknown here ({kind}): its layers are counted as if they were Llama's.")
    basis: Basis = "estimate" if decoder.estimated else "headers" if headers else "config"
    if certainty != "known" and not headers:
        basis = "estimate"
    attentions = [layer.attention for layer in decoder.layers if layer.attention is not None]
    attention, context = attentions[0] if attentions else None, context_of(text, endless=not attentions)
    if context.default == UNSAID < context.longest == LONGEST:
        notes.append(f"The file names no context: vLLM takes {UNSAID:,} tokens unless --max-model-len sets a number.")
    elif context.default < context.longest:
        notes.append(
            f"Without --max-model-len vLLM reads {context.default:,} tokens: with the factors for up to "
            f"{context.longest:,} it answers shorter prompts worse."
        )
    kv_heads = attention.kv_heads if isinstance(attention, Attention) else attention.heads if attention else 0
    facts = ModelFacts(
        name=name,
        model_type=text.model_type or c.model_type,
        architectures=c.texts("architectures", 100) or (),
        # A class may have a default number of experts that no layer of the model uses.
        kind="moe" if decoder.experts or (decoder.estimated and routed_experts(text)) else "dense",
        dtype=dtype,
        num_layers=len(decoder.layers),
        hidden_size=decoder.hidden,
        vocab_size=_vocabulary(text),
        heads=attention.heads if attention else 0,
        kv_heads=text.integer("num_key_value_heads", default=kv_heads, high=2**16) if attention else 0,
        head_dim=_head_dim(attention) if attention else 0,
        intermediate_size=_widest(decoder, Mlp) or text.optional("intermediate_size") or 0,
        max_position_embeddings=context.longest,
        experts=decoder.experts.count if decoder.experts else 0,
        experts_per_token=decoder.experts.per_token if decoder.experts else 0,
        moe_intermediate_size=_widest(decoder, Experts),
        tensors=measured.tensors,
        cache=cache_of(decoder.layers),
        quantization=scheme.facts if scheme else None,
        weight_bytes=measured.weight_bytes,
        basis=basis,
        multimodal=text is not c,
        source=source,
        notes=tuple(notes),
        bytes_by_dtype=measured.bytes_by_dtype,
        rotary=rotary_tables(text, attentions, context.positions),
        states=states_of(decoder.layers),
        predicting=cache_of(decoder.predicting),
        parts_missing=certainty == "missing" and not headers,
        config=values,
        default_length=context.default,
        length_by_yarn=context.by_yarn,
        file_dtype=measured.dtype if headers and scheme is None else None,
    )
    return facts, c


def _vocabulary(text: Keys) -> int:
    return text.shape("vocab_size", high=2**26)


def _text_weights(c: Keys, text: Keys, decoder: Decoder, out: Weights) -> None:
    """Adds the weights of the language model: their names start with `model.`, whatever the tower's own prefix is."""
    hidden, vocabulary = decoder.hidden, _vocabulary(text)
    out.add("model.embed_tokens.weight", "embedding", (vocabulary, hidden), "vocabulary")
    places: dict[Layer, list[int]] = {}
    for number, layer in enumerate(decoder.layers):
        places.setdefault(layer, []).append(number)
    for layer, numbers in places.items():
        out.alike(numbers, partial(_layer, layer, hidden, out))
    for extra in decoder.extras:
        extra.weights(out, "model.")
    for name in decoder.final_norm:
        out.add(f"model.{name}", "norm", (hidden,))
    if not _tied(c, text):
        out.add("lm_head.weight", "lm_head", (vocabulary, hidden), "vocabulary")
    if decoder.lm_head_bias:
        out.add("lm_head.bias", "lm_head", (vocabulary,), "vocabulary")
    if decoder.predicting_at:
        _predicting_apart(decoder, hidden, out)
        return
    for number, layer in enumerate(decoder.predicting, start=len(decoder.layers)):
        _predicting(layer, f"model.layers.{number}.", hidden, vocabulary, out)


def _layer(layer: Layer, hidden: int, out: Weights, number: int) -> None:
    layer.weights(out, f"model.layers.{number}.", hidden)


def _predicting(layer: Layer, at: str, hidden: int, vocabulary: int, out: Weights) -> None:
    """Adds a layer of multi-token prediction: its embedding, its LM head, and the matrix that joins it to the model."""
    own = Weights()
    layer.weights(own, at, hidden)
    own.linear(f"{at}eh_proj", "mtp", (2 * hidden, hidden), "replicated")
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        own.add(f"{at}{norm}.weight", "mtp", (hidden,))
    for name in ("embed_tokens", "shared_head.head"):
        own.add(f"{at}{name}.weight", "mtp", (vocabulary, hidden), "vocabulary")
    out.all += [weight._replace(group="mtp") for weight in own.all]


def _predicting_apart(decoder: Decoder, hidden: int, out: Weights) -> None:
    """Adds layers of multi-token prediction behind one matrix, which joins an embedding and the output."""
    own, at = Weights(), decoder.predicting_at
    for number, layer in enumerate(decoder.predicting):
        layer.weights(own, f"{at}layers.{number}.", hidden)
    if decoder.predicting:
        joined, *norms = decoder.predicting_names
        own.linear(at + joined, "mtp", (2 * hidden, hidden), "split")
        for norm in norms:
            own.add(f"{at}{norm}.weight", "mtp", (hidden,))
    out.all += [weight._replace(group="mtp") for weight in own.all]


def _tied(c: Keys, text: Keys) -> bool:
    """Whether the embedding's matrix computes the output, too: by the file, else by the default of all classes."""
    for keys in (text, c):
        if keys.written("tie_word_embeddings") and keys.raw("tie_word_embeddings") is not None:
            return keys.flag("tie_word_embeddings")
    said = [keys.flag("tie_word_embeddings") for keys in (text, c) if keys.has("tie_word_embeddings")]
    return bool(said) and all(said)


def _dtype(c: Keys, text: Keys) -> Dtype | None:
    """The dtype of the weights that no quantisation converts."""
    vision = c.section("vision_config")
    for keys in (c, text, vision) if vision else (c, text):
        for key in ("dtype", "torch_dtype"):
            said = keys.text(key).removeprefix("torch.")
            if said and said != "auto":
                found = _checked_dtype(said)
                if found is None:
                    raise unknown_choice(keys, key, said, ("bfloat16", "float16", "float32"))
                return found
    return None


def _checked_dtype(name: str | None) -> Dtype | None:
    return name if name in ("bfloat16", "float16", "float32") else None  # type: ignore[return-value]


def _count(stored: Sequence[tuple[Weight, Quantization | None]], dtype: Dtype) -> Measured:
    """Counts the bytes of the weights from the config alone."""
    by_group: Counter[Group] = Counter()
    by_dtype: Counter[str] = Counter()
    for weight, quantization in stored:
        size = stored_bytes(weight.shape, weight.copies, quantization, dtype)
        by_group[weight.group] += size
        by_dtype[f"{quantization.method} {quantization.bits} bits" if quantization else dtype] += size
    return Measured(dict(by_group), dict(by_dtype), together(weight for weight, _ in stored), dtype, ())


def _head_dim(attention: Attention | LatentAttention | CompressedAttention) -> int:
    if not isinstance(attention, LatentAttention):
        return attention.head_dim
    return attention.nope_dim + attention.rope_dim


def _widest(decoder: Decoder, kind: type[Mlp | Experts]) -> int:
    """The largest width of a block of this kind; 0 if no layer has one."""
    blocks = [block for layer in decoder.layers for block in layer.blocks]
    return max((block.width for block in blocks if isinstance(block, kind)), default=0)
