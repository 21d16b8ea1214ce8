"""Looks up models and accelerators for the fit check: in the judge's catalog, and new ones in the change's catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property

from neuroscale.catalog import Catalog, ModelEntry, RuntimeEntry
from neuroscale.catalog.settings import Environment, Settings
from neuroscale.core.errors import InputError
from neuroscale.core.validation import same_but_owner
from neuroscale.gate.fit.vllm_containers import VllmContainer
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.manifests.accelerators import check_memory_label, find_accelerator, named_cards
from neuroscale.manifests.pod_resources import usable_memory
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Choice, Device, Fit, OtherCandidates, choices, device, draft_method, fit, with_draft
from neuroscale.planning.measured import as_measured, measured_seconds
from neuroscale.planning.plan import Startup
from neuroscale.planning.replica_memory import served_facts
from neuroscale.planning.startup import startup
from neuroscale.planning.vllm_flags import MOUNTED_MODEL
from neuroscale.vllm.accelerator_rules import Place
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.engine_arguments import EngineArguments
from neuroscale.vllm.images import image_name, image_repository, image_version, tag_version

_FILE = "file://"
_HUB = "hf://"
_BUILDS: Mapping[str, str] = {
    "cpu": "cpu",
    "cuda": "cuda",
    "gaudi": "hpu",
    "hpu": "hpu",
    "neuron": "neuron",
    "rocm": "rocm",
    "tpu": "tpu",
    "xpu": "xpu",
}
"""The family of accelerators that a part of an image's name shows."""
_MOST_CHOICES = 3
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class UnknownError(Exception):
    """The catalog does not hold a fact; the text names it."""


@dataclass(frozen=True)
class KnownModel:
    """A model of the catalog."""

    entry: ModelEntry
    facts: ModelFacts
    added: bool = False  # the change itself brings its entry, or that of its draft

    def startup_in(
        self, environment: Environment, runtime: RuntimeEntry, where: Device, parsed: Parsed, sequences: int
    ) -> Startup:
        """The seconds of a start in an environment, with what the catalog measured of such a server."""
        measured = measured_seconds(self.entry, where, parsed.arguments, parsed.asked or parsed.version)
        eager = parsed.arguments.enforce_eager
        return startup(self.entry, runtime, environment, sequences=sequences, eager=eager, measured=measured)

    def fit_on(self, where: Device, arguments: EngineArguments, version: str) -> Fit:
        """The fit, with what the catalog measured of such a server. Raises ValueError for a wrong version."""
        return fit(*as_measured(self.entry, self.facts, where, arguments, version), arguments, version=version)


@dataclass(frozen=True)
class KnownPlace:
    """Where a server runs, for the checks and the fit."""

    place: Place
    device: Device
    added: bool = False  # the change itself brings the accelerator's entry


def read_knowledge(judge: PlatformSources, after: PlatformSources | None = None) -> Knowledge | None:
    """The knowledge of the judge's files, and for new entries of those `after` the change; None if neither can be read.

    If the judge's files cannot be read, every entry is new, and findings say so.
    """
    known = _read(judge)
    added = _read(after) if after is not None else None
    if known is None:
        return None if added is None else Knowledge(Catalog({}, {}, {}, {}, {}), None, added)
    known.added = added
    return known


def _read(files: PlatformSources) -> Knowledge | None:
    try:
        catalog = files.catalog()
    except InputError:
        return None
    try:
        return Knowledge(catalog, files.settings())
    except InputError:
        return Knowledge(catalog, None)


