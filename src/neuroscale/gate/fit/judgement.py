"""Judges one container that runs vLLM: its command, its model, its accelerator and its memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from neuroscale.core.yaml_io import Path
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.fit.known_models import Knowledge, KnownModel, KnownPlace, UnknownError
from neuroscale.gate.fit.reachability import (
    REACHED_BY,
    check_command_ends,
    check_end,
    check_keyless,
    check_least_start,
    check_reach,
    check_start,
    untold_variables,
    waits_for,
)
from neuroscale.gate.fit.vllm_containers import (
    ENV,
    PORT,
    PORT_SERVICE,
    ContainerFault,
    Unread,
    VllmContainer,
    check_device_names,
    check_devices,
    check_values,
    hidden_values,
)
from neuroscale.gate.fit.volumes import (
    READ,
    beyond_limit,
    check_buckets,
    check_host_memory,
    check_room,
    check_shared_memory,
)
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.pod_resources import memory_limit
from neuroscale.manifests.serving_runtimes import SERVING
from neuroscale.planning.fit import Fit
from neuroscale.planning.fit.messages import more_room
from neuroscale.vllm.accelerator_rules import Fault, pod_ranks, reaches_all_pods
from neuroscale.vllm.arguments import ProblemKind, parse_arguments
from neuroscale.vllm.command import ServeCommand
from neuroscale.vllm.command_rules import BY_ABSENCE, check_command
from neuroscale.vllm.engine_arguments import CACHE_SPACE, EngineArguments, hidden_cache_space, with_variables
from neuroscale.vllm.images import judged_as
from neuroscale.vllm.model_rules import length_is_forced

GATE = "fit"
NOT_JUDGED = "not-judged"
"""The rule of notices about facts that the files or the catalog do not show."""

RULES: dict[ProblemKind, str] = {
    "unknown": "unknown-argument",
    "removed": "removed-argument",
    "ambiguous": "ambiguous-argument",
    "incomplete": "incomplete-argument",
    "value": "argument-value",
    "stray": "stray-word",
    "ignored": "ignored-argument",
    "config": NOT_JUDGED,
    "ends": "ends-at-once",
}
_UNREAD_FIX = "Write the command and its arguments into the manifest as plain text."
_UNREAD_SCRIPT = ("Write the command and its arguments without a shell.", "readable-model-arguments")
_REVIEW = "Review the entry of the catalog first."
_UNKNOWN_FIX = "Add what is missing to platform/catalog/, or try the command on that accelerator before you trust it."


@dataclass(frozen=True)
class Judged:
    """The findings for one container."""

    findings: tuple[Finding, ...]
    whole: bool  # command, model and accelerator were all judged
    fitted: bool  # it was judged whether its model fits, or there is none to run
    model: KnownModel | None = None


def judge_container(server: VllmContainer | Unread, knowledge: Knowledge | None) -> Judged:
    """Judge one container: its faults, and what cannot be judged."""
    if isinstance(server, Unread):
        message, where = f"cannot be judged: {server.reason}", (server.manifest, server.at)
        notice = manifest_finding(
            GATE, NOT_JUDGED, *where, message, _UNREAD_FIX, subject=server.subject, severity=Severity.NOTICE
        )
        return Judged((notice,), whole=False, fitted=False)
    return _Judgement(server, knowledge).judged()


class _Judgement:
    """One container on its way through command, model, accelerator and memory."""

    def __init__(self, server: VllmContainer, knowledge: Knowledge | None) -> None:
        self.server = server
        self.knowledge = knowledge
        self.environment = server.manifest.service.environment if server.manifest.service else ""
        # The catalog knows the versions of its own images, whose tags need not name them.
        version = server.command.version or (knowledge.version(server.image) if knowledge else "")
        self.command: ServeCommand = replace(server.command, version=version)
        self.parsed = parse_arguments([word.text for word in self.command.words], version, program=self.command.program)
        self.findings: list[Finding] = []
        self.whole = True
        self.fitted = server.description
        self.model: KnownModel | None = None
        self.place: KnownPlace | None = None

    def judged(self) -> Judged:
        """Every finding, in the order in which a reader would look."""
        try:
            self._command()
            if not self.server.description:
                self._service()
                self._reach()
        except ValueError as error:
            fix = "Correct the field: the schema check says where it is wrong."
            self._not_judged((), f"cannot be judged in full: {error}", fix)
        return Judged(tuple(dict.fromkeys(self.findings)), self.whole, self.fitted, self.model)

    def _command(self) -> None:
        parsed = self.parsed
        if not parsed.exact:
            self._not_judged((("image",)), *judged_as(self.server.image, self.command.version, parsed.version))
        mending = _UNREAD_SCRIPT if self.command.unread_script else (_UNREAD_FIX,)
        for place, reason in self.command.unreadable:
            self._not_judged(place, f"cannot be judged in full: {reason}", *mending)
        for path, reason in self.server.hidden:
            self._not_judged(path, f"cannot be judged in full: {reason}", _UNREAD_FIX)
        for problem in parsed.problems:
            place = self._word(problem.place)
            about = f"{problem.word}: " if problem.word else ""
            if problem.kind == "config":
                self._not_judged(place, f"cannot be judged: {about}{problem.message}", problem.fix)
            elif self._hidden(problem.place):
                continue  # the notice above says that its text is not known
            else:
                # An unknown version may take arguments that the known versions refuse.
                self._say(RULES[problem.kind], place, f"{about}{problem.message}", problem.fix, notice=not parsed.exact)

    def _reach(self) -> None:
        """Whether the server can be reached, stays up, and asks for its key."""
        command, spec = self.command, self.server.spec
        untold = bool(command.unreadable or self.server.hidden)
        unread = untold or any(problem.kind == "config" for problem in self.parsed.problems)
        known = frozenset(
            dest
            for dest in REACHED_BY
            if dest in self.parsed.snapshot.arguments
            and not self._hidden(self.parsed.places.get(dest))
            and (dest in self.parsed.places or not unread)
        )
        container = self.server.container
        by_kserve = self.server.manifest.kind == "InferenceService" and container.get("name") in (None, SERVING)
        for dest, fault in check_reach(container, self.parsed, known, by_kserve=by_kserve):
            self._of_container([replace(fault, place=self._place_of(dest) if dest else fault.place)])
        self._of_container([*check_host_memory(spec, self.model, self.place), *check_command_ends(command)])
        self._of_container(
            replace(fault, refused=self.parsed.exact) for fault in check_keyless(command, whole=not untold)
        )
        for message in untold_variables(command):
            self._not_judged(ENV, message, "Write the variable's value into the manifest.")
        if "load_format" not in self.parsed.places or self._hidden(self.parsed.places["load_format"]):
            return
        if self.parsed.value("load_format") == "dummy":
            message = "--load-format=dummy: vLLM answers with random weights"
            self._say("random-weights", self._place_of("load_format"), message, "Remove it.", notice=False)

    def _hidden(self, place: int | None) -> bool:
        """Whether the value of the argument at a word's place is unknown."""
        if place is None:
            return False
        word, *behind = self.command.words[place : place + 2]
        return bool(word.unknown) or ("=" not in word.text and any(word.unknown for word in behind))

    def _service(self) -> None:
        unread = bool(self.command.unreadable) or any(problem.kind == "config" for problem in self.parsed.problems)
        model = self._model() if not unread or self.parsed.arguments.model else None
        place = self.place = self._place()
        faults = check_command(
            self.parsed,
            model.facts if model else None,
            model.entry if model else None,
            place.place if place else None,
            self.command.environment,
        )
        faults = tuple(
            fault
            for fault in faults
            if not (unread and fault.rule in BY_ABSENCE) and not self._hidden(self.parsed.places.get(fault.dest))
        )
        # An older release may have read differently what the known one refuses.
        older = not self.parsed.exact and bool(self.parsed.problems)
        for fault in faults:
            at = self._place_of(fault.dest) if fault.dest else ()
            self._say(fault.rule, at, fault.message, fault.fix, notice=older or not fault.refused)
        self._variables(place)
        self._of_container(check_buckets(self.server.spec))
        if not unread:
            self._room(model, place)
        if model is not None and place is not None:
            result = self._memory(self._stretched(model), self._shared(place), faults, unread or older)
            self._times(model, place, result)
        else:
            self._of_container(check_least_start(self.server.container))

    def _room(self, model: KnownModel | None, place: KnownPlace | None) -> None:
        """Whether the volumes that vLLM writes to are large enough."""
        server = self.server
        several = server.pods > 1 or server.workers
        if server.hidden or several or any(self._hidden(self.parsed.places.get(dest)) for dest in READ):
            return
        named = self.parsed.arguments.model or ""
        fetched = model if model and model.entry.weights.kind == "hub" and not named.startswith("/") else None
        compiled = place is not None and place.device.family in ("cuda", "rocm", "cpu")
        faults = [*check_room(server.spec, self.parsed, self.command, fetched, compiled=compiled)]
        if (place is None or compiled) and not server.shared_memory:
            faults += check_shared_memory(server.spec, self.parsed, self.command, processes=compiled)
        self._of_container(replace(fault, refused=fault.refused and self.parsed.exact) for fault in faults)

    def _model(self) -> KnownModel | None:
        named = self.parsed.arguments.model
        place = self.parsed.places.get("model")
        if not named or (place is not None and self.command.words[place].unknown):
            return None  # another notice says why it is unknown
        try:
            known = self._known.with_draft(self._known.model(named, self.server.source), self.parsed.arguments)
        except UnknownError as error:
            self._not_judged(self._place_of("model"), f"whether it fits cannot be judged: {error}", _UNKNOWN_FIX)
            return None
        self.model = known
        if known.added:
            message = f"this change itself brings the facts by which {known.entry.name} is judged"
            self._say("new-model", self._place_of("model"), message, _REVIEW, notice=True)
        return known

    def _place(self) -> KnownPlace | None:
        try:
            known = self._known.place(self.server, self.environment)
        except UnknownError as error:
            message = f"whether it fits cannot be judged: {error}"
            self._not_judged(("resources",), message, _UNKNOWN_FIX)
            return None
        if known.added:
            message = f"this change itself brings the facts by which {known.place.accelerator.name} is judged"
            self._say("new-accelerator", ("resources",), message, _REVIEW, notice=True)
        accelerator, build = known.place.accelerator, self._known.build(self.server)
        if build and build != accelerator.family and not self.server.for_cpu:
            message = f"the image is vLLM's build for {build}, which does not run on {accelerator.title}"
            self._say("image-build", ("image",), message, f"Use vLLM's build for {accelerator.family}.", notice=False)
        return known

    @property
    def _known(self) -> Knowledge:
        if self.knowledge is None:
            raise UnknownError("the catalog cannot be read")
        return self.knowledge

    def _memory(self, model: KnownModel, place: KnownPlace, faults: Sequence[Fault], unread: bool) -> Fit:
        arguments = self._arguments(place)
        result = model.fit_on(place.device, arguments, self.parsed.asked or self.parsed.version)
        self.fitted = not result.unjudged
        missing = result.uncounted
        size = self._place_of("max_model_len", "gpu_memory_utilization", "model")
        if result.unjudged:
            if not any(part.of_cache for part in missing):  # which a notice of its own says
                message = f"whether it fits cannot be judged: {result.unjudged}"
                self._not_judged(("image",), message, "Pin a later release.")
        elif result.verdict == "refused":
            if result.memory_gib.free < 0 or not any(fault.refused for fault in faults):
                decides = result.reasons[: max(1, len(result.against) + (result.memory_gib.free < 0))]
                message = " ".join([*decides, *(reason for reason in result.reasons if reason.startswith("Close"))])
                nearest = self._known.nearest(result, model, place, arguments, self.environment)
                self._say("does-not-fit", size, message, nearest, notice=unread)
        elif result.verdict == "tight":
            message = next((text for text in result.reasons if text.startswith("Tight")), result.reasons[0])
            message = f"{model.entry.name} on {place.device.name}. {message}"
            if not any(part.clause in message for part in missing):  # which a notice of its own says
                self._say("tight", size, message, more_room(result), notice=True)
        if arguments.cpu_offload_gib and result.seconds_per_step != 0.0 and result.verdict != "refused":
            message = next(text for text in result.reasons if text.startswith("Part of the weights lies in"))
            fix = "Where people wait for answers, remove it and choose an accelerator that holds the weights."
            self._say("offloaded-weights", self._place_of("cpu_offload_gb"), message, fix, notice=True)
        for part in missing:
            message = f"whether it fits cannot be judged in full: {part.clause}"
            fix = "Leave room for it, such as by a lower --gpu-memory-utilization, and measure a start."
            if part.verb == "judge":
                fix = "Leave the choice to vLLM, or measure a start."
            self._not_judged(ENV if part.dest.isupper() else self._place_of(part.dest), message, fix)
        if place.device.family != "cpu" and (over := beyond_limit(self.parsed, model.facts, self.server.spec)):
            dest, message = over
            self._not_judged(self._place_of(dest), message, "Raise the container's memory, or offload less.")
        return result

    def _times(self, model: KnownModel, place: KnownPlace, result: Fit) -> None:
        server, known = self.server, self._known
        runtime = known.runtime(server, place.device.family)
        sequences = result.resolved.max_num_seqs
        starts = [
            model.startup_in(environment, runtime, place.device, self.parsed, sequences)
            for environment in known.environments(self.environment)
            if runtime is not None
        ]
        if self.environment and starts:
            faults = list(check_start(server.container, starts[0], server.source))
        else:
            # Environments load models at different speeds: probes that wait for the slowest known one wait for all.
            faults = list(check_least_start(server.container))
            if not faults and not waits_for(server.container, starts, server.source):
                why = "how fast this environment loads models is not known"
                fix = "Add the environment to platform/settings.yaml, and a runtime of its image to the catalog."
                self._not_judged((), f"whether its probes wait for its start cannot be judged: {why}", fix)
        if self.environment:
            faults += check_end(self.parsed, server.spec, self._place_of("shutdown_timeout"))
        self._of_container(faults)

    def _arguments(self, place: KnownPlace) -> EngineArguments:
        return with_variables(self.parsed.arguments.in_range(), self.command.environment, place.device.family)

    def _variables(self, place: KnownPlace | None) -> None:
        environment, service = self.command.environment, self.server.port_service
        faults = list(check_values(environment))
        of_version: list[ContainerFault] = []
        if place is not None and not self.server.workers:  # pods with workers differ
            pods = place.place.pods if reaches_all_pods(self.parsed) else 1
            used = math.ceil(pod_ranks(self.parsed) / pods)
            faults += check_devices(environment, place.device.family, used, place.place.count)
            versions = (self.command.version, self.parsed.version)
            of_version += check_device_names(environment, place.device.family, used, *versions)
            for message in hidden_values(self.command.hidden, place.device.family):
                self._not_judged(ENV, message, "Write the variable's value into the manifest.")
        if service is not None and PORT not in {*environment, *self.command.hidden}:
            why = f"the Service {PORT_SERVICE} of its namespace makes Kubernetes set {PORT} to an address: vLLM ends"
            fix = "Give the Service another name, or the pod enableServiceLinks: false."
            faults.append(ContainerFault("variable-value", ENV, why, fix))
        self._of_container([*(replace(fault, refused=self.parsed.exact) for fault in faults), *of_version])

    def _stretched(self, model: KnownModel) -> KnownModel:
        """The model with the context length that the command forces, though the model's own is shorter."""
        asked = self.parsed.arguments.max_model_len
        if asked is None or not length_is_forced(self.parsed, self.command.environment):
            return model
        longest = max(asked, model.facts.max_position_embeddings)
        return replace(model, facts=replace(model.facts, max_position_embeddings=longest))

    def _shared(self, place: KnownPlace) -> KnownPlace:
        """The place with each rank's part of a CPU's memory; a notice says if the size of the caches is unknown."""
        if place.device.family != "cpu":
            return place
        copies = pod_ranks(self.parsed)
        untold = hidden_cache_space(self.command.environment, self.command.hidden)
        if not untold and self._arguments(place).kv_cache_memory_bytes is None:
            if memory_limit(self.server.spec) is None:
                untold = (
                    "nothing limits the container's memory, and vLLM sizes the cache by the memory of the whole node"
                )
            elif copies > 1:
                untold = f"each of {copies} ranks sizes its cache by the memory of the whole pod"
        if untold:
            message = f"whether it fits cannot be judged in full: {untold}"
            self._not_judged(("resources",), message, f"Set the variable {CACHE_SPACE} to the GiB of a rank's cache.")
        memory = place.device.memory_gib
        if copies == 1 or memory is None:
            return place
        title = f"{place.device.title}, which {copies} ranks share"
        return replace(place, device=replace(place.device, memory_gib=memory / copies, title=title))

    def _of_container(self, faults: Iterable[ContainerFault]) -> None:
        for fault in faults:
            self._say(fault.rule, fault.place, fault.message, fault.fix, notice=not fault.refused)

    def _word(self, number: int | None) -> Path:
        return () if number is None else self.command.words[number].place

    def _place_of(self, *dests: str) -> Path:
        """The place of the first of these arguments that the command names."""
        for dest in dests:
            if dest in self.parsed.places:
                return self._word(self.parsed.places[dest])
        return ()

    def _not_judged(self, place: Path, message: str, fix: str, rule: str = NOT_JUDGED) -> None:
        self.whole = False
        self._say(rule, place, message, fix, notice=rule == NOT_JUDGED)

    def _say(self, rule: str, place: Path, message: str, fix: str, *, notice: bool) -> None:
        if rule == NOT_JUDGED and place and place[0] in ("spec", "metadata"):
            manifest, path = self.server.manifest, place
        else:
            manifest, path = self.server.origin(tuple(place))
        severity = Severity.NOTICE if notice else Severity.ERROR
        self.findings.append(
            manifest_finding(GATE, rule, manifest, path, message, fix, subject=self.server.subject, severity=severity)
        )
