"""The catalog check: the catalog, the settings and the template can be read and agree."""

from __future__ import annotations

from neuroscale.catalog import load_catalog
from neuroscale.catalog.budgets import check_budgets, load_budgets
from neuroscale.catalog.settings import check_settings
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation, problem_findings
from neuroscale.gate.merged_change import touches_rendering
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.accelerators import doubles
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.form import check_form
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.layout import CATALOG
from neuroscale.repo.snapshot import MemorySnapshot

GATE = "catalog"


class CatalogCheck(GateCheck):
    """Hands on the platform to the checks that plan and render."""

    name = GATE
    title = "Catalog, settings and template"

    def left_out(self, run: Run) -> LeftOut | None:
        renders_anew = run.change is not None and touches_rendering(run.change)
        return None if run.given.services or renders_anew else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        findings, self.value = load_platform(run.after)
        return Evaluation(tuple(findings), 3, 3, "parts", 1, _tripwire())


def load_platform(files: PlatformSources) -> tuple[list[Finding], PlanningInputs | None]:
    """The faults of the catalog, the settings and the template, and their values if all can be read."""
    findings: list[Finding] = []
    loaded = []
    for load in (files.catalog, files.settings, lambda: load_template(files.snapshot)):
        try:
            loaded.append(load())
        except InputError as error:
            findings.extend(problem_findings(GATE, "invalid", error))
    try:
        budgets = load_budgets(files.snapshot)
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


def _tripwire() -> int:
    """Whether a catalog with an unknown field is refused: 1, or an UntrustedError."""
    try:
        load_catalog(MemorySnapshot({f"{CATALOG}/teams/tripwire.yaml": b"name: tripwire\ntripwire: true\n"}))
    except InputError as error:
        # So small a catalog has other faults too: only the unknown field shows that entries are checked.
        if any(problem.field == "tripwire" for problem in error.problems):
            return 1
    raise UntrustedError("the catalog check did not refuse its tripwire, an entry with an unknown field.")
