"""Says what a benchmark measures: the endpoint, the model with its tokenizer, the prediction and the price."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from neuroscale.actions.chosen_cluster import Service, Where, opened_service
from neuroscale.actions.open_repository import Repository
from neuroscale.actions.planned_help import question_of
from neuroscale.actions.progress import Progress
from neuroscale.bench.cells import Cell, Room
from neuroscale.bench.guidellm import Api, Target
from neuroscale.bench.result import Subject
from neuroscale.bench.server import ServerFacts, ask
from neuroscale.catalog import Catalog
from neuroscale.catalog.model_lookup import load_model
from neuroscale.cluster.endpoint import chat, key
from neuroscale.cluster.endpoint.access import open_endpoint
from neuroscale.cluster.endpoint.connection import Endpoint, client
from neuroscale.cluster.services_in_git import planned_service
from neuroscale.core.addresses import checked_address
from neuroscale.core.errors import InputError
from neuroscale.core.tool_cache import PinError
from neuroscale.planning import speed_question
from neuroscale.planning.fit_question import Question
from neuroscale.planning.plan import Plan, PlannedLoad
from neuroscale.planning.price import pod_price
from neuroscale.planning.speed import Load, SpeedUnderLoad
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot
from neuroscale.tools.model_server import ModelServer


@dataclass(frozen=True)
class BenchOptions:
    """The options that say what is measured. `question`: what the options tell of the replica."""

    service: str
    url: str
    environment: str
    where: Where
    question: Question
    tokenizer: str
    api: Api
    hourly: Decimal | None


@dataclass(frozen=True)
class Place:
    """An open endpoint, with what it says and what this clone plans. `question`: the replica, for the fit and the
    speed (None: not known). `load`: that of its plan in this clone. `promise`: the seconds of the p95 of TTFT
    that its form asks for (None: there is none)."""

    endpoint: Endpoint
    facts: ServerFacts
    subject: Subject
    target: Target
    question: Question | None
    catalog: Catalog
    remarks: tuple[str, ...]
    load: PlannedLoad | None = None
    promise: float | None = None

    def predict(self, cell: Cell) -> SpeedUnderLoad | None:
        """The speed that is predicted for a cell; its coverage may be `unknown`. None without a replica to ask for."""
        prediction = self._answer(cell)
        return prediction.speed if prediction is not None else None

    def remarks_on(self, cell: Cell) -> tuple[str, ...]:
        """Sentences on what is not known of the endpoint, and why nothing is predicted for that cell."""
        if self.question is None:
            return self.remarks
        try:
            speed = self._answer_for(self.question, cell, None).speed
        except InputError as error:
            return (*self.remarks, f"Nothing is predicted. {error.problems[0]}")
        unknown = speed.reasons if speed.coverage == "unknown" else ()
        return (*self.remarks, *(f"Nothing is predicted: {each}" for each in unknown))

    def room(self, cell: Cell) -> Room:
        """What the server takes of a cell, by its own count, else by the fit."""
        length = cell.prompt_tokens + cell.answer_tokens
        metrics, prediction = self.facts.metrics, self._answer(cell)
        tokens = metrics.cache_tokens if metrics else None
        planned = prediction.fit.held(length) if prediction is not None and prediction.starts else 0
        if tokens is None:
            return Room(self.facts.max_model_len, planned or None, "by the plan")
        if planned and prediction is not None and prediction.fit.kv_cache_tokens:
            # With windowed layers, tokens alone do not tell how many requests fit: by the fit, at the server's size.
            return Room(
                self.facts.max_model_len,
                int(planned * tokens / prediction.fit.kv_cache_tokens),
                f"the server has room for {tokens:,} tokens",
            )
        return Room(self.facts.max_model_len, tokens // length, f"the server has room for {tokens:,} tokens")

    def largest_predicted(self, cell: Cell, promise: float) -> int | None:
        """The most users that are predicted to keep the p95 of TTFT; None where nothing is predicted."""
        prediction = self._answer(cell, promise)
        return prediction.largest_users if prediction is not None else None

    def _answer(self, cell: Cell, promise: float | None = None) -> speed_question.Answer | None:
        if self.question is None:
            return None
        try:
            return self._answer_for(self.question, cell, promise)
        except InputError:  # `remarks_on` says it
            return None

    def _answer_for(self, question: Question, cell: Cell, promise: float | None) -> speed_question.Answer:
        load = Load(cell.users, cell.prompt_tokens, cell.answer_tokens)
        return speed_question.answer(question, load, promise, self.catalog)


@contextlib.contextmanager
def opened_place(options: BenchOptions, repository: Callable[[], Repository], progress: Progress) -> Iterator[Place]:
    """The endpoint, for as long as the context lasts. Raises InputError, EndpointError and KubernetesError."""
    if options.service:
        opened = repository()
        with opened_service(options.service, options.environment, options.where, opened, progress) as place:
            # Without an Argo CD that says it, the environment is the one in which this clone has the service.
            service = replace(place.service, environment=place.service.environment or place.asked_in)
            with open_endpoint(place.cluster, service.namespace, service.name) as endpoint:
                path = ServicePath(service.environment, service.name)
                yield service_place(options, opened, endpoint, service, place.clone.holding(path))
        return
    credential = key.from_environment()
    url = options.url.rstrip("/").removesuffix("/v1")
    if credential is not None:
        url = checked_address(url, "--url", "the key")
    elif urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InputError.at("--url", "", "is not a web address", "Write something like https://name.example.com.")
    with client(url) as http:
        endpoint = Endpoint(url, "", credential, http, "url")
        served = chat.models(endpoint)
        if not served:
            raise InputError.at("--url", "", f"{url} serves no model", "Name an address that answers /v1/models.")
        endpoint = replace(endpoint, model=served[0].id)
        yield _of_address(options, repository().catalog, endpoint)


def service_place(
    options: BenchOptions, opened: Repository, endpoint: Endpoint, service: Service, files: Snapshot | None = None
) -> Place:
    """A service's open endpoint with its plan in `files` (None: in the work tree). Raises InputError and
    EndpointError."""
    options = replace(options, question=replace(options.question, look_up=partial(load_model, catalog=opened.catalog)))
    facts, remarks = ask(endpoint), []
    path = ServicePath(service.environment, service.name)
    planned = planned_service(path, files or FolderSnapshot(opened.root), opened)
    plan, known = planned.plan if planned else None, None
    if plan is not None:
        known = question_of(plan, options.question)
        known = replace(known, vllm_version=facts.version or known.vllm_version)
    else:
        remarks.append(f"This clone has no plan of {service.name} to read: nothing is predicted. Pull its merge.")
    hourly, source = _price(options, opened, plan, service.environment)
    name = f"{service.environment}/{service.name}"
    place = _place(options, endpoint, facts, opened.catalog, known, hourly, source, remarks, name)
    promise = planned.request.p95_ttft_seconds if planned else None
    subject = replace(place.subject, promised_p95_ttft_seconds=promise)
    return replace(place, subject=subject, load=plan.load if plan else None, promise=promise)


def _of_address(options: BenchOptions, catalog: Catalog, endpoint: Endpoint) -> Place:
    facts = ask(endpoint)
    question, remarks = replace(options.question, look_up=partial(load_model, catalog=catalog)), []
    if not question.model and facts.model in catalog.models:
        question = replace(question, model=facts.model)
    known: Question | None = replace(question, vllm_version=facts.version or question.vllm_version)
    if not question.model or not (question.accelerator or question.memory_gib):
        remarks.append("Nothing is predicted: name --model, --accelerator and --vllm-args.")
        known = None
    source = "--usd-per-hour"
    return _place(options, endpoint, facts, catalog, known, options.hourly, source, remarks, "")


def _place(
    options: BenchOptions,
    endpoint: Endpoint,
    facts: ServerFacts,
    catalog: Catalog,
    question: Question | None,
    hourly: Decimal | None,
    source: str,
    remarks: list[str],
    service: str,
) -> Place:
    name = question.model if question else facts.model
    entry = catalog.models.get(name)
    tokenizer, revision = _tokenizer(options.tokenizer, facts, entry.weights if entry else None, name)
    if facts.metrics is None:
        remarks.append(f"The server's own counters are missing: {facts.no_metrics}")
    subject = Subject(
        service=service,
        url="" if service else endpoint.url,
        model=name,
        served_model=facts.model,
        revision=entry.weights.revision if entry else None,
        accelerator=question.accelerator if question else None,
        count=question.count or 1 if question else None,
        vllm_version=facts.version,
        vllm_args=None if question is None else question.words,
        api=options.api,
        prefix_caching=facts.metrics.prefix_caching if facts.metrics else None,
        hourly=hourly,
        price_source=source if hourly is not None else "",
    )
    target = Target(endpoint.url, facts.model, endpoint.key, tokenizer, revision, options.api)
    return Place(endpoint, facts, subject, target, question, catalog, tuple(remarks))


def _tokenizer(named: str, facts: ServerFacts, weights: Any, model: str) -> tuple[str, str]:
    """The tokenizer's folder or repository, and its revision: the named one, else where the server's model lies."""
    if named:
        return (str(Path(named).resolve()), "") if Path(named).is_dir() else (named, "")
    if facts.root and Path(facts.root).is_absolute() and (Path(facts.root) / "config.json").is_file():
        return facts.root, ""
    if weights is not None and weights.kind == "hub":
        return weights.path, weights.revision or ""
    with contextlib.suppress(PinError):
        folder = ModelServer.find().models / model
        if (folder / "config.json").is_file():  # a tiny model of the local platform
            return str(folder), ""
    if facts.root and not facts.root.startswith("/") and facts.root.count("/") == 1:
        return facts.root, ""
    fault = f"of {facts.model} is not known on this machine: the server has it in {facts.root or 'a place of its own'}"
    raise InputError.at("the tokenizer", "", fault, "Name its folder, or its repository of the Hub: --tokenizer.")


def _price(
    options: BenchOptions, opened: Repository, plan: Plan | None, environment: str
) -> tuple[Decimal | None, str]:
    """US dollars per hour of one replica of a service, and their source."""
    if options.hourly is not None:
        return options.hourly, "--usd-per-hour"
    named = opened.settings.environments.get(environment)
    if plan is None or named is None or plan.accelerator not in opened.catalog.accelerators:
        return None, ""
    size = Decimal(plan.resources.cpu), Decimal(plan.resources.memory_gib)
    price = pod_price(opened.catalog, named.price_lists, plan.accelerator, plan.accelerator_count, *size)
    return (None, "") if price is None else (price.hourly, price.source)
