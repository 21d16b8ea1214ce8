"""Makes the changes of a service that commands ask for: what its folder becomes, and how its pull request tells it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuroscale.core.errors import ASKED, InputError, action_of, field_of
from neuroscale.core.printable import markdown_code as code
from neuroscale.core.validation import suggest
from neuroscale.forge import description
from neuroscale.forge.description import Description
from neuroscale.forge.request_flow import Change, Draft, Main, Service, Version, version_at
from neuroscale.gate.verdict import ServiceReport
from neuroscale.planning.model_revision import keeping_revision, with_revision
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import request_digest
from neuroscale.planning.rejected_choices import not_chosen
from neuroscale.planning.rollout import accelerator_quota, merge_effect
from neuroscale.rendering.scaffolder.plan_step import FORM
from neuroscale.rendering.service_folder import pull_request_of, same_pods
from neuroscale.repo.git import Git
from neuroscale.repo.layout import REQUEST_FILE, SERVICE_FILE, ServicePath
from neuroscale.repo.services import find_service, removed_services, services_of
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, read_folder
from neuroscale.report import change_view
from neuroscale.request.field_changes import IDENTITY, OVERRIDES, FieldChanges, changed
from neuroscale.request.service_request import Request, changed_answers, check_request

Answers = Callable[[Main], Request]
"""Makes the request from a form's answers; it may ask the user for choices that main leaves open. It is called once,
and raises InputError if the answers cannot be used; the stage itself refuses names that main lacks."""
Unfinished = Callable[[ServicePath], bool | None]
"""Says whether pods of an earlier version of a service serve, since the newest does not run yet (None: not known)."""


class Requested(Change):
    """A service as a form's answers want it. The overrides that it has stay."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._request: Request | None = None

    def subject(self, main: Main) -> Request:
        if self._request is None:
            self._request = self._answers(main)
        check_request(self._request, main.known, FORM)
        return self._request

    def draft(self, service: Service) -> Draft:
        # Nobody has reviewed an open pull request's overrides yet, but somebody wrote them: its reviewer decides.
        newest = service.newest or service.merged
        overrides = newest.request.overrides if newest else ()
        request = self.subject(service.main).model_copy(update={"overrides": overrides})
        request = keeping_revision(request, newest.request if newest else None)
        notes = []
        if overrides:
            check_request(request, service.main.known, REQUEST_FILE)
            kept = ", ".join(override.field for override in overrides)
            notes.append(f"Kept from the service's {REQUEST_FILE}: the override of {kept}.")
        there = service.merged.request if service.merged else request
        title = description.title_of_change(service.path.name, there, request)
        return planned(service, request, title=title, notes=notes)


@dataclass(frozen=True)
class Named:
    """A service as a command line names it, in the clone at `root`."""

    text: str
    root: Path

    def on(self, main: Main, removed: Collection[ServicePath] | None = None) -> ServicePath:
        """The service of main, or one of those `removed` from it. Raises InputError if there is none."""
        services = services_of(main.snapshot)
        where = main.base.where
        more = f"While its first pull request is open, {action_of('request')} changes that."
        past = "" if removed is None else ", nor was it one"
        try:
            return find_service(self.text, (*services, *(removed or ())), self.root, where + past, more)
        except InputError as error:
            try:
                find_service(self.text, services_of(FolderSnapshot(self.root)), self.root)
            except InputError:
                raise error from None
            told = f"{self.text!r} is in this clone, and not on {where}"
            first = f"Have its first pull request merged ({action_of('request')} changes that)"
            raise InputError.at(ASKED, "service", told, f"{first}, or bring the clone up to date.") from None

    def version(self, main: Main) -> Version:
        """The service on main. Raises InputError if there is none, or if its folder belongs to other answers."""
        return own_version(main.git, main.base.commit, self.on(main), main.base.branch)


