"""Defines the plan: the platform's decisions for a request and their reasons; `plan.yaml` holds it as a lock."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field

from neuroscale.catalog.cluster_settings import SecretStore
from neuroscale.catalog.settings import RolloutKind
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import Money, parse
from neuroscale.core.yaml_io import dump
from neuroscale.repo.layout import PLAN_FILE
from neuroscale.repo.snapshot import Snapshot, read_file


class Replicas(Frozen):
    """Pods of the service."""

    min: int
    max: int


class Memory(Frozen):
    """GiB (2^30 bytes) per rank, which is one accelerator: weights + kv_cache + overhead + free = usable."""

    weights: float
    kv_cache: float  # the cache that the requested concurrency needs on one replica
    overhead: float
    usable: float  # the memory that vLLM may take of the accelerator (its memory x utilisation)
    free: float  # negative for a plan that does not fit

    @property
    def parts(self) -> dict[str, float]:
        """What takes the memory, by its name; `free` where all of it fits."""
        taken = {"weights": self.weights, "KV cache": self.kv_cache, "overhead": self.overhead}
        return {**taken, "free": self.free} if self.free >= 0 else taken


class Architecture(Frozen):
    """Parameters of the text tower, counted from the config. `active_ratio` is active / total. `active_params` counts
    the input embedding, `active_params_without_embedding` does not; they are equal if the same matrix computes the
    output, too. Neither counts tables that each layer only looks up (Gemma 4 E2B, E4B)."""

    kind: Literal["moe", "dense"]
    total_params: int
    active_params: int
    active_params_without_embedding: int | None
    active_ratio: float


class Startup(Frozen):
    """Seconds from a pod's start until it is ready, by step, and the limits that follow from them."""

    expected_seconds: int
    download_seconds: int = 0  # until the weights are on the node; 0 if the server reads them from a mounted store
    load_seconds: int = 0
    compile_seconds: int = 0
    graphs_seconds: int = 0
    other_seconds: int = 0  # processes, memory profiling, warm-up
    probe_budget_seconds: int  # how long the startup probe waits at least
    # Every service had this value before plans had the field.
    termination_grace_seconds: int = 120  # how long a pod that must end may still write the answers that it has begun

    @property
    def steps(self) -> dict[str, int]:
        """Seconds of the steps that take some, by their names."""
        loading = {"fetching": self.download_seconds, "loading": self.load_seconds, "compiling": self.compile_seconds}
        steps = {**loading, "graphs": self.graphs_seconds, "the rest": self.other_seconds}
        return {name: seconds for name, seconds in steps.items() if seconds}


class Rollout(Frozen):
    """How a change of the pods reaches the replicas that run, one pod at a time: `surge` starts a new pod before an old
    one ends, `replace` ends an old one first and so needs no free accelerator. Minutes are about as long as planned."""

    kind: RolloutKind
    availability: Literal["standard", "high"]  # the form's answer
    max_surge: int  # pods more than the replicas meanwhile
    max_unavailable: int  # pods fewer that answer meanwhile
    extra_accelerators: int  # that must be free beside those of the running replicas
    minutes: int  # until every replica is of the new version
    gap_minutes: int  # in which nothing answers: 0 unless the only replica is replaced


class Cost(Frozen):
    """US dollars; a month is 730 hours. None where the catalog has no price. Decimals are written as strings. All
    amounts are of the replicas that run: `replicas.min`, since nothing scales to `replicas.max` yet. In a plan of
    planner 2.1.0 or older, `monthly_max` is of `replicas.max`."""

    hourly: Money | None
    monthly_min: Money | None
    monthly_max: Money | None
    price_date: date | None
    price_source: str


class Speed(Frozen):
    """Estimates for one idle replica: seconds to the first token of the longest prompt, and one user's tokens/s."""

    ttft_seconds: float | None
    decode_tokens_per_second: float | None


class Band(Frozen):
    """An estimate: most measurements lie between `low` and `high`."""

    value: float
    low: float
    high: float


class FirstToken(Frozen):
    """Seconds from a client's sending of a request to the first token of its answer, with the wait in the queue."""

    p50: Band
    p95: Band


class Rate(Frozen):
    """Output tokens per second: of one user's answer once it has begun, and of all users of a replica together."""

    user: Band
    replica: Band


class PlannedLoad(Frozen):
    """How the replicas answer while all `users` ask, each with requests of these lengths. Where the `coverage` is
    `unknown`, every figure is None; the other words are those of `planning/speed/load.py`."""

    users: int
    replica_users: int  # of the replica that has the most
    prompt_tokens: int
    answer_tokens: int
    coverage: Literal["measured", "interpolated", "extrapolated", "unknown"]
    ttft_seconds: FirstToken | None
    tokens_per_second: Rate | None
    # How many more users than asked for get what is asked for at least; less than 0 where overrides take replicas away.
    head_room_users: int | None
    usd_per_million_output_tokens: Money | None  # what the replicas cost while they write a million tokens


class TypicalLoad(Frozen):
    """The load that the number of replicas rests on: tokens of most requests at the busiest time, and how many requests
    one replica holds at once if one of them is of full length and the others are typical."""

    prompt_tokens: int
    answer_tokens: int
    max_concurrency: int


