"""Reads `platform/catalog/` from a snapshot, and checks it as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from neuroscale.catalog.contradictions import contradictions
from neuroscale.catalog.entries import Accelerator, ModelEntry, RuntimeEntry, Team
from neuroscale.catalog.price_list import Price, PriceList
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.units import MIB
from neuroscale.core.validation import drops_unknown_fields, from_document, suggest
from neuroscale.core.yaml_io import Document, Path, dotted, read_mapping, sha256_of
from neuroscale.models.facts import ModelFacts
from neuroscale.repo.layout import ACCELERATORS, BUDGETS, CATALOG, MODELS
from neuroscale.repo.snapshot import Snapshot, Texts

_FOLDERS: dict[str, tuple[str, type[BaseModel]]] = {
    "models": ("model", ModelEntry),
    "accelerators": ("accelerator", Accelerator),
    "prices": ("price", PriceList),
    "runtimes": ("runtime", RuntimeEntry),
    "teams": ("team", Team),
}

_MOST_BYTES = 2 * MIB  # bytes of all entries together: enough for a few hundred models with their measurements
MEASUREMENTS = "measurements"
"""The field of a model, and the kind of its own key: a measurement moves that key alone."""

Entry = TypeVar("Entry", bound=BaseModel)


class Catalog:
    """Every entry by its name. Values are immutable; two catalogs are equal if their digests are."""

    def __init__(
        self,
        models: Mapping[str, ModelEntry],
        accelerators: Mapping[str, Accelerator],
        prices: Mapping[str, PriceList],
        runtimes: Mapping[str, RuntimeEntry],
        teams: Mapping[str, Team],
    ) -> None:
        self.models = MappingProxyType(dict(sorted(models.items())))
        self.accelerators = MappingProxyType(dict(sorted(accelerators.items())))
        self.prices = MappingProxyType(dict(sorted(prices.items())))
        self.runtimes = MappingProxyType(dict(sorted(runtimes.items())))
        self.teams = MappingProxyType(dict(sorted(teams.items())))
        self._digests: dict[str, str] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """The digest of all entries: `sha256:` and 64 hexadecimal digits."""
        return sha256_of({key: self.entry_digest(key) for key in self.keys()})

    def keys(self) -> list[str]:
        """The keys of all entries, sorted: `model/NAME`, `accelerator/NAME`, `price/NAME`, `runtime/NAME`,
        `team/NAME`, and `measurements/NAME` of a model that has some."""
        measured = [f"{MEASUREMENTS}/{name}" for name, model in self.models.items() if model.measurements]
        return sorted((*measured, *(f"{kind}/{name}" for kind, entries in self._kinds().items() for name in entries)))

    def entry_digest(self, key: str) -> str:
        """The digest of one entry, by its key. Raises KeyError for an unknown one."""
        if key not in self._digests:
            kind, name = key.split("/", 1)
            # Unset fields stay out, so a new optional field does not change the digest of entries without it.
            if kind == MEASUREMENTS:
                value = [one.model_dump(mode="json", exclude_unset=True) for one in self.models[name].measurements]
                self._digests[key] = sha256_of(value)
            else:
                entry = self._kinds()[kind][name]
                self._digests[key] = sha256_of(
                    entry.model_dump(mode="json", exclude_unset=True, exclude={MEASUREMENTS})
                )
        return self._digests[key]

    def runtime(self, family: str, facts: ModelFacts) -> RuntimeEntry:
        """The runtime of an accelerator's family for a model: a runtime only for such models, else the general one."""
        serving = [runtime for runtime in self.runtimes.values() if runtime.family == family]
        own = [runtime for runtime in serving if runtime.only_for and runtime.only_for.suits(facts)]
        # Loading refuses a catalog with a family without a general runtime, or with two runtimes for the same models.
        return own[0] if own else next(runtime for runtime in serving if runtime.only_for is None)

    def price(
        self,
        accelerator: str,
        count: int,
        lists: tuple[str, ...],
        cpu: Decimal | int = 0,
        memory_gib: Decimal | int = 0,
    ) -> tuple[PriceList, Price] | None:
        """The price of `count` accelerators for a pod with these requests, in the first named list that has one.

        A price's own count must divide `count`. Of several, the one with the largest count holds, and then the one by
        which the whole pod is cheapest.
        """
        for name in lists:
            price_list = self.prices[name]
            fitting = [price for price in price_list.prices if price.fits(accelerator, count, cpu, memory_gib)]
            if fitting:
                return price_list, min(
                    fitting, key=lambda price: (-price.count, price_list.hourly(price, count, cpu, memory_gib))
                )
        return None

    def with_prices(self, prices: PriceList) -> Catalog:
        """This catalog with a price list, in place of the one of that name."""
        lists = {**self.prices, prices.name: prices}
        return Catalog(self.models, self.accelerators, lists, self.runtimes, self.teams)

    def _kinds(self) -> dict[str, Mapping[str, BaseModel]]:
        return {
            "model": self.models,
            "accelerator": self.accelerators,
            "price": self.prices,
            "runtime": self.runtimes,
            "team": self.teams,
        }