class Updated(Change):
    """A service of main with some fields changed, on top of what its open pull request changes."""

    def __init__(self, named: Named, changes: FieldChanges, unfinished: Unfinished | None = None) -> None:
        self._named = named
        self._changes = changes
        self._unfinished = unfinished

    def subject(self, main: Main) -> Request:
        request = self._named.version(main).request
        _refuse_another_service(request, self._changes)
        return request

    def draft(self, service: Service) -> Draft:
        before, newest = service.merged, _to_build_on(service)
        assert before is not None, "subject finds it on main"
        assert newest is not None
        request = changed(newest.request, self._changes, service.main.known)
        if request == before.request:
            return _as_it_is(service)
        said = [f"Why: {self._changes.reason}"] if self._changes.reason else []
        notes = _notes_of_catalog(service, request)
        title = description.title_of_change(service.path.name, before.request, request)
        return planned(service, request, title=title, said=said, notes=notes, unfinished=self._unfinished)


class Retired(Change):
    """A service that is removed. `said`: makes the sentences that its pull request begins with."""

    def __init__(self, named: Named, said: Callable[[Main, ServicePath, Version], Sequence[str]]) -> None:
        self._named = named
        self._said = said

    def subject(self, main: Main) -> Request:
        return _present_or_past(self._named, main)

    def draft(self, service: Service) -> Draft:
        name = service.path.name
        title = description.title(f"Retire {name}")
        said = self._said(service.main, service.path, service.merged) if service.merged else ()
        asks_for = f"the removal of the service {code(name, 120)}"
        text = Description(title, asks_for, (description.listed(said),), service.branch)
        notes = []
        if service.there is not None and service.newest not in (None, service.merged):
            notes.append(f"{service.there.pull.url} asked for a change of it, which is dropped: it removes it now.")
        return Draft({}, "\n\n".join([title, *said]), text, notes=tuple(notes))


class Restored(Change):
    """A service that main has no more, as it was when it was removed; `anew`: with its answers, planned by today's
    catalog."""

    def __init__(self, named: Named, *, anew: bool, reason: str) -> None:
        self._named = named
        self._anew = anew
        self._reason = reason

    def subject(self, main: Main) -> Request:
        return _present_or_past(self._named, main, past_first=True)

    def draft(self, service: Service) -> Draft:
        if service.merged is not None:
            return _as_it_is(service)
        git, path, base = service.main.git, service.path, service.main.base
        removal = removed_services(git, base.commit)[path]
        version = own_version(git, f"{removal}^", path, removal[:12])
        when = git.text("show", "--no-patch", "--format=%cs", removal)
        how = "planned anew with today's catalog" if self._anew else "to the byte"
        said = [f"{path.folder} as it was before {removal[:12]} removed it on {when}, {how}."]
        said += [f"Why: {self._reason}"] if self._reason else []
        title = f"Restore {path.name}"
        if self._anew:
            check_request(version.request, service.main.known, path.folder)
            return planned(service, version.request, anew=True, title=title, said=said)
        files = read_folder(GitSnapshot(git, f"{removal}^"), path.folder)
        if version.plan is None:
            told = "has no plan that can be read in its history"
            raise InputError.at(path.folder, "", told, f"Let it be planned by today's catalog: {field_of('anew')}.")
        return drafted(service, version.request, version.plan, files, title, "\n\n".join([title, *said]), said)