class Runtime(Frozen):
    """The serving runtime: `image` is the complete reference, `version` vLLM's; it runs as `uid` and `gid`."""

    name: str
    image: str
    version: str
    uid: int = 1001
    gid: int = 1001
    read_only_root: bool = False  # the catalog says that vLLM answers in this image on a read-only root file system


class Resources(Frozen):
    """The resources that one pod requests: `cpu` in cores, host memory in GiB, and the part of it for /dev/shm.
    `accelerator_resource` is the extended resource's name ("" for CPU serving)."""

    cpu: int
    memory_gib: int
    shared_memory_gib: int
    accelerator_resource: str
    node_selector: dict[str, str]


class Tenancy(Frozen):
    """Who owns the service, as the catalog names them."""

    team: str
    owner: str
    cost_center: str
    namespace: str


class MetadataServer(Frozen):
    """Where a pod gets the cloud's credentials of its ServiceAccount, by TCP."""

    address: str
    port: int


class Surroundings(Frozen):
    """The settings of the cluster around the pods of an environment."""

    token_secret: str  # the Secret in the team's namespace with the Hugging Face token
    token_key: str  # its key
    client_namespaces: tuple[str, ...]  # others whose pods may call the service, as those of gateway and Prometheus
    service_account: str = ""  # of pods that read the environment's store; "": the namespace's default
    metadata_servers: tuple[MetadataServer, ...] = ()  # that such pods may call
    dns_networks: tuple[str, ...] = ()  # that answer DNS beside kube-dns
    node_local_dns: bool = False  # the pods of NodeLocal DNSCache answer, too
    secret_store: SecretStore | None = None  # that holds the API key; None: `neuroscale keys` makes it


class AppliedOverride(Frozen):
    """An override of the request, and the value that the planner would have chosen without it."""

    field: str
    value: str | int | float | bool
    planned: str
    reason: str
    expires: date


class Alternative(Frozen):
    """A change of a refused request that works, and its price in US dollars per hour if one is known. `answers`: the
    form's answers that make the change; empty where they cannot, as for an override."""

    change: str
    answers: dict[str, str | int | float] = Field(default_factory=dict)
    model: str
    accelerator: str
    accelerator_count: int
    hourly: Money | None


class Lock(Frozen):
    """The inputs of the plan. Digests are `sha256:` and 64 hexadecimal digits of canonical JSON."""

    catalog_digest: str
    # Of each catalog entry that the plan depends on (`model/NAME`, ...), and of the settings (`settings/ENVIRONMENT`).
    entries: dict[str, str]
    request_digest: str
    planner_version: str
    template_version: str


class Plan(Frozen):
    """The resolved plan. A refused plan keeps the numbers of the nearest attempt, with the reasons."""

    schema_version: Literal[1] = 1
    verdict: Literal["fits", "tight", "refused"]
    service: str
    environment: str
    model: str
    model_source: str
    accelerator: str
    accelerator_count: int
    tensor_parallel_size: int
    replicas: Replicas
    memory_gib: Memory
    architecture: Architecture
    max_model_len: int
    max_concurrency: int  # requests of full length that one replica holds at once
    typical: TypicalLoad | None = None  # the load that the number of replicas rests on (None: requests of full length)
    vllm_args: tuple[str, ...]
    environment_variables: dict[str, str]
    needs_hugging_face_token: bool
    startup: Startup
    rollout: Rollout | None = None  # None in a plan of planner 2.5.0 or older: KServe's own, a quarter each way
    speed: Speed
    load: PlannedLoad | None = None  # None in a plan of planner 2.6.0 or older, and where nothing fits
    cost: Cost
    runtime: Runtime
    resources: Resources
    tenancy: Tenancy
    surroundings: Surroundings
    overrides: tuple[AppliedOverride, ...]
    alternatives: tuple[Alternative, ...]
    confidence: Literal["high", "medium", "low"]
    reasons: tuple[str, ...]
    lock: Lock


def load_plan(text: str, where: str) -> Plan:
    """The plan in a `plan.yaml`. Raises InputError with file, field, line and what to write instead."""
    return parse(Plan, text, where)


def read_plan(snapshot: Snapshot, folder: str) -> Plan | None:
    """The plan in a service's folder, None if there is none. Raises InputError if it cannot be read."""
    return read_file(snapshot, f"{folder}/{PLAN_FILE}", load_plan)


def dump_plan(plan: Plan) -> str:
    """`plan.yaml` for a plan: the same bytes for equal plans; `load_plan` gives the same value back."""
    written = plan.model_dump(mode="json")
    if plan.typical is None:
        # Files of older plans, which lack these fields, stay as they are.
        del written["typical"]
    for name in ("rollout", "load"):
        if written[name] is None:
            del written[name]
    defaults = {name: field.default for name, field in Surroundings.model_fields.items() if not field.is_required()}
    for name, default in defaults.items():
        if getattr(plan.surroundings, name) == default:
            del written["surroundings"][name]
    if not plan.runtime.read_only_root:
        del written["runtime"]["read_only_root"]
    return dump(written)
