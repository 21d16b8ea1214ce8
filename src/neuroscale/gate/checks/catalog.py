"""The catalog check: the catalog, the settings and the template can be read and agree."""

from __future__ import annotations

from datetime import date

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.budgets import check_budgets, load_budgets
from neuroscale.catalog.loading import MEASUREMENTS
from neuroscale.catalog.new_entry import entry_path
from neuroscale.catalog.settings import check_settings
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.yaml_io import decode, read_mapping
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation, file_finding, problem_findings
from neuroscale.gate.merged_change import touches_rendering
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.accelerators import doubles
from neuroscale.planning.measured import faults_of, remarks_on
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.form import check_form
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.layout import CATALOG
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot

GATE = "catalog"
_DOUBTED = "Compare it with the raw report or log that it names by its digest; measure again, or remove it."


class CatalogCheck(GateCheck):
    """Hands on the platform to the checks that plan and render."""

    name = GATE
    title = "Catalog, settings and template"

    def left_out(self, run: Run) -> LeftOut | None:
        renders_anew = run.change is not None and touches_rendering(run.change)
        return None if run.given.services or renders_anew else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        findings, self.value = load_platform(run.after)
        if self.value is not None:
            changed = None if run.change is None else frozenset(run.change.paths)
            findings += measurement_findings(self.value.catalog, run.after.snapshot, changed, run.today)
        return Evaluation(tuple(findings), 3, 3, "parts", 1, _tripwire())


def load_platform(files: PlatformSources) -> tuple[list[Finding], PlanningInputs | None]:
    """The faults of the catalog, the settings and the template, and their values if all can be read."""
    findings: list[Finding] = []
    loaded = []
    for load in (files.catalog, files.settings, lambda: files.read(load_template)):
        try:
            loaded.append(load())
        except InputError as error:
            findings.extend(problem_findings(GATE, "invalid", error))
    try:
        budgets = files.read(load_budgets)
    except InputError as error:
        findings.extend(problem_findings(GATE, "invalid", error))
    if findings:
        return findings, None
    platform = PlanningInputs(*loaded)  # type: ignore[arg-type]
    problems = [
        *check_form(platform.template, platform.catalog, platform.settings),
        *check_budgets(budgets, platform.catalog),
        *doubles(platform.catalog),
    ]
    try:
        check_settings(platform.settings, platform.catalog)
    except InputError as error:
        problems = [*error.problems, *problems]
    return problem_findings(GATE, "disagreement", problems), platform


def measurement_findings(
    catalog: Catalog, snapshot: Snapshot, changed: frozenset[str] | None, today: date
) -> list[Finding]:
    """What is wrong with the measurements in the `changed` files (None: in all): which ones cannot be, and as notices
    which ones are doubted, and which ones nothing can be compared with."""
    findings = []
    for model in catalog.models.values():
        path = entry_path(model.name)
        if not model.measurements or (changed is not None and path not in changed):
            continue
        document, known = read_mapping(decode(snapshot.read(path) or b"", path), path), catalog.accelerators
        doubts = [("doubted", place, told, Severity.NOTICE) for place, told in remarks_on(model, known)]
        faults = [
            ("impossible", place, f"{MEASUREMENTS}[{place}].{field}: {told}", Severity.ERROR)
            for place, field, told in faults_of(model, known, today)
        ]
        for what, place, told, severity in (*faults, *doubts):
            line = document.line(MEASUREMENTS, place)
            findings.append(file_finding(GATE, f"{what}-measurement", path, told, _DOUBTED, line, severity=severity))
    return findings


def _tripwire() -> int:
    """Whether a catalog with an unknown field is refused: 1, or an UntrustedError."""
    try:
        load_catalog(MemorySnapshot({f"{CATALOG}/teams/tripwire.yaml": b"name: tripwire\ntripwire: true\n"}))
    except InputError as error:
        # So small a catalog has other faults too: only the unknown field shows that entries are checked.
        if any(problem.field == "tripwire" for problem in error.problems):
            return 1
    raise UntrustedError("the catalog check did not refuse its tripwire, an entry with an unknown field.")