class Knowledge:
    """A catalog and the environments whose stores hold its models.

    `added`: the knowledge of a change's own catalog, for its new entries. `facts`: the facts of models whose entries
    hold none.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings | None,
        added: Knowledge | None = None,
        facts: Mapping[str, ModelFacts] | None = None,
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self.added = added
        self._facts = dict(facts or {})

    def model(self, named: str, source: str) -> KnownModel:
        """The model that a command names, by where its files come from (`source`). Raises UnknownError."""
        try:
            return self._known(self._entry_of(named, source))
        except UnknownError:
            if self.added is None:
                raise
            model = self.added.model(named, source)
            known = model.entry.name in self.catalog.models  # only its files moved: the base's facts hold
            return self._known(model.entry.name) if known else replace(model, added=True)

    def with_draft(self, model: KnownModel, arguments: EngineArguments) -> KnownModel:
        """The model together with the draft model or head of a command, if the catalog has it."""
        if draft_method(arguments) is None:
            return model
        try:
            draft = self.model(arguments.draft, "")
            facts = with_draft(model.facts, draft.facts, arguments)
        except (UnknownError, InputError):
            return model  # the fit names the draft that it does not count
        return replace(model, facts=facts, added=model.added or draft.added)

    def place(self, server: VllmContainer, environment: str) -> KnownPlace:
        """The accelerators that a pod asks for. Raises UnknownError."""
        try:
            return self._place(server, environment)
        except UnknownError:
            if self.added is None:
                raise
            known = self.added._place(server, environment)
        mine = self.catalog.accelerators.get(known.place.accelerator.name)
        if mine is None or mine.memory_gib.value is None:
            return replace(known, added=True)
        # Only how a pod asks for it changed: the base's facts hold. A processor has the memory that its pod asks for.
        there = device(mine) if mine.resource else known.device
        return replace(known, place=replace(known.place, accelerator=mine), device=there)

    def devices(self, environment: str) -> list[Device]:
        """The accelerators of an environment; of all environments if it is unknown."""
        names = self._usual(environment) or tuple(self.catalog.accelerators)
        return [device(self.catalog.accelerators[name]) for name in names if name in self.catalog.accelerators]

    def variants(self, entry: ModelEntry) -> list[ModelFacts]:
        """Other copies of the same model."""
        origin = entry.variant_of or entry.name
        copies = []
        for other in self.catalog.models.values():
            if other.name != entry.name and origin in (other.name, other.variant_of):
                try:
                    copies.append(self._known(other.name).facts)
                except UnknownError:
                    continue
        return copies

    def nearest(
        self, refused: Fit, model: KnownModel, place: KnownPlace, arguments: EngineArguments, environment: str
    ) -> str:
        """Changes of a refused command with which it fits, as a sentence."""
        candidates = OtherCandidates(self.variants(model.entry), self.devices(environment), self.price(environment))
        near = choices(refused, model.facts, place.device, arguments, candidates)[:_MOST_CHOICES]
        if not near:
            return "Choose a smaller model or a larger accelerator: nothing near it fits."
        return "These would fit: " + "; ".join(map(_change, near)) + "."

    def environment(self, name: str) -> Environment | None:
        """The settings of an environment, or None if they do not name it."""
        return self.settings.environments.get(name) if self.settings else None

    def environments(self, name: str) -> tuple[Environment, ...]:
        """The environment of that name, or all environments for a manifest outside of every environment ("")."""
        if self.settings is None:
            return ()
        known = self.environment(name)
        return (known,) if known else () if name else tuple(self.settings.environments.values())

    def runtime(self, server: VllmContainer, family: str) -> RuntimeEntry | None:
        """The catalog's runtime of a server's image, or else the runtime of its accelerator's family."""
        alike = [runtime for runtime in self.catalog.runtimes.values() if runtime.family == family]
        same = [runtime for runtime in self._of_image(server.image) if runtime in alike]
        return next((runtime for runtime in (*same, *alike) if runtime.only_for is None), None)

    def of_image(self, image: str) -> list[RuntimeEntry]:
        """The catalog's runtimes whose image this is, in the same version, whatever mirror it comes from."""
        version, digest = self.version(image), image.partition("@")[2]
        return [
            runtime
            for runtime in self._of_image(image)
            if runtime.version == version or (digest and digest == runtime.digest and not version)
        ]

    def version(self, image: str) -> str:
        """The version of vLLM in an image: the one that its tag names, or else that of the catalog's runtime with this
        image; "" if neither is known."""
        if version := image_version(image):
            return version
        tag, digest = tag_version(image), image.partition("@")[2]
        for runtime in self.catalog.runtimes.values():
            named = image_name(runtime.image) == image_name(image)
            if named and ((tag and tag == tag_version(runtime.image)) or (digest and digest == runtime.digest)):
                return runtime.version
        return ""

    def _of_image(self, image: str) -> list[RuntimeEntry]:
        """The catalog's runtimes of an image, whatever mirror it comes from."""
        name = image_repository(image)
        return [runtime for runtime in self.catalog.runtimes.values() if image_repository(runtime.image) == name]

    def build(self, server: VllmContainer) -> str:
        """The family of accelerators that a server's image is built for; "" if the image's name does not show it."""
        image = server.image.partition("@")[0]
        *folders, name = image.split("/")
        parts = {*folders, *re.split(r"[-_.:]", name)}
        families = {_BUILDS[part] for part in parts if part in _BUILDS}
        if not families:
            families = {runtime.family for runtime in self._of_image(image)}
        return next(iter(families)) if len(families) == 1 else ""

    def price(self, environment: str) -> _Price:
        """US dollars an hour, by the lists of an environment."""
        known = self.environment(environment)
        return _Price(self.catalog, known.price_lists if known else ())

    def _known(self, name: str) -> KnownModel:
        entry = self.catalog.models[name]
        if name not in self._facts:
            try:
                self._facts[name] = served_facts(entry)
            except InputError as error:
                raise UnknownError(f"of {name}: {error.problems[0].message}") from error
        return KnownModel(entry, self._facts[name])

    def _entry_of(self, named: str, source: str) -> str:
        if named == MOUNTED_MODEL or named.startswith(f"{MOUNTED_MODEL}/"):
            if source:
                named = f"{source.rstrip('/')}{named.removeprefix(MOUNTED_MODEL)}"
            elif named == MOUNTED_MODEL:
                raise UnknownError(f"the manifest does not show which model is in {MOUNTED_MODEL}")
        if named.startswith(_HUB):
            named = named.removeprefix(_HUB).partition(":")[0]
        for prefix in self._stores:
            if named.startswith(f"{prefix}/"):
                path = named.removeprefix(f"{prefix}/")
                for entry in self.catalog.models.values():
                    if entry.weights.path == path:
                        return entry.name
        if _HUB_ID.fullmatch(named):
            for entry in self.catalog.models.values():
                if named == entry.name or (entry.weights.kind == "hub" and entry.weights.path == named):
                    return entry.name
        others = same_but_owner(named, self.catalog.models)
        has = f", which has {others[0]}" if others else ""
        raise UnknownError(f"the model {named or 'of this command'} is not in the catalog{has}")

    @cached_property
    def _stores(self) -> tuple[str, ...]:
        """The prefixes of the addresses of models in the environments' own stores."""
        if self.settings is None:
            return ()
        stores = (environment.models.store for environment in self.settings.environments.values())
        prefixes = {store.removeprefix(_FILE).rstrip("/") for store in stores if store}
        return tuple(sorted(prefixes, key=len, reverse=True))

    def _place(self, server: VllmContainer, environment: str) -> KnownPlace:
        usual = self._usual(environment)
        try:
            cards = self.catalog.accelerators
            pod = named_cards(server.pod(), server.spec, cards.values())
            name, count = find_accelerator(pod, self.catalog, usual)
            if not name:
                return self._processor(server)
            check_memory_label(server.spec, name, cards[name].memory_gib.value or 0)
            for worker in server.workers:
                other, more = find_accelerator(named_cards(worker, None, cards.values()), self.catalog, usual)
                if other != name:
                    raise ValueError(f"its workers ask for {other or 'no accelerator'}, not for {name}")
                count += more
        except ValueError as error:
            raise UnknownError(f"its accelerator is not known: {error}") from error
        accelerator = self.catalog.accelerators[name]
        if accelerator.memory_gib.value is None:
            raise UnknownError(f"the catalog does not say how much memory {name} has")
        return KnownPlace(Place(accelerator, count, server.pods), device(accelerator))

    def _processor(self, server: VllmContainer) -> KnownPlace:
        """The place of a pod without accelerators: vLLM's build for CPUs, with the container's memory."""
        if not (server.for_cpu or self.build(server) == "cpu"):
            raise UnknownError("its pod asks for no accelerator, and its image is not the one for CPUs")
        processors = [card for card in self.catalog.accelerators.values() if card.family == "cpu" and not card.resource]
        if not processors:
            raise UnknownError("the catalog has no CPU")
        memory_gib = usable_memory(server.spec)
        if memory_gib <= 0:
            raise UnknownError("its pod does not say how much memory it needs")
        processor = processors[0]
        return KnownPlace(Place(processor, 1, server.pods), replace(device(processor), memory_gib=memory_gib))

    def _usual(self, environment: str) -> Sequence[str]:
        known = self.environment(environment)
        return known.accelerators if known else ()


@dataclass(frozen=True)
class _Price:
    catalog: Catalog
    lists: tuple[str, ...]

    def __call__(self, name: str, count: int) -> Decimal | None:
        listed = self.catalog.price(name, count, self.lists)
        return None if listed is None else listed[1].usd * count / listed[1].count


def _change(choice: Choice) -> str:
    return f"{choice.change.rstrip('.')}{' (tight)' if choice.tight else ''}"