class Promoted(Change):
    """The answers of a service for another environment. `evidence`: makes the sentences that say why it may be: that it
    is live and tested where it is."""

    def __init__(
        self,
        named: Named,
        environment: str,
        changes: FieldChanges,
        evidence: Callable[[Main, ServicePath], Sequence[str]],
        unfinished: Unfinished | None = None,
    ) -> None:
        self._named = named
        self._environment = environment
        self._changes = changes
        self._evidence = evidence
        self._unfinished = unfinished

    def subject(self, main: Main) -> Request:
        environments = main.inputs.settings.environments
        if self._environment not in environments:
            told = f"{self._environment!r} is not an environment of the settings"
            raise InputError.at(ASKED, "to", told, suggest(self._environment, environments))
        source = self._named.version(main)
        _refuse_another_service(source.request, self._changes)
        if source.request.environment == self._environment:
            told = f"{source.request.service} is in {self._environment} already"
            raise InputError.at(ASKED, "to", told, "Name another environment.")
        request = source.request.model_copy(update={"environment": self._environment, "overrides": ()})
        return changed(request, self._changes, main.known)

    def draft(self, service: Service) -> Draft:
        main = service.main
        source, request = self._named.version(main), self.subject(main)
        if (there := _to_build_on(service)) is not None:
            if there.request.team != request.team:
                told = f"belongs to {there.request.team}, and the service that is promoted to {request.team}"
                raise InputError.at(
                    service.path.folder, "team", told, "Promote it under another name: request it there."
                )
            own = {one.field for one in request.overrides}
            kept = tuple(one for one in there.request.overrides if one.field not in own)
            request = request.model_copy(update={"overrides": (*kept, *request.overrides)})
            request = keeping_revision(request, there.request)
        if service.merged is not None and service.merged.request == request:
            return _as_it_is(service)
        path = ServicePath(source.request.environment, source.request.service)
        overridden = {one.field for one in request.overrides}
        notes = [
            f"Not carried, since it was reviewed for {path.environment} alone: the override of {one.field} with "
            f"{one.value}. To have it here too: --set {OVERRIDES}{one.field}={one.value} --reason TEXT --until DATE"
            for one in source.request.overrides
            if one.field not in overridden
        ]
        name = path.name
        title = "" if service.merged is None else f"Change {request.environment}/{request.service}: as {name}"
        made = main.inputs.plan(request)
        said = [
            f"Promoted from {name}.",
            *self._evidence(main, path),
            *change_view.sentences(compared(source, request, made), path.environment, request.environment),
        ]
        draft = planned(service, request, made=made, title=title, said=said, notes=notes, unfinished=self._unfinished)
        return replace(draft, source=source)


def compared(source: Version, request: Request, plan: Plan) -> ServiceReport:
    """A service beside the one that it comes from, for a table of their differences."""
    return ServiceReport(
        environment=request.environment,
        name=request.service,
        change="changed",
        plan=plan,
        plan_before=source.plan,
        answers=changed_answers(source.request, request),
    )


def _as_it_is(service: Service) -> Draft:
    """What main has of the service: nothing is to be done."""
    files = read_folder(service.main.snapshot, service.path.folder)
    return Draft(files, "", Description("", "", ()))


def _to_build_on(service: Service) -> Version | None:
    """The newest version of a service; None for a new one. Raises InputError if its open pull request removes it, or
    does not know main's own changes of it, which that version would undo."""
    if service.moved and service.there is not None:
        told = f"is open for {service.path.folder}, which {service.main.base.branch} changed since it began"
        raise InputError.at(
            service.there.pull.url, "", told, "Bring its branch up to date, merge it, or close it first."
        )
    if service.newest is None and service.merged is not None and service.there is not None:
        told, fix = f"removes {service.path.folder}", "Close it first, or have it merged and restore the service."
        raise InputError.at(service.there.pull.url, "", told, fix)
    return service.newest


def own_version(git: Git, commit: str, path: ServicePath, where: str) -> Version:
    """A service at a commit, which messages call `where`. Raises InputError without one of that name in its folder."""
    version = version_at(git, commit, path, where)
    if version is None or (version.request.environment, version.request.service) != (path.environment, path.service):
        told = "is not the request of the service whose folder it lies in"
        fix = "Correct its service and environment, or move the folder."
        raise InputError.at(f"{where}:{path.folder}/{REQUEST_FILE}", "", told, fix)
    return version


def _present_or_past(named: Named, main: Main, *, past_first: bool = False) -> Request:
    """The answers of a service on main, or of one as it was before it was removed from there.

    `past_first`: a name alone is that of a removed service, also where main has one of that name. Otherwise it is then
    not guessed which of the two is meant.
    """
    removed = removed_services(main.git, main.base.commit)
    try:
        path = find_service(named.text, removed if past_first else (), named.root)
    except InputError:
        path = named.on(main, removed)
    commit = f"{removed[path]}^" if path in removed else main.base.commit
    return own_version(main.git, commit, path, main.base.branch).request


