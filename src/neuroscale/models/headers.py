"""Reads the headers of safetensors files, and measures the weights by them beside those counted from the config."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.files import read_bounded
from neuroscale.core.units import MIB
from neuroscale.core.validation import shorten
from neuroscale.models.facts import Group, Sharding, Tensor
from neuroscale.models.weights import Weight, core, group_by_name, layer_number, template, together, unused

LARGEST_HEADER = 64 * MIB
"""The largest header that is read, in bytes. A real header of a hundred thousand tensors takes about 15 MB."""

LARGEST_INDEX = 64 * MIB
MOST_FILES = 2000
MOST_TENSORS = 2_000_000

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_FIX = "Fetch the model's files again."
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True)
class Header:
    """One tensor of a file. `dtype` as safetensors names it, such as BF16."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int  # in bytes


def folder_headers(folder: Path) -> list[Header] | None:
    """The tensors in a model's folder; None if it has no safetensors files. Raises InputError for a broken file."""
    names = _files(folder)
    if names is None:
        return None
    headers: dict[str, Header] = {}
    for name in names:
        path = folder / name
        if not path.is_file():
            raise InputError(Problem(str(path), "", f"is not there, and {INDEX} names it", _FIX))
        for header in file_headers(path):
            headers.setdefault(header.name, header)
    return list(headers.values())


def _files(folder: Path) -> list[str] | None:
    """The files that vLLM loads: the files that the index names; without an index, all but Mistral's second copy."""
    index = folder / INDEX
    if index.is_file():
        return index_files(read_bounded(index, LARGEST_INDEX, _FIX), str(index))
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if any(not name.startswith("consolidated") for name in names):
        names = [name for name in names if not name.startswith("consolidated")]
    if len(names) > MOST_FILES:
        raise InputError(Problem(str(folder), "", f"holds {len(names)} safetensors files", f"At most {MOST_FILES}."))
    return names or None


def index_files(text: bytes, where: str) -> list[str]:
    """The names of the files in an index. Raises InputError if it is broken or names files outside its folder."""
    try:
        index = json.loads(text)
        names = sorted(set(index["weight_map"].values()))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InputError(Problem(where, "weight_map", "is not a mapping from tensors to files", _FIX)) from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(Problem(where, "weight_map", f"{shorten(name)} is not the name of a file beside it", _FIX))
    if not 0 < len(names) <= MOST_FILES:
        raise InputError(Problem(where, "weight_map", f"names {len(names)} files", f"From 1 to {MOST_FILES}."))
    return names


def file_headers(path: Path) -> list[Header]:
    """The tensors of one file. Raises InputError if its header is broken, too large, or does not match the file."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start == b"version ":
                raise InputError(Problem(str(path), "", "is a pointer of Git LFS and not the weights", _FIX))
            length = int.from_bytes(start, "little")
            size = path.stat().st_size
            if length > LARGEST_HEADER:
                raise InputError(Problem(str(path), "", "has a header of absurd size", _FIX))
            if size < 8 + length:
                raise InputError(Problem(str(path), "", "ends inside its header", _FIX))
            text = file.read(length)
    except OSError as error:
        raise InputError(Problem(str(path), "", f"cannot be read ({error.strerror})", "Correct the path.")) from error
    headers = parse_header(text, str(path))
    held = sum(header.size for header in headers)
    if held != size - 8 - length:
        message = f"holds {size - 8 - length} bytes of weights, and its header lists {held} bytes"
        raise InputError(Problem(str(path), "", message, _FIX))
    return headers


def parse_header(text: bytes, where: str) -> list[Header]:
    """The tensors that a header's text names. Raises InputError if it is broken."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(where, "", "its header is not JSON", _FIX)) from error
    if not isinstance(entries, dict) or len(entries) > MOST_TENSORS:
        raise InputError(Problem(where, "", "its header is not an object, or has an absurd number of tensors", _FIX))
    return [entry_header(name, entry, where) for name, entry in entries.items() if name != "__metadata__"]


