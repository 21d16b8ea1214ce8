"""Reads `platform/settings.yaml`: the settings that an organisation changes when it forks the repository."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from neuroscale.catalog import Catalog
from neuroscale.catalog.alert_contacts import Alerting
from neuroscale.catalog.allowed_places import Registry, Store, full_image, with_slashes
from neuroscale.catalog.cluster_settings import CLUSTER_KINDS, ClusterKind, ClusterSettings, Host, Signer
from neuroscale.catalog.entries import LabelValue
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen, Label
from neuroscale.core.validation import Money, parse, suggest, wrong
from neuroscale.repo.layout import ACCELERATORS, CATALOG, PRICES, SETTINGS, TEAMS
from neuroscale.repo.snapshot import Snapshot, read_text


class Repository(Frozen):
    """The repository that pull requests go to. `smoke_account`: the login that the smoke workflow comments as; no other
    account's comment proves to `promote` that a service passed ("": none does)."""

    url: Annotated[str, Field(pattern=r"^https://[^\s@]+$")]
    default_branch: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,100}$")]
    smoke_account: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99}(\[bot\])?)?$")] = ""


CodeOwner = Annotated[
    str, Field(pattern=r"^(@[A-Za-z0-9][A-Za-z0-9-]*(/[A-Za-z0-9._-]+)?|[^\s@#]+@[^\s@#]+)$", max_length=100)
]


class Owners(Frozen):
    """Who approves changes on GitHub, as users (`@user`), teams (`@organisation/team`) or e-mail addresses.

    `services`: of all files but those of the others; `platform`: of what judges and of what clusters get; `catalog`: of
    models, accelerators and prices. All of them may be the same people.
    """

    services: Annotated[tuple[CodeOwner, ...], Field(min_length=1)]
    platform: Annotated[tuple[CodeOwner, ...], Field(min_length=1)]
    catalog: Annotated[tuple[CodeOwner, ...], Field(min_length=1)]


class Certainty(Frozen):
    """Makes plans prefer a surer choice to one that is tight, of low confidence, or never measured, as long as it costs
    less than `price_factor` times as much."""

    price_factor: Annotated[float, Field(gt=1, le=10)] = 2.0


RolloutKind = Literal["surge", "replace"]


class Rollouts(Frozen):
    """How a change reaches the running replicas, by the form's answer about availability: `surge` needs a free
    accelerator meanwhile, and waits for one; `replace` needs none, and one replica fewer answers."""

    standard: RolloutKind = "replace"
    high: RolloutKind = "surge"


NODE_WAIT_MINUTES = 15
"""How long a pod may wait for a node if the settings do not say it. As long waits Kubernetes' cluster autoscaler for
a node that it makes, by its --max-node-provision-time, and Karpenter."""


READER_TOKENS_PER_SECOND = 10.0
"""Tokens a second for each user if neither a form nor the settings say it: a reader's speed. People read some 240 words
a minute silently (238 in English non-fiction: Brysbaert 2019, doi 10.1016/j.jml.2019.104047), a fast reader half as
many more. A word is about 1.3 tokens in English and 2 in other languages: 5 to 12 tokens a second."""


class Environment(ClusterSettings):
    """A cluster (or part of one). The order of `accelerators` does not matter: plans take the cheapest that fits.

    `certainty`: how much more a sure choice may cost (null: plans take the cheapest, however sure it is).
    `typical_share`: the typical prompt and answer as a share of the longest, for requests without typical lengths.
    `tokens_per_second_per_user`: what each user gets while all ask, for requests without that answer.
    `node_wait_minutes`: how long a pod may wait for a node, or for room in a quota, until the change that made it
    counts as failed; less than the 24 hours after which a failure is no merge's fault any more. `bench_after_merge`:
    whether the smoke workflow measures a new service for some minutes (`short`), and tells its merged pull request.
    `alerting`: what its Alertmanager does (None: nothing is rendered for one).
    """

    accelerators: Annotated[tuple[Label, ...], Field(min_length=1)]
    price_lists: tuple[Label, ...]
    ingress_namespaces: Annotated[tuple[Label, ...], Field(min_length=1)]
    monitoring_namespaces: tuple[Label, ...]
    default_availability: Literal["standard", "high"]
    rollout: Rollouts = Field(default_factory=Rollouts)
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    max_cpu_per_pod: Annotated[int, Field(ge=1)]
    node_selector: dict[str, LabelValue] = Field(default_factory=dict)
    certainty: Certainty | None = None
    typical_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    tokens_per_second_per_user: Annotated[float, Field(ge=0.1, le=1000)] = READER_TOKENS_PER_SECOND
    node_wait_minutes: Annotated[int, Field(ge=1, le=720)] = NODE_WAIT_MINUTES
    bench_after_merge: Literal["off", "short"] = "off"
    alerting: Alerting | None = None

    @field_validator("accelerators", "price_lists")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise wrong("a name stands twice", "List each name once.")
        return names