def _refuse_another_service(request: Request, changes: FieldChanges) -> None:
    for name in IDENTITY:
        if name in changes.values and changes.values[name] != getattr(request, name):
            service = f"{request.environment}/{request.service}"
            step = "Two steps: ask for it there (neuroscale request --interactive"
            if name == "team":
                # The folder does not tell the team: with this name it would be this very service.
                step = "Two steps: ask for one of another name there (neuroscale request --interactive"
            elif name == "environment":
                step += f", or neuroscale promote {service} --to {changes.values[name]}"
            told = f"is {getattr(request, name)!r}: with another {name} it is another service, and not a change of it"
            fix = f"{step}); when it answers and its callers have moved, neuroscale retire {service}."
            raise InputError.at("the command line", name, told, fix)


def _notes_of_catalog(service: Service, request: Request) -> list[str]:
    """Whether the plan differs also by what moved in the catalog since the service was planned."""
    before = service.merged.plan if service.merged else None
    if service.merged is None or before is None or request == service.merged.request:
        return []
    again = service.main.inputs.plan(service.merged.request)
    if before.model_copy(update={"lock": again.lock}) == again:
        return []
    return [
        "The catalog, the settings or the planner changed since it was planned: a part of the differences is theirs."
    ]


def planned(
    service: Service,
    request: Request,
    *,
    anew: bool = False,
    made: Plan | None = None,
    title: str = "",
    said: Sequence[str] = (),
    notes: Sequence[str] = (),
    unfinished: Unfinished | None = None,
) -> Draft:
    """The service with these answers. Its plan stays if the answers are those of main, unless it is made `anew`.

    `made`: the plan for these answers by main, where the caller has it already. `title`: of the pull request ("": the
    template's). `said`: sentences that the pull request and the commit begin with. `unfinished`: asks the cluster,
    where the merge's effect depends on it. Raises InputError for a template that does not suit, and RefusedPlanError.
    """
    inputs, base = service.main.inputs, service.main.base
    template = inputs.template
    before = service.merged.plan if service.merged else None
    told = list(notes)
    if not anew:
        pinned, of_revision = with_revision(request, inputs.catalog, inputs.settings, service.main.newest)
        made = made if pinned == request else None
        request = pinned
        told += of_revision
    made = made or inputs.plan(request)
    if not anew and before is not None and before.lock.request_digest == request_digest(request):
        if before.model_copy(update={"lock": made.lock}) != made:
            told.append(
                "The service keeps its plan, since its answers are the same. The catalog, the settings or the planner "
                f"changed since: `neuroscale replan {service.path.folder}` renews it."
            )
        made = before
    pull = pull_request_of(request, made, template)
    if pull.target_branch not in (None, base.branch) or service.branch == base.branch:
        fault = f"is {pull.target_branch!a}, and the forge's main branch is {base.branch!a}"
        fix = "Make the two the same, and give the request's branch another name."
        raise InputError.at(template.where, "targetBranchName", fault, fix)
    message = "\n\n".join([title or pull.commit_message, *said])
    return drafted(service, request, made, pull.files, title or pull.title, message, said, told, unfinished)


def drafted(
    service: Service,
    request: Request,
    made: Plan,
    files: Mapping[str, str],
    title: str,
    message: str,
    said: Sequence[str] = (),
    notes: Sequence[str] = (),
    unfinished: Unfinished | None = None,
) -> Draft:
    """The draft of a service with these answers, this plan and these files."""
    catalog, settings = service.main.inputs.catalog, service.main.inputs.settings
    file = f"{service.path.folder}/{SERVICE_FILE}"
    before = service.merged.plan if service.merged else None
    same = same_pods(service.main.snapshot.read(file), files.get(file, "").encode())
    depends = before is not None and merge_effect(before, made, same_pods=same).if_unfinished is not None
    subject = description.Subject(
        request,
        made,
        before,
        not_chosen(request, catalog, settings, made),
        is_new=service.merged is None,
        asked_before=service.merged.request if service.merged else None,
        quota=accelerator_quota(made, catalog),
        same_pods=same,
        unfinished=unfinished(service.path) if depends and unfinished is not None else None,
    )
    text = description.describe(subject, description.title(title), service.branch, said)
    return Draft(files, message, text, subject, tuple(notes))