def load_catalog(snapshot: Snapshot) -> Catalog:
    """The catalog of a repository. Raises InputError listing every problem of every file."""
    problems: list[Problem] = []
    kinds: dict[str, dict[str, Any]] = {folder: {} for folder in _FOLDERS}
    places: dict[tuple[str, str], tuple[str, Document]] = {}
    texts = Texts(snapshot, CATALOG, _MOST_BYTES)

    def refuse(where: str, field: str, message: str, fix: str, line: int | None = None) -> None:
        problems.append(Problem(where, field, message, fix, line))

    for entry in snapshot.entries(CATALOG):
        if entry.path.startswith(f"{BUDGETS}/"):
            continue  # `load_budgets` reads them: no plan depends on them
        relative = entry.path.removeprefix(f"{CATALOG}/")
        folder, _, file = relative.partition("/")
        if entry.kind != "file":
            refuse(entry.path, "", f"is a {entry.kind}, not a plain file", "Keep plain YAML files here.")
            continue
        if relative == "README.md":
            continue
        if folder not in _FOLDERS or "/" in file or not file.endswith(".yaml"):
            fix = f"Put `NAME.yaml` into one of these folders of {CATALOG}: {', '.join(_FOLDERS)}."
            refuse(entry.path, "", "is not a catalog file", fix)
            continue
        try:
            value, document = _read(folder, texts.read(entry.path), entry.path)
        except InputError as error:
            problems.extend(error.problems)
            continue
        name: str = value.name
        expected = name.rsplit("/", 1)[-1] + ".yaml"
        if file != expected:
            told, fix = f"{name!r} belongs in a file named {expected}", "Rename the file or correct the name."
            refuse(entry.path, "name", told, fix, document.line("name"))
        if (folder, name) in places:
            told = f"{name!r} stands in {places[(folder, name)][0]} too"
            refuse(entry.path, "name", told, "Keep one of the two.", document.line("name"))
            continue
        places[(folder, name)] = (entry.path, document)
        kinds[folder][name] = value
    # References are checked only if every file could be read: otherwise each failure would cause false ones.
    if not problems:
        problems = _dangling(kinds, places)
    for folder in _FOLDERS:
        if not kinds[folder] and not problems:
            refuse(f"{CATALOG}/{folder}", "", "holds no entry", f"Add at least one {_FOLDERS[folder][0]}.")
    if problems:
        raise InputError(problems)
    return Catalog(**{folder: kinds[folder] for folder in _FOLDERS})


def read_prices(text: str, where: str, catalog: Catalog) -> PriceList:
    """A price list in the catalog's form. Raises InputError, also for accelerators that the catalog lacks."""
    value, document = _read("prices", text, where)
    prices: PriceList = value
    if problems := _of_unknown(prices, where, document, catalog.accelerators):
        raise InputError(problems)
    return prices


def entry_of(folder: str, text: str, where: str) -> BaseModel:
    """The entry in one file of a folder of the catalog. Raises InputError with every problem of it."""
    entry: BaseModel = _read(folder, text, where)[0]
    return entry


def _read(folder: str, text: str, where: str) -> tuple[Any, Document]:
    """One file's entry. Raises InputError with every problem of it."""
    return _read_once(folder, text, where, drops_unknown_fields())


