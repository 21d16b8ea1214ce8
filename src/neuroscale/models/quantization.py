"""Reads from a config's `quantization_config` which matrices it converts, to how many bits, and with which scales.

Sources: the quantisation configs of vLLM (model_executor/layers/quantization) and of transformers, which name the keys;
the layouts of AutoGPTQ, AutoAWQ, compressed-tensors, NVIDIA ModelOpt and bitsandbytes, which name the scales.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from neuroscale.models.config_keys import Keys
from neuroscale.models.facts import Quantization
from neuroscale.models.weights import Weight, without_prefix

_MOST_PATTERNS = 100_000
_NUMBER = re.compile(r"[0-9]|\\d")
_OF_LAYER = re.compile(r"((?:.*\.)?layers\.)([0-9]+\*?)((?:\..*)?)")
"""A pattern that names one layer: what stands before and behind its number."""


_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "backbone.", "model.")
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_LONGEST_PATTERN = 300
_REPEATED_GROUP = re.compile(r"\)\s*[*+{]")
_WILD = re.compile(r"[*?\[]")  # a letter that makes a pattern match several names


def _core(name: str) -> str:
    """A name without the prefixes that the towers of a model put before it."""
    return without_prefix(name, _PREFIXES)


class Patterns:
    """Names of modules as the lists in configs write them: whole, in part, with `*`, or `re:` and an expression. A
    pattern matches whole parts of a name (between dots), whatever the towers' prefixes are."""

    def __init__(self, c: Keys, key: str, patterns: Iterable[str]) -> None:
        self.all = tuple(patterns)
        self._exact: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        self._wild: list[str] = []
        self._beginnings: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        for pattern in self.all:
            self._add(c, key, pattern)
        self._lengths = {len(start) for start in self._beginnings}

    def _add(self, c: Keys, key: str, pattern: str) -> None:
        if len(pattern) > _LONGEST_PATTERN:
            raise c.problem(key, f"a pattern has more than {_LONGEST_PATTERN} characters")
        if pattern.startswith("re:"):
            if _REPEATED_GROUP.search(pattern):  # its search could take exponential time
                raise c.problem(key, f"the expression {pattern!r} repeats a group, which is not read here")
            try:
                self._expressions.append(re.compile(pattern[3:]))
            except (re.error, OverflowError) as error:
                raise c.problem(key, f"{pattern!r} is not a regular expression: {error}") from error
        elif pattern.endswith("*") and not _WILD.search(pattern[:-1]):
            self._beginnings.add(_core(pattern)[:-1])  # most patterns look like this, and a file may have hundreds
        elif "*" in pattern:
            self._wild.append(_core(pattern))
        else:
            parts = tuple(_core(pattern).removesuffix(".weight").split("."))
            for last in _FUSED.get(parts[-1], (parts[-1],)):
                self._exact[last].append((*parts[:-1], last))

    def match(self, module: str) -> bool:
        """Whether a pattern names the module, such as `model.layers.0.mlp.gate`, or a module that contains it."""
        core = _core(module)
        parts = tuple(core.split("."))
        for length in range(1, len(parts) + 1):
            for wanted in self._exact.get(parts[length - 1], ()):
                if parts[max(0, length - len(wanted)) : length] == wanted:
                    return True
        rests = [core, *(core[at + 1 :] for at, letter in enumerate(core) if letter == ".")]
        if any(rest[:length] in self._beginnings for length in self._lengths for rest in rests):
            return True
        if any(fnmatchcase(core, wild) or fnmatchcase(core, f"*.{wild}") for wild in self._wild):
            return True
        if self._expressions:
            spellings = [core, *(prefix + core for prefix in _PREFIXES)]
            return any(expression.match(name) for expression in self._expressions for name in spellings)
        return False


@dataclass(frozen=True)
class Rule:
    """`quantization` applies to the modules that `targets` names (None: to all matrices)."""

    quantization: Quantization
    targets: Patterns | None = None
    embeddings: bool = False