LONGEST_DAYS = 366
"""How many days ahead an override or an exception may end if the settings do not set a number."""


class Upgrades(Frozen):
    """What `neuroscale upgrade` may do. `open_at_once`: the most of its pull requests that are open at one time."""

    open_at_once: Annotated[int, Field(ge=1, le=1000)] = 10


class Reconciliation(Frozen):
    """The difference between metered and estimated cost of a service at which `neuroscale reconcile` opens an issue: it
    must be more than both figures.

    `usd`: US dollars in the window of the comparison. `percent`: percent of the estimate.
    """

    usd: Money = Decimal(50)
    percent: Money = Decimal(20)

    @field_validator("usd", "percent")
    @classmethod
    def _not_negative(cls, amount: Decimal) -> Decimal:
        if amount < 0:
            raise wrong("is below 0", "Write 0 or more; differences in both directions count.")
        return amount


class Exceptions(Frozen):
    """Limits overrides of plans and exceptions from policies. `longest_days`: how many days ahead one may end."""

    longest_days: Annotated[int, Field(ge=1, le=3653)] = LONGEST_DAYS


Level = Literal["off", "warn", "block"]
"""The gate's response if a change breaks a rule on cost or availability: nothing, a notice in the verdict, or a
refusal."""


class LargeChange(Frozen):
    """The size at which a change of the bill, up or down, is large: US dollars a month, or percent of the bill before.

    Both are about the most replicas. `usd_a_month` judges each service that the change touches, and all of them
    together; `percent` judges each service that cost something before. None: the figure is not used.
    """

    level: Level = "off"
    usd_a_month: Annotated[Money, Field(gt=0)] | None = None
    percent: Annotated[int, Field(ge=1, le=100_000)] | None = None

    @model_validator(mode="after")
    def _has_a_threshold(self) -> LargeChange:
        if self.level != "off" and self.usd_a_month is None and self.percent is None:
            raise wrong("level is set without a threshold", "Write usd_a_month, percent or both.")
        return self


class CostRules(Frozen):
    """The rules on the cost of a change; each rule is off unless the settings set it.

    `over_budget`: the new total of a cost centre is beyond its budget. `without_price`: pods of the change have no
    price. `stale_price`: a price is more than 90 days old.
    """

    over_budget: Level = "off"
    without_price: Level = "off"
    stale_price: Level = "off"
    large_change: LargeChange = Field(default_factory=LargeChange)

    @property
    def levels(self) -> dict[str, Level]:
        """The level of each rule, by the rule's name."""
        return {
            "over-budget": self.over_budget,
            "without-price": self.without_price,
            "stale-price": self.stale_price,
            "large-change": self.large_change.level,
        }


FEWEST_IN_PRODUCTION = 2
"""The replicas that the rule on replicas demands."""


class ProductionRules(Frozen):
    """The rules on the availability of services in `environments`; all but `removal` are off unless set.

    `replicas`: a service runs FEWEST_IN_PRODUCTION replicas or more. `disruption_budget`: a PodDisruptionBudget lets a
    node drain and keeps one of the service's pods. `image_digest`: every image is named by its digest.
    `model_revision`: every model of the Hub is named with the commit that is its revision.
    `removal`: a change does not remove the last service of an environment, or more than one.
    """

    environments: tuple[Label, ...] = ()
    replicas: Level = "off"
    disruption_budget: Level = "off"
    image_digest: Level = "off"
    model_revision: Level = "off"
    removal: Level = "warn"

    @property
    def levels(self) -> dict[str, Level]:
        """The level of each rule, by the name under which findings and exceptions have it."""
        return {
            "production-replicas": self.replicas,
            "production-disruption-budget": self.disruption_budget,
            "production-image-digest": self.image_digest,
            "production-model-revision": self.model_revision,
            "production-removal": self.removal,
        }


PRODUCTION_RULES = tuple(ProductionRules().levels)
"""The names of the rules on availability."""


