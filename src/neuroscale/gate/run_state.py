"""Holds the state that the checks of one run share: its input, the files that judge it, and shared values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.catalog.settings import LONGEST_DAYS, Settings
from neuroscale.core import schemas
from neuroscale.core.errors import InputError
from neuroscale.costs.bill import CostChange
from neuroscale.gate.check import GateResult
from neuroscale.gate.checks.secrets import Text
from neuroscale.gate.fit.environment import runtimes_of
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.merged_change import Change
from neuroscale.gate.platform_sources import PlatformSources, ReadOnce
from neuroscale.gate.verdict import Alterations, Effects
from neuroscale.manifests.objects import Manifest
from neuroscale.repo.layout import CATALOG, SETTINGS
from neuroscale.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from neuroscale.planning.plan import Plan
    from neuroscale.rendering.planning_inputs import PlanningInputs


@dataclass(frozen=True)
class Subject:
    """The subject of a run: the input, the texts to search for secrets, and the source of the policies that decide.

    `server`: whether the run asks an API server, too. `strict`: whether an object of a kind that nothing judges is a
    finding.
    """

    given: GateInput
    texts: Callable[[], Iterable[Text]]
    judge: Snapshot
    change: Change | None = None
    paths: tuple[str, ...] = ()
    server: bool = False
    strict: bool = False


@dataclass
class Run:
    """The values that the checks share. `folder` is the run's scratch folder, in which each check makes its own folder.
    `ending` holds clean-up that happens at the end of the run, also if the run breaks off.

    `manifests` are the objects of the input, `anew` those that the change renders otherwise, and `servers` all that it
    renders. `plans` are by service folder, and `cost` is what the change does to the bill. `unjudged` are objects of
    kinds that nothing judges. `altered` lists what the change touches, and `cluster` holds the objects of clusters
    among it. `results` are those of the checks that have ended in the run's own thread.
    """

    subject: Subject
    today: date
    folder: Path
    ending: ExitStack = field(default_factory=ExitStack)
    manifests: list[Manifest] = field(default_factory=list)
    anew: list[Manifest] = field(default_factory=list)
    servers: list[Manifest] = field(default_factory=list)
    unjudged: list[Manifest] = field(default_factory=list)
    cluster: list[Manifest] = field(default_factory=list)
    altered: Alterations | None = None
    effects: Effects | None = None
    cost: CostChange | None = None
    platform: PlanningInputs | None = None
    plans: dict[str, Plan] = field(default_factory=dict)
    results: list[GateResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schemas = ReadOnce(schemas.find)
        self.runtimes = runtimes_of(self.given.snapshot)

    @property
    def change(self) -> Change | None:
        """The change, or None for a run over plain paths."""
        return self.subject.change

    @property
    def given(self) -> GateInput:
        return self.subject.given

    @property
    def judged(self) -> list[Manifest]:
        """The objects that every check of manifests looks at. It is complete after the services are rendered anew."""
        return [*self.manifests, *self.anew]

    @property
    def applied(self) -> list[Manifest]:
        """These, and the objects of clusters, whose form and policies are judged; rendering decides what they hold."""
        return [*self.judged, *self.cluster]

    def result(self, name: str) -> GateResult | None:
        """The result of a check that has ended in the run's own thread."""
        return next((one for one in self.results if one.check.name == name), None)

    @cached_property
    def after(self) -> PlatformSources:
        """The platform in the tree that is judged."""
        return PlatformSources(self.given.snapshot)

    @cached_property
    def judge(self) -> PlatformSources:
        """The platform of the side that judges. Files that the change does not touch are the same on both sides."""
        change, after = self.change, self.after
        if self.subject.judge is self.given.snapshot:
            return after
        if change is None:
            return PlatformSources(self.subject.judge)
        return PlatformSources(
            self.subject.judge,
            None if change.touches(CATALOG) else after.catalog,
            None if change.touches(SETTINGS) else after.settings,
        )

    @cached_property
    def deciding_settings(self) -> Settings:
        """The settings whose rules decide: the base's, and the change's own where the base's cannot be read.

        Raises InputError if neither can be read.
        """
        with suppress(InputError):
            return self.judge.settings()
        return self.after.settings()

    @cached_property
    def longest_days(self) -> int:
        """How far ahead overrides and exceptions may end, by the settings.

        A change that alters it is judged by the shorter term of the base's and its own. Settings that cannot be read do
        not count (the catalog check says why).
        """
        terms = []
        for files in (self.judge, self.after):
            with suppress(InputError):
                terms.append(files.settings().exceptions.longest_days)
        return min(terms, default=LONGEST_DAYS)