def entry_header(name: str, entry: Any, where: str) -> Header:
    """One entry of a header: `dtype`, `shape` and `data_offsets`."""
    if not isinstance(entry, Mapping):
        raise _broken(name, where, "is not an object")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _broken(name, where, f"has the dtype {shorten(dtype)}, which safetensors does not know")
    if not _whole(shape) or len(shape) > 16:
        raise _broken(name, where, f"has the shape {shorten(shape)}")
    if not _whole(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise _broken(name, where, f"has the place {shorten(offsets)}")
    size = offsets[1] - offsets[0]
    if size != math.ceil(math.prod(shape) * _BITS[dtype] / 8):
        raise _broken(name, where, f"takes {shorten(size)} bytes, which its shape and dtype do not make")
    return Header(name, dtype, tuple(shape), size)


def _whole(value: Any) -> bool:
    """Whether the value is a list of whole numbers of sensible size."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**48 for item in value)


def _broken(name: str, where: str, message: str) -> InputError:
    return InputError(Problem(where, shorten(name, 100), message, _FIX))


_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}

_SHARDING: Mapping[Group, Sharding] = {
    "embedding": "vocabulary",
    "per_layer_embedding": "vocabulary",
    "lm_head": "vocabulary",
    "attention": "split",
    "dense_mlp": "split",
    "recurrent": "split",
    "shared_experts": "split",
    "routed_experts": "experts",
}
"""How vLLM shards tensors whose names are unknown."""


@dataclass(frozen=True)
class Measured:
    """Bytes by group and by dtype, the tensors, the dtype of most unquantised weights, and notes."""

    weight_bytes: Mapping[Group, int]
    bytes_by_dtype: Mapping[str, int]
    tensors: tuple[Tensor, ...]
    dtype: str | None
    notes: tuple[str, ...]


def measure(counted: Sequence[Weight], headers: Sequence[Header], layers: int, *, quantized: bool) -> Measured:
    """Measures the bytes by the headers. In groups where headers and counted weights differ, the tensors come from the
    headers, too, unless quantisation packed them."""
    # Only their numbers tell layers of multi-token prediction from the others: the names are the same.
    known = {template(weight.name): weight for weight in counted if weight.group != "mtp"}
    notes: list[str] = []
    by_group: Counter[Group] = Counter()
    by_dtype: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    found: dict[Group, list[Header]] = defaultdict(list)
    tied = not any(weight.group == "lm_head" for weight in counted)
    for header in headers:
        if unused(header.name):
            continue
        group = _group(header.name, known, layers)
        if group == "lm_head" and tied:
            notes.append("The files hold an LM head although the config ties it to the embedding: vLLM keeps one.")
            continue
        by_group[group] += header.size
        by_dtype[header.dtype] += header.size
        if header.dtype in _DTYPES:
            plain[header.dtype] += header.size
        found[group].append(header)
    kept = [weight for weight in counted if weight.group in found]
    if any(weight.group == "lm_head" for weight in counted) and "lm_head" not in found:
        notes.append("The files hold no LM head: the embedding's matrix serves as one.")
    tensors = together(kept) if quantized else _tensors(kept, found, known, notes)
    dtype = _DTYPES[plain.most_common(1)[0][0]] if plain else None
    return Measured(dict(by_group), dict(by_dtype), tensors, dtype, tuple(notes))


def _group(name: str, known: Mapping[str, Weight], layers: int) -> Group:
    number = layer_number(core(name))
    weight = known.get(template(name))
    if weight is not None and (number is None or number < layers or weight.group in ("vision", "audio")):
        return weight.group
    return group_by_name(name, layers)


def _tensors(
    counted: Sequence[Weight], found: Mapping[Group, Sequence[Header]], known: Mapping[str, Weight], notes: list[str]
) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    for group, headers in found.items():
        mine = [weight for weight in counted if weight.group == group]
        params = sum(math.prod(weight.shape) * weight.copies for weight in mine)
        theirs = sum(math.prod(header.shape) for header in headers)
        if params == theirs:
            tensors += together(mine)
            continue
        if group not in ("mtp", "vision", "audio", "projector") and abs(theirs - params) > 0.01 * params:
            notes.append(f"The files hold {theirs:,} parameters for {group}, and the config describes {params:,}.")
        copies: Counter[Tensor] = Counter(_tensor(header, group, known) for header in headers)
        tensors += [replace(tensor, copies=count) for tensor, count in copies.items()]
    return tuple(tensors)


def _tensor(header: Header, group: Group, known: Mapping[str, Weight]) -> Tensor:
    weight = known.get(template(header.name))
    if weight is not None and group in (weight.group, "mtp"):
        return Tensor(
            template(header.name), group, header.shape, 0, weight.sharding, weight.linear, weight.full_precision
        )
    matrix = len(header.shape) == 2 and group not in ("embedding", "lm_head", "norm", "router", "per_layer_embedding")
    sharding = _SHARDING.get(group, "replicated") if len(header.shape) > 1 else "replicated"
    return Tensor(template(header.name), group, header.shape, 0, sharding, matrix)