class Settings(Frozen):
    """The whole file. `certificates`: who signs the certificates of the gateways in each folder of platform/clusters
    (default: own). `owners`: whom `.github/CODEOWNERS` is rendered with (default: that file is nobody's to render).
    `tool_bundle`: where set-up takes built tools from; it reads that line itself, without a parser.

    `registries` and `storage`: the beginnings of the addresses that images and models may have, as rendering writes
    them into two policies (None: what the policy's file lists). `registry`: settings of before have it, and nothing
    reads it.
    """

    schema_version: Literal[1]
    organization: Annotated[str, Field(min_length=1, max_length=100)]
    domain: Host
    registry: str | None = None
    registries: Annotated[tuple[Registry, ...], Field(min_length=1)] | None = None
    storage: Annotated[tuple[Store, ...], Field(min_length=1)] | None = None
    repository: Repository
    owners: Owners | None = None
    tool_bundle: Annotated[str, Field(pattern=r'^(https://[^\s"\\]+)?$', max_length=1000)] = ""
    certificates: dict[ClusterKind, Signer] = Field(default_factory=dict)
    exceptions: Exceptions = Field(default_factory=Exceptions)
    reconciliation: Reconciliation = Field(default_factory=Reconciliation)
    upgrades: Upgrades = Field(default_factory=Upgrades)
    costs: CostRules = Field(default_factory=CostRules)
    production: ProductionRules = Field(default_factory=ProductionRules)
    environments: Annotated[
        # It is part of the name of an Argo CD application, after a service's name and a dot; names have at most 63
        # characters.
        dict[Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,20}[a-z0-9])?$")], Environment], Field(min_length=1)
    ]

    _ends_with_slash = field_validator("registries", "storage")(with_slashes)

    def page(self, path: str) -> str:
        """The address of a file on the forge: GitHub's where `owners`, which it alone reads, are set; else Gitea's."""
        url = self.repository.url.rstrip("/").removesuffix(".git")
        is_github = self.owners is not None or urlsplit(url).hostname == "github.com"
        return f"{url}/{'blob' if is_github else 'src/branch'}/{self.repository.default_branch}/{path}"

    def domain_of(self, environment: str) -> str:
        """The domain below which the services of an environment have their addresses."""
        return self.environments[environment].domain or self.domain

    def has_own_cluster_files(self, environment: str) -> bool:
        """Whether an environment's cluster gets other charts or another gateway than others of its kind."""
        known = self.environments[environment]
        return known.cluster != "local" and (known.has_own_files or self.domain_of(environment) != self.domain)

    def shared_domains(self) -> dict[str, list[str]]:
        """The environments with clusters of their own, by the domain that more than one of them has: a service of the
        same name and team has the same address in all of them, and DNS leads to one."""
        clusters: dict[str, list[str]] = {}
        for name, environment in self.environments.items():
            if environment.cluster != "local":
                clusters.setdefault(self.domain_of(name), []).append(name)
        return {domain: names for domain, names in clusters.items() if len(names) > 1}


def load_settings(snapshot: Snapshot) -> Settings:
    """The settings of a repository. Raises InputError with every problem."""
    return parse(Settings, read_text(snapshot, SETTINGS), SETTINGS)


def local_environment(settings: Settings) -> str:
    """The environment of the cluster on this machine: the first with `cluster: local`. Raises InputError if none is."""
    for name, environment in settings.environments.items():
        if environment.cluster == "local":
            return name
    fix = "Add an environment with `cluster: local`, or start the forge alone: `neuroscale local up --no-cluster`."
    raise InputError.at(SETTINGS, "environments", "has none for the cluster of this machine", fix)


