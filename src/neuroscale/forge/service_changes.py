"""Makes the changes of a service that commands ask for: what its folder becomes, and how its pull request tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neuroscale.core.errors import InputError
from neuroscale.forge import description
from neuroscale.forge.request_flow import Change, Draft, Main, Service, Version
from neuroscale.planning.planner import plan, request_digest
from neuroscale.planning.rejected_choices import not_chosen
from neuroscale.planning.rollout import accelerator_quota
from neuroscale.rendering.service_folder import SERVICE_FILE, pull_request_of, same_pods
from neuroscale.repo.layout import REQUEST_FILE
from neuroscale.request.service_request import Request, check_request

Answers = Callable[[Main], Request]
"""Makes the request from a form's answers; it may ask the user for choices that main leaves open. It is called once,
and raises InputError if the answers cannot be used; the stage itself refuses names that main lacks."""


class Requested(Change):
    """A service as a form's answers want it. The overrides that it has stay."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._request: Request | None = None

    def subject(self, main: Main) -> Request:
        if self._request is None:
            self._request = self._answers(main)
        return self._request

    def draft(self, service: Service) -> Draft:
        # Nobody has reviewed an open pull request's overrides yet, but somebody wrote them: its reviewer decides.
        newest = service.newest or service.merged
        overrides = newest.request.overrides if newest else ()
        request = self.subject(service.main).model_copy(update={"overrides": overrides})
        notes = []
        if overrides:
            check_request(request, service.main.known, REQUEST_FILE)
            fields = ", ".join(override.field for override in overrides)
            notes.append(f"Kept from the service's {REQUEST_FILE}: the override of {fields}.")
        return planned(service, request, notes=notes)


def planned(
    service: Service,
    request: Request,
    *,
    anew: bool = False,
    title: str = "",
    said: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Draft:
    """The service with these answers. Its plan stays if the answers are those of main, unless it is made `anew`.

    `title`: of the pull request ("": the template's). `said`: sentences that the pull request and the commit begin
    with. Raises InputError for a template that does not suit, and RefusedPlanError.
    """
    inputs, base = service.main.inputs, service.main.base
    catalog, settings, template = inputs.catalog, inputs.settings, inputs.template
    before = service.merged.plan if service.merged else None
    made = plan(request, catalog, settings, template.version)
    told = list(notes)
    if not anew and before is not None and before.lock.request_digest == request_digest(request):
        if before.model_copy(update={"lock": made.lock}) != made:
            told.append(
                "The service keeps its plan, since its answers are the same. The catalog, the settings or the planner "
                f"changed since: `neuroscale replan {service.path.folder}` renews it."
            )
        made = before
    pull = pull_request_of(request, made, template)
    if pull.target_branch not in (None, base.branch) or service.branch == base.branch:
        raise InputError.at(
            template.where,
            "targetBranchName",
            f"is {pull.target_branch!a}, and the forge's main branch is {base.branch!a}",
            "Make the two the same, and give the request's branch another name.",
        )
    shown = description.title(title or pull.title)
    file = f"{service.path.folder}/{SERVICE_FILE}"
    subject = description.Subject(
        request,
        made,
        before,
        not_chosen(request, catalog, settings, made),
        is_new=service.merged is None,
        asked_before=service.merged.request if service.merged else None,
        quota=accelerator_quota(made, catalog),
        same_pods=same_pods(service.main.snapshot.read(file), pull.files[file].encode()),
    )
    text = description.describe(subject, shown, service.branch, said)
    message = "\n\n".join([title or pull.commit_message, *said])
    return Draft(pull.files, message, text, Version(request, made), tuple(told))
