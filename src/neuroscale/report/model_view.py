"""Prints the facts of a model in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.printable import terminal
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.models.facts_json import kv_group, params_by_group, state_group
from neuroscale.report.plan_view import field, line

_BASIS = {
    "headers": "the headers of its files",
    "config": "its config.json",
    "estimate": "an estimate: this version does not know its architecture",
}
_KINDS = {
    "full": "whole context",
    "sliding": "sliding window",
    "chunked": "chunks",
    "latent": "whole context, latent",
    "indexer": "keys of its indexer, 8 bits",
    "latent_window": "sliding window, latent, 8 bits",
    "compressed": "compressed tokens, 8 bits",
    "compressed_indexer": "keys of its indexer, 8 bits",
    "compressor": "inputs of the next compressed token",
}
_STATES = {
    "mamba2": "Mamba-2",
    "gated_delta": "gated delta rule",
}


def print_model(facts: ModelFacts, console: Console) -> None:
    """Show the facts to a person: size, active parameters in both conventions, weights by group, and KV cache."""
    kind = "mixture of experts" if facts.kind == "moe" else "dense"
    line(console, Text.assemble((terminal(facts.name), "bold"), f": {kind}, {_billions(facts.total_params)}"))
    field(console, "From", _BASIS[facts.basis])
    if facts.kind == "moe":
        field(console, "Experts", f"{facts.experts}, of which a token takes {facts.experts_per_token}")
    share = facts.active_params / facts.total_params
    without = _billions(facts.active_params_without_embedding)
    field(console, "Active", f"{_billions(facts.active_params)} ({share:.1%}); without the input embedding {without}")
    if facts.tower_params:
        field(console, "Beside it", f"{_billions(facts.tower_params)} in towers for images or sound")
    field(console, "Stored as", _stored(facts))
    field(console, "Context", f"{facts.max_position_embeddings:,} tokens")
    console.print()
    console.print(_weights(facts))
    console.print()
    if facts.cache:
        console.print(_cache(facts))
    if facts.states:
        console.print()
        console.print(_states(facts))
    for note in facts.notes:
        line(console, f"- {terminal(note)}", 2)


def _stored(facts: ModelFacts) -> str:
    quantization = facts.quantization
    if quantization is None:
        return facts.dtype
    parts = [f"{terminal(quantization.method)}, {quantization.bits} bits"]
    if quantization.block:
        parts.append(f"a scale for {quantization.block[0]} x {quantization.block[1]} weights")
    elif quantization.group_size:
        parts.append(f"a scale for {quantization.group_size} weights")
    return f"{', '.join(parts)}; the rest {facts.dtype}"


def _weights(facts: ModelFacts) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True, padding=(0, 2))
    params = params_by_group(facts)
    total = sum(facts.weight_bytes.values())
    table.add_column("  weights", "  all")
    table.add_column("parameters", f"{sum(params.values()):,}", justify="right")
    table.add_column("GiB", _gib(total), justify="right")
    for group, size in sorted(facts.weight_bytes.items(), key=lambda item: -item[1]):
        table.add_row(f"  {group.replace('_', ' ')}", f"{params.get(group, 0):,}", _gib(size))
    return table


def _cache(facts: ModelFacts) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for name in ("  KV cache, 16 bits", "layers", "window", "bytes per token"):
        table.add_column(name, justify="left" if name.startswith(" ") else "right")
    for layers in facts.cache:
        told = kv_group(layers)
        window = "" if layers.window is None else f"{layers.window:,}"
        table.add_row(f"  {_KINDS[layers.kind]}", str(layers.layers), window, f"{told['bytes_per_token']:,}")
    return table


def _states(facts: ModelFacts) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for name in ("  state, whatever the length", "layers", "dtype", "bytes per request"):
        table.add_column(name, justify="left" if name.startswith(" ") else "right")
    for layers in facts.states:
        told = state_group(layers, facts.dtype)
        row = (str(layers.layers), str(told["dtype"]), f"{told['bytes_per_request']:,}")
        table.add_row(f"  {_STATES[layers.kind]}", *row)
    return table


def _gib(size: int) -> str:
    gib = size / GIB
    return f"{gib:,.2f}" if gib >= 0.01 else f"{gib:.5f}"


def _billions(count: int) -> str:
    if count < 10**7:
        return f"{count:,} parameters"
    return f"{count / 1e9:.2f} B parameters" if count < 10**11 else f"{count / 1e9:.0f} B parameters"
