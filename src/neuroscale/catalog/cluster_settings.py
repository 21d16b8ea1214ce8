"""Describes the settings by which one environment's cluster differs from another's: its domain and who signs for it,
values of its charts, its DNS, its meters, and the rights with which pods read models and secrets."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from neuroscale.core.frozen import Frozen, Label, Positive, Source
from neuroscale.core.validation import wrong

Host = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
ClusterKind = Literal["kind", "gke", "eks"]
CLUSTER_KINDS: tuple[ClusterKind, ...] = ("kind", "gke", "eks")
"""The kinds of cluster whose files are rendered whether or not an environment has one."""
WorkloadIdentity = Literal["none", "gke", "eks"]

METADATA_SERVERS: Mapping[WorkloadIdentity, tuple[tuple[str, int], ...]] = {
    "none": (),
    "gke": (("169.254.169.254", 80), ("169.254.169.252", 988)),
    "eks": (("169.254.170.23", 80),),
}
"""The addresses and TCP ports at which a pod gets the cloud's credentials of its own ServiceAccount.

GKE's metadata server: Google's page on network policies (cloud.google.com/kubernetes-engine/docs/how-to/network-policy,
'Network policy and Workload Identity Federation for GKE') demands egress to 169.254.169.252/32 on port 988, and with
Dataplane V2 to 169.254.169.254/32 on port 80. The page's ports 987 and 8080 are for ALTS, which KServe's copy does not
use. EKS Pod Identity: its agent listens on 169.254.170.23, port 80, on every node (IPv6, not here: fd00:ec2::23;
docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html). IAM roles for service accounts (IRSA) need neither:
STS is called over HTTPS."""


class TokenSecret(Frozen):
    """The Secret in every team's namespace that holds the Hugging Face token."""

    name: Label
    key: Annotated[str, Field(pattern=r"^[-._A-Za-z0-9]{1,253}$")]


class Throughput(Frozen):
    """MiB (2^20 bytes) per second, with their source. The value is required: the startup probe depends on it."""

    value: Positive
    source: Source


Way = Literal["hub", "bucket", "gcs-fuse", "pvc", "disk"]
"""How a server gets its weights: vLLM downloads them from the hub; KServe copies them from a bucket before the server
starts; or the server reads them from a bucket mounted with Cloud Storage FUSE, from another volume, or from a disk of
the node, where downloads lie."""


class ModelStore(Frozen):
    """The sources of weights: the hub, and the organisation's own store for models that the hub lacks.

    `store` is a URI prefix (null: the environment has none). `store_kind`: how a server reads the store, if its scheme
    does not say that (a volume claim that is a bucket mounted with Cloud Storage FUSE). `throughput_mib_s`: the slowest
    rates to plan with.
    """

    hub: bool
    store: Annotated[str, Field(pattern=r"^(gs|s3|pvc|file)://[A-Za-z0-9._/-]*[A-Za-z0-9]$")] | None
    store_kind: Literal["bucket", "gcs-fuse", "pvc", "disk"] | None = None
    throughput_mib_s: dict[Way, Throughput]

    @model_validator(mode="after")
    def _complete(self) -> ModelStore:
        if self.store_kind is not None and self.store is None:
            raise wrong("store_kind is set, but store is not", "Leave store_kind out.")
        copied = self.store is not None and self.store.startswith(("gs://", "s3://"))
        if self.store_kind is not None and copied != (self.store_kind == "bucket"):
            raise wrong(
                f"KServe {'copies' if copied else 'does not copy'} {self.store} before the server starts",
                "Write `store_kind: bucket` for gs:// and s3:// alone; name a mounted bucket by its volume, pvc://CLAIM.",
            )
        needed = {"hub": self.hub, "disk": True, self.way_of_store: self.store is not None}
        for way, is_needed in needed.items():
            if is_needed and way not in self.throughput_mib_s:
                raise wrong(
                    f"throughput_mib_s lacks {way}",
                    f"Write how many MiB a second come that way: `{way}: {{value: 100, source: ...}}`.",
                )
        return self

    @property
    def way_of_store(self) -> Way:
        """How a server reads the files of the store."""
        scheme = (self.store or "").partition("://")[0]
        ways: dict[str, Way] = {"gs": "bucket", "s3": "bucket", "pvc": "pvc"}
        return self.store_kind or ways.get(scheme, "disk")