def check_settings(settings: Settings, catalog: Catalog) -> None:
    """Raises InputError if the settings name an accelerator that the catalog or the kind of cluster lacks, two that
    node labels do not distinguish, a price list that the catalog lacks, a store of models that `storage` lacks,
    contacts by e-mail without a mail server, a Prometheus that the network policies of the services do not admit, a
    production environment that does not exist, or a domain that another environment has.

    Environments that name no domain share the settings' own without a problem (see `domain_notes`).
    """
    problems: list[Problem] = []

    def refuse(field: str, message: str, fix: str) -> None:
        problems.append(Problem(SETTINGS, field, message, fix))

    for name in settings.production.environments:
        if name not in settings.environments:
            fix = suggest(name, settings.environments)
            refuse("production.environments", f"{name!r} is not one of the environments", fix)
    for domain, names in settings.shared_domains().items():
        for name in names:
            if settings.environments[name].domain is not None:
                others = " and ".join(other for other in names if other != name)
                told = f"{domain} is also the domain of {others}, whose cluster is another: addresses would be the same"
                refuse(f"environments.{name}.domain", told, f"Write a domain of its own, such as {name}.{domain}.")
    for name, environment in settings.environments.items():
        place, known = f"environments.{name}", catalog.accelerators
        if name in CLUSTER_KINDS and (settings.has_own_cluster_files(name) or environment.has_files_of_teams):
            told = f"its cluster's own files would lie in platform/clusters/{name}, among those of a kind of cluster"
            refuse(place, told, "Give the environment another name.")
        for field, used, there, listed in (
            ("accelerators", environment.accelerators, known, ACCELERATORS),
            ("price_lists", environment.price_lists, catalog.prices, PRICES),
        ):
            for entry in used:
                if entry not in there:
                    refuse(f"{place}.{field}", f"{entry!r} is not in the catalog", suggest(entry, there, listed))
        for entry in environment.accelerators:
            where = known[entry].clusters if entry in known else ()
            if where and environment.cluster not in where:
                told = f"clusters of the kind {environment.cluster!r} do not have {entry!r}"
                refuse(f"{place}.accelerators", told, f"Remove it, or choose a cluster among: {', '.join(where)}.")
        ways = [known[entry].on(environment.cluster) for entry in environment.accelerators if entry in known]
        for one, other in itertools.product(ways, ways):
            same = one.resource and one.resource == other.resource
            if same and one.node_selector.items() < other.node_selector.items():
                told = f"a pod that asks for {one.name!r} could start on nodes of {other.name!r}, which have the same "
                fix = "Remove one of them: nothing keeps such a pod off nodes that offer slices."
                refuse(f"{place}.accelerators", f"{told}labels and more", fix)
        store = environment.models.store or "file://"
        if settings.storage and not store.startswith("file://") and not f"{store}/".startswith(settings.storage):
            told = f"{store} is in no place that storage allows: {', '.join(settings.storage)}"
            refuse(f"{place}.models.store", told, f"Add {store} to storage, or correct the address.")
        if environment.alerting is not None and environment.alerting.smtp is None:
            contacts = {f"{TEAMS}/{team.name}.yaml": team.alerts for team in catalog.teams.values()}
            contacts[f"{place}.alerting.fallback"] = environment.alerting.fallback
            if mailed := [where for where, contact in contacts.items() if contact and contact.email]:
                message = f"is missing, and e-mail is a contact in {', '.join(mailed)}"
                fix = "Write the mail server: `{smarthost: HOST:PORT, sender: ADDRESS}`."
                refuse(f"{place}.alerting.smtp", message, fix)
        namespaces, namespace = environment.monitoring_namespaces, environment.prometheus.namespace
        if namespaces and namespace not in namespaces:
            told = f"{namespace!r} is not one of the monitoring_namespaces, which alone may look at a service's pods"
            refuse(f"{place}.prometheus.namespace", told, suggest(namespace, namespaces))
    if problems:
        raise InputError(problems)


def domain_notes(settings: Settings) -> list[Problem]:
    """Notes on environments that share the settings' own domain because none of them names one."""
    return [
        Problem(
            SETTINGS,
            "domain",
            f"{domain} is the domain of {' and '.join(names)}: services of the same name and team get the same address "
            "in each of their clusters",
            f"Write `domain: {names[0]}.{domain}` below environments.{names[0]}, and `neuroscale platform render`.",
        )
        for domain, names in settings.shared_domains().items()
        if all(settings.environments[name].domain is None for name in names)
    ]


def image_notes(settings: Settings, catalog: Catalog) -> list[Problem]:
    """Notes on runtimes whose images the settings' own registries do not hold: the policy refuses their services."""
    allowed = settings.registries
    return [
        Problem(
            f"{CATALOG}/runtimes/{runtime.name}.yaml",
            "image",
            f"{runtime.image} is from none of the settings' registries: the policy allowed-registries refuses each "
            "service that is rendered with it",
            f"Name the copy of the image in {', '.join(allowed)}, or add its registry to `registries` in {SETTINGS}.",
        )
        for runtime in catalog.runtimes.values()
        if allowed is not None and not full_image(runtime.image).startswith(allowed)
    ]