@dataclass(frozen=True)
class Scheme:
    """The weights that a quantisation converts. Modules in `ignored` keep the model's dtype."""

    method: str
    rules: tuple[Rule, ...]
    ignored: Patterns
    lm_head: bool = False  # the LM head is converted like the others
    experts_only: bool = False  # only routed experts are converted
    towers: bool = False  # the towers for images and sound are converted, too
    kv_cache: Literal["fp8", "nvfp4"] | None = None
    facts: Quantization | None = None  # the quantisation of most of the weights

    def groups(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of similar layers in groups, of which each pattern names all layers or none. A pattern names a
        layer by a part of its own (`layers.3.mlp`) or by a last part (`layers.3*`: 3 and 30 to 39). After any other
        pattern with digits, each layer is a group."""
        naming: dict[str, set[tuple[int, str, str]]] = defaultdict(set)
        for which, names in enumerate((self.ignored, *(rule.targets for rule in self.rules if rule.targets))):
            for pattern in filter(_NUMBER.search, names.all):
                named = _OF_LAYER.fullmatch(pattern)
                if named is None or pattern.startswith("re:"):
                    return [[number] for number in numbers]
                naming[named[2]].add((which, named[1], named[3]))
        groups: dict[frozenset[tuple[int, str, str]], list[int]] = defaultdict(list)
        for number in numbers:
            text = f"{number}"
            names_it = (
                naming[spelled] for spelled in (text, *(f"{text[:length]}*" for length in range(1, len(text) + 1)))
            )
            groups[frozenset().union(*names_it)].append(number)
        return list(groups.values())

    def of(self, weight: Weight) -> Quantization | None:
        """The quantisation of a weight; None if it keeps the model's dtype."""
        head = weight.group == "lm_head" and len(weight.shape) == 2
        table = weight.group in ("embedding", "per_layer_embedding") and any(rule.embeddings for rule in self.rules)
        if not (weight.linear or head or table):
            return None
        if weight.group in ("vision", "audio", "projector") and not self.towers:
            return None
        if self.experts_only and weight.group != "routed_experts":
            return None
        module = weight.module.replace("{}", "0")
        if self.ignored.match(module):
            return None
        for rule in self.rules:
            if rule.targets is not None and rule.targets.match(module):
                return rule.quantization
        for rule in self.rules:
            if rule.targets is None and (weight.linear or (head and self.lm_head) or (table and rule.embeddings)):
                return rule.quantization
        return None


def converted(
    weights: list[Weight], scheme: Scheme | None
) -> tuple[list[tuple[Weight, Quantization | None]], Scheme | None]:
    """Each weight with its quantisation; its `linear` then says whether it is converted. Sets the scheme's `facts`."""
    if scheme is None:
        return [(weight, None) for weight in weights], None
    stored = [(weight, scheme.of(weight)) for weight in weights]
    held: Counter[Quantization] = Counter()
    for weight, quantization in stored:
        if quantization is not None:
            held[quantization] += math.prod(weight.shape) * weight.copies
    most = held.most_common(1)[0][0] if held else scheme.rules[0].quantization
    made = []
    for weight, quantization in stored:
        linear = quantization is not None
        made.append((weight if weight.linear == linear else weight._replace(linear=linear), quantization))
    facts = replace(most, method=scheme.method, ignored=scheme.ignored.all, kv_cache=scheme.kv_cache)
    return made, replace(scheme, facts=facts)


def read_scheme(*places: Keys) -> Scheme | None:
    """The quantisation that the first place with one asks for. Raises InputError for an unknown method."""
    for c in places:
        q = c.section("quantization_config", "compression_config")
        if q is not None and q.values:
            scheme = replace(_scheme(q), kv_cache=_cache(q))
            return _with_experts_in_4_bits(c, scheme) if c.model_type == "deepseek_v4" else scheme
    return None


def _with_experts_in_4_bits(c: Keys, scheme: Scheme) -> Scheme:
    """The scheme of DeepSeek V4, whose routed experts have 4 bits unless `expert_dtype` says fp8, and then scales of
    one byte everywhere (models/deepseek_v4/quant_config.py of vLLM 0.32)."""
    if scheme.method != "fp8" or c.text("expert_dtype", "fp4") != "fp4":
        return scheme
    experts = Rule(
        Quantization("mxfp4", 4, 32, scale_bytes=1, other_bits=8), Patterns(c, "expert_dtype", ["*.experts.*"])
    )
    others = (replace(rule, quantization=replace(rule.quantization, scale_bytes=1)) for rule in scheme.rules)
    return replace(scheme, rules=(experts, *others))


def _cache(q: Keys) -> Literal["fp8", "nvfp4"] | None:
    """The KV cache's dtype as ModelOpt or compressed-tensors write it: an object with bits and type, or a word."""
    for place in (q.section("quantization"), q):
        if place is None:
            continue
        said = place.raw("kv_cache_scheme")
        said = place.raw("kv_cache_quant_algo") if said is None else said
        if isinstance(said, dict):
            words = f"{said.get('type')}{said.get('num_bits')}"
        else:
            words = said.lower() if isinstance(said, str) else ""
        if words in ("fp8", "float8"):
            return "fp8"
        if words in ("nvfp4", "float4"):
            return "nvfp4"
    return None


def _scheme(q: Keys) -> Scheme:
    method = q.text("quant_method").lower().replace("compressed_tensors", "compressed-tensors")
    nested = q.section("quantization")
    producer = q.section("producer")
    if nested is not None and (nested.written("quant_algo") or nested.written("modelopt_quant_config")):
        return _modelopt(nested)
    if method.startswith("modelopt") or (producer is not None and producer.text("name") == "modelopt"):
        return _modelopt(q)
    readers = {
        "awq": _awq,
        **dict.fromkeys(("gptq", "auto-round", "auto_round", "intel/auto-round", "inc"), _gptq),
        **dict.fromkeys(("fp8", "fbgemm_fp8"), _fp8),
        "compressed-tensors": _compressed_tensors,
        "mxfp4": _mxfp4,
        "bitsandbytes": _bitsandbytes,
    }
    if method in readers:
        return readers[method](q)
    known = ", ".join(sorted({*readers, "modelopt"}))
    raise q.problem(
        "quant_method", f"{method or 'no method'!r} is not a quantisation that is counted", f"Known: {known}."
    )


def _names(q: Keys, *keys: str) -> Patterns:
    names: list[str] = []
    for key in keys:
        names += q.texts(key, _MOST_PATTERNS) or ()
    return Patterns(q, keys[0], names)


def _bits(q: Keys, *keys: str, default: int | None = None) -> int:
    return q.integer(*keys, low=1, high=16, default=default)


def _group(q: Keys, *keys: str, default: int | None = None) -> int | None:
    """The number of weights that share a scale; the file's -1 stands for a whole row."""
    size = q.optional(*keys, low=-1, high=2**20)
    size = default if size is None else size
    return size if size is not None and size > 0 else None


def _awq(q: Keys) -> Scheme:
    quantization = Quantization(
        "awq",
        _bits(q, "bits", "w_bit", default=4),
        _group(q, "group_size", "q_group_size", default=128),
        zero_points=q.flag("zero_point", True),
    )
    ignored = _names(q, "modules_to_not_convert")
    return Scheme("awq", (Rule(quantization),), ignored, lm_head=q.flag("lm_head"))


def _gptq(q: Keys) -> Scheme:
    method = "gptq" if q.text("quant_method") == "gptq" else "auto-round"
    quantization = Quantization(
        method, _bits(q, "bits"), _group(q, "group_size", default=128), zero_points=not q.flag("sym", True)
    )
    # Expressions after `-:` name modules that are left out.
    dynamic = q.section("dynamic")
    left_out = [f"re:{name[2:]}" for name in (dynamic.values if dynamic else ()) if name.startswith("-:")]
    extra = q.section("extra_config")
    for name, options in (extra.values if extra else {}).items():
        if isinstance(options, dict) and options.get("bits") == 16:
            left_out.append(name)
    only = None
    inner = q.raw("modules_in_block_to_quantize")
    if isinstance(inner, list) and inner:
        flat = [name for part in inner for name in (part if isinstance(part, list) else [part])]
        if not all(isinstance(name, str) for name in flat):
            raise q.problem("modules_in_block_to_quantize", "an entry is not text")
        only = Patterns(q, "modules_in_block_to_quantize", flat)
    ignored = Patterns(q, "dynamic", [*left_out, *(q.texts("modules_to_not_convert") or ())])
    return Scheme(method, (Rule(quantization, only),), ignored, lm_head=q.flag("lm_head"))


def _fp8(q: Keys) -> Scheme:
    block = q.integers("weight_block_size", low=1, most=16)
    if block is not None and len(block) != 2:
        raise q.problem("weight_block_size", f"has {len(block)} numbers instead of 2")
    quantization = Quantization("fp8", 8, block=(block[0], block[1]) if block else None, scale_bytes=4)
    ignored = _names(q, "modules_to_not_convert", "ignored_layers", "ignore")
    return Scheme(q.text("quant_method").lower(), (Rule(quantization),), ignored, towers=True)


def _mxfp4(q: Keys) -> Scheme:
    quantization = Quantization("mxfp4", 4, 32, scale_bytes=1)
    return Scheme("mxfp4", (Rule(quantization),), _names(q, "modules_to_not_convert"), experts_only=True)


def _bitsandbytes(q: Keys) -> Scheme:
    if q.flag("load_in_8bit") and not q.flag("load_in_4bit"):
        quantization = Quantization("bitsandbytes", 8, scale_bytes=4)
    else:
        # 64 weights share a scale, which is a float32 or is itself quantised to 8 bits.
        quantization = Quantization("bitsandbytes", 4, 64, scale_bytes=1 if q.flag("bnb_4bit_use_double_quant") else 4)
    return Scheme("bitsandbytes", (Rule(quantization),), _names(q, "llm_int8_skip_modules"))


def _modelopt(q: Keys) -> Scheme:
    ignored = _names(q, "exclude_modules", "ignore")
    algorithm = q.text("quant_algo").upper()
    layers = q.section("quantized_layers")
    if algorithm == "MIXED_PRECISION" or layers is not None:
        if layers is None or not layers.values:
            raise q.problem("quantized_layers", "is missing, and the precisions are mixed")
        by_kind: dict[tuple[str, int | None], list[str]] = defaultdict(list)
        for name in list(layers.values)[:_MOST_PATTERNS]:
            layer = layers.section(name)
            if layer is not None:
                by_kind[layer.text("quant_algo").upper(), _group(layer, "group_size")].append(name)
        rules = tuple(
            Rule(_algorithm(q, kind, group), Patterns(q, "quantized_layers", names))
            for (kind, group), names in by_kind.items()
        )
        return Scheme("modelopt", rules, ignored)
    return Scheme("modelopt", (Rule(_algorithm(q, algorithm, _group(q, "group_size"))),), ignored, lm_head=True)


def _algorithm(q: Keys, name: str, group: int | None) -> Quantization:
    if "NVFP4" in name:
        return Quantization("modelopt", 4, group or 16, scale_bytes=1)
    if name in ("MXFP8",):
        return Quantization("modelopt", 8, group or 32, scale_bytes=1)
    if name == "FP8_PB_WO":
        return Quantization("modelopt", 8, block=(128, 128), scale_bytes=4)
    if name.startswith("FP8"):
        return Quantization("modelopt", 8, scale_bytes=4)
    if name == "W4A16_AWQ" or name == "W4A8_AWQ":
        return Quantization("modelopt", 4, group or 128)
    raise q.problem("quant_algo", f"{name or 'no algorithm'!r} is not a quantisation that is counted")


def _compressed_tensors(q: Keys) -> Scheme:
    groups = q.section("config_groups")
    if groups is None or not groups.values:
        raise q.problem("config_groups", "is missing")
    rules = []
    for name in list(groups.values)[:100]:
        group = groups.section(name)
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None:
            continue
        targets = group.texts("targets") or ("Linear",)
        quantization = _compressed(weights)
        named = [target for target in targets if target[:1].islower() or target.startswith("re:")]
        if named:
            rules.append(Rule(quantization, Patterns(group, "targets", named)))
        if len(named) < len(targets):
            rules.append(Rule(quantization, embeddings="Embedding" in targets))
    if not rules:
        raise q.problem("config_groups", "converts no weights")
    return Scheme("compressed-tensors", tuple(rules), _names(q, "ignore"), lm_head=True, towers=True)


def _compressed(weights: Keys) -> Quantization:
    bits = _bits(weights, "num_bits", default=8)
    group = _group(weights, "group_size")
    block = weights.integers("block_structure", low=1, most=16)
    kind = weights.text("type", "int")
    strategy = weights.text("strategy", "group" if group else "tensor")
    scale_bytes = 1 if kind == "float" and bits == 4 else 2
    return Quantization(
        "compressed-tensors",
        bits,
        group if strategy in ("group", "tensor_group") else None,
        block=(block[0], block[1]) if block and len(block) == 2 and strategy == "block" else None,
        scale_bytes=scale_bytes,
        zero_points=not weights.flag("symmetric", True),
    )