class OwnAuthority(Frozen):
    """The cluster's own authority signs: clients need the certificate of that authority."""

    issuer: Literal["own"]


class Acme(Frozen):
    """A public authority signs. `dns01`: cert-manager's solver, which says how to write the domain's DNS records."""

    issuer: Literal["acme"]
    server: Annotated[str, Field(pattern=r"^https://[^\s@]+$")]
    email: Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$", max_length=254)]
    dns01: Annotated[dict[str, Any], Field(min_length=1)]


Signer = Annotated[OwnAuthority | Acme, Field(discriminator="issuer")]

_ANNOTATION = r"^(eks\.amazonaws\.com|iam\.gke\.io|serving\.kserve\.io)/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
GOOGLE_ACCOUNT = "iam.gke.io/gcp-service-account"


class ServiceAccount(Frozen):
    """The ServiceAccount, in every team's namespace, of the pods that read a model from the environment's store.

    `annotations`: the cloud's account that it acts as, and KServe's settings of a bucket (`serving.kserve.io/s3-...`).
    `bucket_secret`: the Secret in each of these namespaces with a bucket's keys, where no identity of the cloud reads
    it. KServe's copy takes AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from it, or gcloud-application-credentials.json.
    """

    name: Label = "model-store"
    annotations: dict[
        Annotated[str, Field(pattern=_ANNOTATION)], Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,512}$")]
    ] = Field(default_factory=dict)
    bucket_secret: Label | None = None

    @field_validator("name")
    @classmethod
    def _own(cls, name: str) -> str:
        if name == "default":
            raise wrong("'default' is the account of every pod that names no other", "Write another name.")
        return name


class SecretStore(Frozen):
    """The store from which External Secrets (external-secrets.io/v1) writes the Secrets of every team's namespace: the
    Hub token, the bucket's keys, and the API key of each service.

    `path`: a Secret's name in the store, in which {namespace} and {secret} are replaced; its properties are the
    entries of the Secret. `store`: the ClusterSecretStore, or the SecretStore in each namespace, which others make.
    """

    kind: Literal["external-secrets"]
    store: Label
    store_kind: Literal["ClusterSecretStore", "SecretStore"] = "ClusterSecretStore"
    path: Annotated[str, Field(pattern=r"^([-A-Za-z0-9._/]|\{namespace\}|\{secret\}){1,200}$")] = "{namespace}/{secret}"

    @field_validator("path")
    @classmethod
    def _names_the_secret(cls, path: str) -> str:
        if "{secret}" not in path:
            raise wrong(f"{path!r} names one entry for every Secret", "Write {secret} where the Secret's name goes.")
        return path

    def key(self, namespace: str, secret: str) -> str:
        """The name in the store of a Secret of a namespace."""
        return self.path.replace("{namespace}", namespace).replace("{secret}", secret)