@lru_cache(maxsize=256)
def _read_once(folder: str, text: str, where: str, drops_unknown: bool) -> tuple[Any, Document]:  # noqa: ARG001
    """As `_read`: the gate reads the catalog of several commits, in which most files are the same.

    `drops_unknown`: what is read without unknown fields is another answer.
    """
    document = read_mapping(text, where)
    value: Any = from_document(_FOLDERS[folder][1], document, where)
    if isinstance(value, ModelEntry):
        _check_config(value, document, where)
    return value, document


def _check_config(model: ModelEntry, document: Document, where: str) -> None:
    """Raises InputError if a model's config cannot be read, has a key that nothing reads, or contradicts what the entry
    claims beside it."""
    problems = []

    def found(field: str, message: str, fix: str) -> None:
        path = tuple(field.split("."))
        problems.append(Problem(where, field, message, fix, document.line(*path)))

    try:
        facts, unread = model.reading
    except InputError as error:
        for problem in error.problems:
            found(f"config.{problem.field}".rstrip("."), problem.message, problem.fix)
    else:
        for field, fix in unread:
            found(f"config.{field}", "is a key that nothing reads", fix)
        for field, message, fix in contradictions(model, facts):
            found(field, message, fix)
    if problems:
        raise InputError(problems)


def _of_unknown(
    price_list: PriceList, where: str, document: Document, accelerators: Mapping[str, Accelerator]
) -> list[Problem]:
    """The problems of a list's prices for accelerators that the catalog lacks."""
    problems = []
    for index, price in enumerate(price_list.prices):
        if price.accelerator not in accelerators:
            path = ("prices", index, "accelerator")
            message = f"{price.accelerator!r} is not an accelerator of the catalog"
            fix = suggest(price.accelerator, accelerators, ACCELERATORS)
            problems.append(Problem(where, dotted(path), message, fix, document.line(*path)))
    return problems


def _dangling(kinds: dict[str, dict[str, Any]], places: dict[tuple[str, str], tuple[str, Document]]) -> list[Problem]:
    problems: list[Problem] = []

    def refuse(folder: str, name: str, path: Path, message: str, fix: str) -> None:
        where, document = places[(folder, name)]
        problems.append(Problem(where, dotted(path), message, fix, document.line(*path)))

    for price_list in kinds["prices"].values():
        problems += _of_unknown(price_list, *places[("prices", price_list.name)], kinds["accelerators"])
    for model in kinds["models"].values():
        if model.variant_of is not None and model.variant_of not in kinds["models"]:
            fix = suggest(model.variant_of, kinds["models"], MODELS)
            refuse("models", model.name, ("variant_of",), f"{model.variant_of!r} is not a model of the catalog", fix)
        for index, measurement in enumerate(model.measurements):
            if measurement.accelerator not in kinds["accelerators"]:
                told = f"{measurement.accelerator!r} is not an accelerator of the catalog"
                fix = suggest(measurement.accelerator, kinds["accelerators"], ACCELERATORS)
                refuse("models", model.name, (MEASUREMENTS, index, "accelerator"), told, fix)
    families = {runtime.family for runtime in kinds["runtimes"].values() if runtime.only_for is None}
    serving: dict[tuple[Any, ...], str] = {}
    for runtime in kinds["runtimes"].values():
        key = (runtime.family, runtime.only_for and (runtime.only_for.model_type, runtime.only_for.architecture))
        if key in serving:
            told = f"the runtime {serving[key]!r} serves the same models on the same accelerators"
            fix = "Keep one of the two, or let one be `only_for` some models."
            refuse("runtimes", runtime.name, ("only_for" if runtime.only_for else "family",), told, fix)
        serving[key] = runtime.name
    for accelerator in kinds["accelerators"].values():
        if accelerator.family not in families:
            fix = f"Add a runtime with `family: {accelerator.family}`. Served: {', '.join(sorted(families))}."
            told = f"no runtime serves the family {accelerator.family!r}"
            refuse("accelerators", accelerator.name, ("family",), told, fix)
    owners: dict[str, str] = {}
    for team in kinds["teams"].values():
        if team.namespace in owners:
            told = f"{team.namespace!r} belongs to the team {owners[team.namespace]!r}"
            refuse("teams", team.name, ("namespace",), told, "Give each team a namespace of its own.")
        owners[team.namespace] = team.name
    return problems
