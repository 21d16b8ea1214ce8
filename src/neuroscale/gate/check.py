"""Defines a check of the gate, and the run: its input, the files that judge it, and what checks that ended hand on."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from neuroscale.catalog.settings import LONGEST_DAYS, Settings
from neuroscale.core import schemas
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.costs.bill import CostChange
from neuroscale.gate.evaluation import Evaluation, GateResult, guarded
from neuroscale.gate.judged_files import GateInput, Text
from neuroscale.gate.merged_change import Change
from neuroscale.gate.pin_change import PinChange, judge_pin_change, touches_pin
from neuroscale.gate.platform_sources import PlatformSources, ReadOnce
from neuroscale.gate.verdict import Alterations, Check, Effects, Outcome
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import runtimes_of
from neuroscale.repo.layout import CATALOG, SETTINGS
from neuroscale.repo.snapshot import Snapshot
from neuroscale.repo.tool_pin import is_running

if TYPE_CHECKING:
    from neuroscale.planning.plan import Plan
    from neuroscale.rendering.planning_inputs import PlanningInputs


APPLIED = ("files", "change", "effects")
"""The checks that a check of `Run.applied` needs."""


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


@dataclass(frozen=True)
class Altered:
    """What the change touches, and the objects of clusters among it whose kinds have a schema."""

    alterations: Alterations
    objects: tuple[Manifest, ...] = ()


@dataclass(frozen=True)
class Anew:
    """The result of rendering. `manifests`: the objects that the change renders otherwise, which no check has judged.

    `servers`: these, and the objects that it renders as before, whose runtimes and facts may differ. `said`: what was
    not looked at, in words. `imagined`: those of the manifests that are of examples.
    """

    effects: Effects
    manifests: tuple[Manifest, ...] = ()
    servers: tuple[Manifest, ...] = ()
    said: tuple[str, ...] = ()
    imagined: tuple[Manifest, ...] = ()


@dataclass(frozen=True)
class _Ended:
    result: GateResult | None
    value: Any


class Run:
    """One run of the gate. Nothing in it changes once it is made: each check gets a run of its own, which shows what
    the checks that it needs hand on.

    `folder` is the run's scratch folder, in which each check makes its own. `ending` holds clean-up that happens at the
    end of the run, also if the run breaks off. `after` is the platform in the tree that is judged, and `judge` that of
    the side that judges: files that the change does not touch are the same on both sides.
    """

    def __init__(self, subject: Subject, today: date, folder: Path, ending: ExitStack | None = None) -> None:
        self.subject = subject
        self.today = today
        self.folder = folder
        self.ending = ending or ExitStack()
        self.given, self.change = subject.given, subject.change
        self.schemas = ReadOnce(schemas.find)
        self.runtimes = runtimes_of(self.given.snapshot)
        self.pin = ReadOnce(self._pin)
        self.after = PlatformSources(self.given.snapshot, is_newer=self._is_newer)
        self.judge = self._judge()
        self._ended: Mapping[str, _Ended] = {}
        self._shown: frozenset[str] | None = None

    def _judge(self) -> PlatformSources:
        subject, change, after = self.subject, self.change, self.after
        if subject.judge is self.given.snapshot:
            return after
        if change is None:
            return PlatformSources(subject.judge)
        return PlatformSources(
            subject.judge,
            None if change.touches(CATALOG) else after.catalog,
            None if change.touches(SETTINGS) else after.settings,
        )

    def _pin(self) -> PinChange:
        return PinChange() if self.change is None else judge_pin_change(self.change)

    def _is_newer(self) -> bool:
        """Whether the change pins another tool, which may judge it: its files can have fields that are new in it."""
        if self.change is None or not touches_pin(self.change):
            return False
        accepted = self.pin().accepted
        return accepted is not None and not is_running(accepted)

    def seen_by(self, check: GateCheck) -> Run:
        """This run as a check may see it: of other checks it shows those that the check needs."""
        seen = copy.copy(self)
        seen._shown = frozenset((check.name, *check.needs))
        return seen

    def ended_with(self, name: str, result: GateResult | None, value: Any) -> Run:
        """This run after the check `name` has ended with its result, and hands on a value."""
        after = copy.copy(self)
        after._ended = {**self._ended, name: _Ended(result, value)}
        return after

    def with_result(self, result: GateResult) -> Run:
        """This run with another result of a check that has ended."""
        return self.ended_with(result.check.name, result, self._end_of(result.check.name).value)

    def result(self, name: str) -> GateResult | None:
        """The result of a check. Raises UntrustedError for one that the check which asks does not name as needed."""
        return self._end_of(name).result

    def _end_of(self, name: str) -> _Ended:
        if self._shown is not None and name not in self._shown:
            raise UntrustedError(f"a check asked for what {name!r} hands on, and does not say that it needs it.")
        return self._ended.get(name, _Ended(None, None))

    @property
    def results(self) -> tuple[GateResult, ...]:
        """The results of all checks that have ended and were not left out without a reason."""
        return tuple(end.result for end in self._ended.values() if end.result is not None)

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The objects of the input."""
        return self._end_of("files").value or ()

    @property
    def altered(self) -> Altered | None:
        return cast("Altered | None", self._end_of("change").value)

    @property
    def platform(self) -> PlanningInputs | None:
        return cast("PlanningInputs | None", self._end_of("catalog").value)

    @property
    def anew(self) -> Anew | None:
        """What the change does to services when they are rendered anew; None if nothing is rendered anew."""
        return cast("Anew | None", self._end_of("effects").value)

    @property
    def unjudged(self) -> tuple[Manifest, ...]:
        """The objects of kinds that nothing judges."""
        return self._end_of("kinds").value or ()

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The readable plans, by service folder."""
        return self._end_of("drift").value or {}

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets that the input holds: no report may show them."""
        return self._end_of("secrets").value or frozenset()

    @property
    def cost(self) -> CostChange | None:
        """What the change does to the bill."""
        return cast("CostChange | None", self._end_of("cost").value)

    @property
    def judged(self) -> tuple[Manifest, ...]:
        """The objects that every check of manifests looks at: those of the input, and those rendered anew."""
        return (*self.manifests, *(self.anew.manifests if self.anew else ()))

    @property
    def applied(self) -> tuple[Manifest, ...]:
        """These, and the objects of clusters, whose form and policies are judged; rendering decides what they hold."""
        return (*self.judged, *(self.altered.objects if self.altered else ()))

    @property
    def deciding_settings(self) -> Settings:
        """The settings whose rules decide: the base's, and the change's own where the base's cannot be read.

        Raises InputError if neither can be read.
        """
        with suppress(InputError):
            return self.judge.settings()
        return self.after.settings()

    @property
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