class Dns(Frozen):
    """The cluster's DNS beside the pods `k8s-app: kube-dns` of kube-system, which every service may ask.

    `addresses`: single addresses that answer, such as 169.254.20.10 (NodeLocal DNSCache, and Cloud DNS with it) or the
    address of the Service kube-dns. `node_local`: also the pods `k8s-app: node-local-dns` of kube-system, as GKE's
    Dataplane V2 needs it (cloud.google.com/kubernetes-engine/docs/how-to/nodelocal-dns-cache, on network policies).
    """

    addresses: tuple[str, ...] = ()
    node_local: bool = False

    @field_validator("addresses")
    @classmethod
    def _single(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for text in addresses:
            try:
                address = ipaddress.ip_address(text)
            except ValueError:
                raise wrong(f"{text!r} is not an IP address", "Write one such as 169.254.20.10.") from None
            if str(address) != text or address.is_unspecified or address.is_multicast or address.is_loopback:
                fix = "Write the address that /etc/resolv.conf of a pod names, in its shortest form."
                raise wrong(f"{text!r} is not the address of a DNS server that a pod can call", fix)
        if len(set(addresses)) != len(addresses):
            raise wrong("an address stands twice", "List each address once.")
        return addresses

    @property
    def networks(self) -> tuple[str, ...]:
        """The addresses as networks of one address each."""
        return tuple(f"{address}/{128 if ':' in address else 32}" for address in self.addresses)


class Prometheus(Frozen):
    """The cluster's Prometheus: the Service through which `neuroscale metrics` reaches it.

    `operator`: the Prometheus Operator runs it, and it gets a PodMonitor and a PrometheusRule in `namespace`.
    """

    namespace: Label = "monitoring"
    # The Operator creates a Service of this name, whatever its Prometheus is called.
    service: Label = "prometheus-operated"
    port: Annotated[int, Field(ge=1, le=65535)] = 9090
    operator: bool = True


class OpenCost(Frozen):
    """The cluster's OpenCost: the Service through which `neuroscale showback` reaches it."""

    namespace: Label = "opencost"
    service: Label = "opencost"
    port: Annotated[int, Field(ge=1, le=65535)] = 9003


class ClusterSettings(Frozen):
    """What an environment says of its cluster. Each field but `cluster` may be left out: then the environment gets what
    every cluster of its kind gets.

    `cluster`: the kind of cluster, a folder of platform/clusters (local: none, the platform on this machine runs the
    programs). `domain`: services have addresses below it (None: the settings' own). `certificate`: who signs the
    gateway's (None: as `certificates` says for the kind). `charts`: values by a chart's name, over those of the kind.
    `workload_identity`: pods with `service_account` get credentials from the cloud's metadata server of the node.
    """

    cluster: Literal["local", "kind", "gke", "eks"] = "local"
    domain: Host | None = None
    certificate: Signer | None = None
    charts: dict[Label, Annotated[dict[str, Any], Field(min_length=1)]] = Field(default_factory=dict)
    workload_identity: WorkloadIdentity = "none"
    service_account: ServiceAccount | None = None
    dns: Dns = Field(default_factory=Dns)
    secret_store: SecretStore | None = None
    models: ModelStore
    token_secret: TokenSecret
    prometheus: Prometheus = Field(default_factory=Prometheus)
    opencost: OpenCost = Field(default_factory=OpenCost)

    @model_validator(mode="after")
    def _suits_its_cluster(self) -> ClusterSettings:
        if self.workload_identity not in ("none", self.cluster):
            raise wrong(
                f"workload_identity is {self.workload_identity}, and the cluster is of the kind {self.cluster}",
                f"Write `workload_identity: {self.cluster}`, or leave it out."
                if self.cluster in METADATA_SERVERS
                else "Leave workload_identity out.",
            )
        account = self.service_account
        if account is not None and GOOGLE_ACCOUNT in account.annotations and self.workload_identity != "gke":
            raise wrong(
                f"service_account has {GOOGLE_ACCOUNT}, and its pods may not call the metadata server",
                "Write `workload_identity: gke` beside it.",
            )
        if self.cluster == "local":
            own = "takes the settings' own"
            for field, does in (
                *((field, own) for field in ("domain", "certificate", "charts")),
                ("secret_store", "has no External Secrets"),
            ):
                if getattr(self, field):
                    message = f"{field} is set, and the platform on this machine {does}"
                    raise wrong(message, f"Leave {field} out, or name the kind of cluster.")
        return self

    @model_validator(mode="after")
    def _reads_a_store(self) -> ClusterSettings:
        if self.service_account is not None and not (self.models.store or "").startswith(("gs://", "s3://", "pvc://")):
            told = "service_account is set, and no pod uses it: the environment has no store in a bucket or a volume"
            raise wrong(told, "Set models.store, or leave service_account out.")
        return self

    @property
    def has_own_files(self) -> bool:
        """Whether its charts or its gateway differ from those of other clusters of the kind, but for the domain."""
        return bool(self.charts) or self.certificate is not None

    @property
    def has_files_of_teams(self) -> bool:
        """Whether every team gets something in its cluster alone."""
        return self.service_account is not None or self.secret_store is not None

    @property
    def answering_addresses(self) -> frozenset[tuple[str, str, int]]:
        """The addresses that a service's NetworkPolicy may open by name, each with its protocol and its port."""
        servers = {(address, "TCP", port) for address, port in METADATA_SERVERS[self.workload_identity]}
        return frozenset(servers | {(address, way, 53) for address in self.dns.addresses for way in ("UDP", "TCP")})
