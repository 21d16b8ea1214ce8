"""Finds models of the Hub that a manifest loads without a revision: each start then takes whatever is newest.

Two programs load from the Hub: vLLM (`--model` with `--revision`) and KServe's storage initializer, release 0.20, which
takes `hf://OWNER/NAME:REVISION` (`_download_hf` of python/storage/kserve_storage/kserve_storage.py). Files in a bucket
or on a volume have no revision that a manifest could name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import Path, parts
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.fit.vllm_containers import Found, Unread, VllmContainer
from neuroscale.gate.fit.vllm_pods import servers
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import Manifest, tripwire
from neuroscale.manifests.serving_runtimes import KSERVE
from neuroscale.vllm.arguments import Parsed, parse_arguments

RULE = "unpinned-model"
_HUB = "hf://"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_KINDS = ("InferenceService", "LLMInferenceService")
_NEWEST = "each start takes whatever is newest"


@dataclass(frozen=True)
class LooseModel:
    """A model whose revision a manifest does not fix, or does not show.

    `name`: its name on the Hub ("" if the files do not show it). `told`: what is wrong, and `fix` what to write.
    """

    manifest: Manifest
    at: Path
    name: str
    told: str
    fix: str


def loose_models(manifests: Sequence[Manifest], elsewhere: Callable[[str], Manifest | None]) -> Iterator[LooseModel]:
    """Each model of the manifests without a commit. `elsewhere` gives a ClusterServingRuntime by its name."""
    for manifest in manifests:
        if manifest.group == KSERVE and manifest.kind in _KINDS:
            yield from _loaded_by_kserve(manifest)
    for found in servers(manifests, elsewhere):
        yield from _loaded_by_vllm(found)


def loose_findings(
    gate: str,
    manifests: Sequence[Manifest],
    elsewhere: Callable[[str], Manifest | None],
    *,
    left_out: Sequence[str],
    strict: bool,
) -> Iterator[Finding]:
    """A notice for each loose model in an environment, and a finding outside of all environments if `strict`.

    `left_out`: the environments that another check judges. A model that the files do not show has the fit check's own
    notice.
    """
    for one in loose_models(manifests, elsewhere):
        service = one.manifest.service
        if not one.name or (service is not None and service.environment in left_out):
            continue
        severity = Severity.ERROR if strict and service is None else Severity.NOTICE
        yield manifest_finding(gate, RULE, one.manifest, one.at, one.told, one.fix, severity=severity)


def must_be_caught() -> int:
    """The number of known-bad models that are found. Raises UntrustedError if one is not."""
    traps = (
        {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "hf://owner/name"}},
        {"containers": [{"name": "kserve-container", "command": ["vllm", "serve"], "args": ["--model=owner/name"]}]},
    )
    for predictor in traps:
        trap = tripwire(f"{KSERVE}/v1beta1", "InferenceService", spec={"predictor": predictor})
        if [one.name for one in loose_models([trap], lambda _: None)] != ["owner/name"]:
            raise UntrustedError("the fit check did not catch its tripwire: a model of the Hub without a revision.")
    return len(traps)


def _loaded_by_kserve(manifest: Manifest) -> Iterator[LooseModel]:
    for at, address in _addresses(manifest.value.get("spec"), ("spec",)):
        name, colon, revision = address.removeprefix(_HUB).partition(":")
        if colon and _COMMIT.fullmatch(revision):
            continue
        without = f"with a revision that is not a commit ({revision})" if revision else "without a revision"
        fix = f"{_catalog(manifest, name)}Write {_HUB}{name}:COMMIT, with the 40 digits of the commit that you tested."
        yield LooseModel(manifest, at, name, f"loads {name} from the Hub {without}: {_NEWEST}", fix)


def _addresses(value: Any, at: Path) -> Iterator[tuple[Path, str]]:
    """Every `hf://` address of a service, also where KServe puts it together from storage.parameters and the path."""
    for place, part in parts(value, at):
        parameters = part.get("parameters") if isinstance(part, dict) else None
        if isinstance(parameters, dict) and parameters.get("type") == "hf" and "path" in part:
            yield (*place, "path"), f"{_HUB}{part['path']}"
        elif isinstance(part, str) and part.startswith(_HUB):
            yield place, part


def _loaded_by_vllm(found: Found) -> Iterator[LooseModel]:
    if isinstance(found, Unread):
        yield _unknown(found.manifest, found.at, found.reason)
        return
    if found.description:
        return
    command = found.command
    parsed = parse_arguments([word.text for word in command.words], command.version, program=command.program)
    hidden = [reason for _, reason in (*command.unreadable, *found.hidden)]
    hidden += [one.message for one in parsed.problems if one.kind == "config"]
    if "model" not in parsed.values and hidden:
        yield _unknown(found.manifest, found.at, hidden[0])
        return
    yield from _model(found, parsed)
    yield from _draft(found, parsed)


def _model(server: VllmContainer, parsed: Parsed) -> Iterator[LooseModel]:
    name = str(parsed.value("model") or "")
    if not _is_of_hub(name) or _COMMIT.fullmatch(str(parsed.values.get("revision") or "")):
        return
    asked = parsed.values.get("revision")
    without = f"with a revision that is not a commit ({asked})" if asked else "without a revision"
    manifest, at = _written(server, parsed, "revision" if asked else "model")
    fix = f"{_catalog(manifest, name)}Write --revision=COMMIT, with the 40 digits of the commit that you tested."
    yield LooseModel(manifest, at, name, f"loads {name} from the Hub {without}: {_NEWEST}", fix)


def _draft(server: VllmContainer, parsed: Parsed) -> Iterator[LooseModel]:
    """The model that guesses tokens. Its own argument, `--spec-model`, takes no revision."""
    said = parsed.values.get("speculative_config")
    config: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    for dest, name, revision in (
        ("speculative_config", config.get("model"), config.get("revision")),
        ("spec_model", parsed.values.get("spec_model"), None),
    ):
        named = str(name or "")
        # Words without a slash name a method that needs no model, such as ngram.
        if "/" not in named or not _is_of_hub(named) or _COMMIT.fullmatch(str(revision or "")):
            continue
        if named == parsed.values.get("model"):
            continue  # the model itself guesses, from the same files
        manifest, at = _written(server, parsed, dest)
        told = f"loads the draft model {named} from the Hub without a commit as its revision: {_NEWEST}"
        fix = 'Write its commit into --speculative-config, as "revision" beside "model".'
        yield LooseModel(manifest, at, named, told, fix)


def _written(server: VllmContainer, parsed: Parsed, dest: str) -> tuple[Manifest, Path]:
    """Where a word of the server's own manifest sets an argument; the container if another object sets it."""
    if dest in parsed.places:
        manifest, at = server.origin(server.command.words[parsed.places[dest]].place)
        if manifest is server.manifest:
            return manifest, at
    return server.manifest, server.at


def _is_of_hub(name: str) -> bool:
    """Whether vLLM looks for it on the Hub: neither a folder nor an address of another store."""
    return bool(name) and not name.startswith(("/", ".", "~")) and "://" not in name


def _catalog(manifest: Manifest, name: str) -> str:
    if manifest.service is None:
        return ""
    return (
        f"Run `neuroscale catalog add {name}`, which enters the newest commit of the Hub, and then "
        f"`neuroscale replan {manifest.service.folder}`. In a manifest of your own: "
    )


def _unknown(manifest: Manifest, at: Path, reason: str) -> LooseModel:
    told = f"whether its model has a commit as its revision is not known: {reason}"
    return LooseModel(manifest, at, "", told, "Write the command and its arguments into the manifest as plain text.")