@dataclass(frozen=True)
class LeftOut:
    """Says that a check does not run. The verdict lists the check with its `reason`, and leaves it out without one."""

    reason: str = ""


class GateCheck(ABC):
    """One check. Each run makes a new instance, so that nothing that a check keeps reaches the next run.

    `needs` names the checks whose results or values it takes: they end before it begins. `beside`: it waits for other
    programs most of the time, so it runs in a thread of its own beside the checks that follow, and the verdict lists it
    behind them; no check may need it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[bool] = False
    value: Any = None
    """What it hands on to the checks that need it, once it has ended or was left out: nothing alters it. `Run` gives
    these values their types."""

    def left_out(self, run: Run) -> LeftOut | None:  # noqa: ARG002
        """Why the check does not run on this input; None if it runs. Called in the run's own thread, in its turn."""
        return None

    def begin(self, run: Run) -> None:  # noqa: B027
        """Do what must happen in the run's own thread before `evaluate`."""

    @abstractmethod
    def evaluate(self, run: Run) -> Evaluation:
        """Look at everything, with the tripwires. Raises UntrustedError if a tool gives no usable answer."""

    def not_checked(self, run: Run) -> Iterable[str]:  # noqa: ARG002
        """What the check did not look at, in words. Called after it has ended or was left out."""
        return ()


def in_order(names: Iterable[str], make: Callable[[str], GateCheck]) -> Iterator[GateCheck]:
    """The checks `names`, each behind those that it needs, and otherwise in their own order.

    A needed check that is not among `names` has nothing to hand on in this run. `make` gives a check its instance.
    Raises UntrustedError for checks that need each other, or one that runs beside others.
    """
    left = dict.fromkeys(names)
    waiting: set[str] = set()
    beside: set[str] = set()

    def behind_its_needs(name: str) -> Iterator[GateCheck]:
        left.pop(name)
        waiting.add(name)
        check = make(name)
        for needed in check.needs:
            if needed in waiting or needed in beside:
                raise UntrustedError(f"the check {name!r} cannot wait for the check {needed!r}.")
            if needed in left:
                yield from behind_its_needs(needed)
        waiting.remove(name)
        if check.beside:
            beside.add(name)
        yield check

    while left:
        yield from behind_its_needs(next(iter(left)))


def begin(check: GateCheck, run: Run) -> Callable[[], GateResult | None]:
    """Begin a check in its turn. The returned function ends it, in any thread, and gives its result.

    The result is None for a check that is left out without a reason, and 'untrusted' for one that fails in any way.
    """
    seen = run.seen_by(check)
    try:
        why = check.left_out(seen)
        if why is not None:
            return partial(_not_run, check, why)
        check.begin(seen)
    except Exception as error:
        return partial(guarded, check.name, check.title, partial(_fail, error))
    return partial(guarded, check.name, check.title, partial(check.evaluate, seen))


def _not_run(check: GateCheck, why: LeftOut) -> GateResult | None:
    if not why.reason:
        return None
    return GateResult(Check(name=check.name, title=check.title, outcome=Outcome.NOT_RUN, detail=why.reason))


def _fail(error: Exception) -> Evaluation:
    raise error
