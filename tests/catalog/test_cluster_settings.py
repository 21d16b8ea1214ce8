"""By what one environment's cluster may differ from another's: the settings that hold it, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from neuroscale.catalog.allowed_places import full_image
from neuroscale.catalog.cluster_settings import METADATA_SERVERS
from neuroscale.catalog.settings import Settings, check_settings, domain_notes, image_notes
from neuroscale.core.errors import InputError
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import dump
from neuroscale.planning.plan import load_plan
from neuroscale.planning.planner import _settings_digest, plan
from neuroscale.repo.layout import SETTINGS as FILE
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS
from roots import ROOT


def with_settings(changes: dict[str, dict[str, Any]], top: str = "models.example.com") -> Settings:
    """The example's settings with fields of environments replaced; dev names a domain only if a change does."""
    value = SETTINGS.model_dump(mode="json", exclude_unset=True)
    value["domain"] = top
    del value["environments"]["dev"]["domain"]
    for name, fields in changes.items():
        value["environments"][name] |= fields
    return parse(Settings, dump(value), FILE)


def problems(changes: dict[str, dict[str, Any]]) -> list[str]:
    try:
        check_settings(with_settings(changes), CATALOG)
    except InputError as error:
        return [str(problem) for problem in error.problems]
    return []


IDENTITY = {"workload_identity": "gke"}
GOOGLE = {"iam.gke.io/gcp-service-account": "models@example-project.iam.gserviceaccount.com"}
STORE = {"kind": "external-secrets", "store": "vault"}
ACME = {
    "issuer": "acme",
    "server": "https://acme.example.com/directory",
    "email": "a@example.com",
    "dns01": {"cloudDNS": {"project": "dev"}},
}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"domain": "dev.example.org"},
        {"certificate": ACME},
        {"charts": {"opencost": {"opencost": {"exporter": {"replicas": 2}}}}},
        IDENTITY,
        {**IDENTITY, "service_account": {"annotations": GOOGLE}},
        {"service_account": {"name": "reader", "bucket_secret": "bucket"}},
        {"service_account": {"annotations": {"serving.kserve.io/s3-region": "eu-west-1"}}},
        {"secret_store": STORE},
        {"secret_store": {**STORE, "store_kind": "SecretStore", "path": "neuroscale-{namespace}-{secret}"}},
        {"dns": {"addresses": ["169.254.20.10", "10.96.0.10", "fd00::a"], "node_local": True}},
    ],
)
def test_an_environment_may_say_what_its_cluster_needs(fields: dict[str, Any]) -> None:
    assert problems({"dev": fields}) == []


@pytest.mark.parametrize(
    ("name", "fields", "told"),
    [
        ("dev", {"domain": "Dev.example.org"}, "environments.dev.domain"),
        ("dev", {"workload_identity": "eks"}, "Write `workload_identity: gke`"),
        ("local", {"workload_identity": "gke"}, "Leave workload_identity out"),
        ("dev", {"service_account": {"annotations": GOOGLE}}, "Write `workload_identity: gke` beside it"),
        ("dev", {"service_account": {"name": "default"}}, "Write another name"),
        ("dev", {"service_account": {"annotations": {"argocd.argoproj.io/hook": "Sync"}}}, "service_account"),
        ("dev", {"service_account": {"annotations": {"iam.gke.io/gcp-service-account": "a\nb"}}}, "service_account"),
        ("local", {"service_account": {}}, "no store in a bucket or a volume"),
        ("local", {"domain": "local.example.org"}, "Leave domain out"),
        ("local", {"charts": {"kserve": {"a": 1}}}, "Leave charts out"),
        ("local", {"certificate": ACME}, "Leave certificate out"),
        ("dev", {"charts": {"kserve": {}}}, "environments.dev.charts.kserve"),
        ("local", {"secret_store": STORE}, "has no External Secrets"),
        ("dev", {"secret_store": {**STORE, "path": "neuroscale/{namespace}"}}, "one entry for every Secret"),
        ("dev", {"secret_store": {**STORE, "path": "{team}/{secret}"}}, "secret_store.path"),
        ("dev", {"secret_store": {"kind": "vault", "store": "vault"}}, "secret_store.kind"),
        ("dev", {"dns": {"addresses": ["169.254.20.0/24"]}}, "is not an IP address"),
        ("dev", {"dns": {"addresses": ["0.0.0.0"]}}, "a DNS server that a pod can call"),
        ("dev", {"dns": {"addresses": ["127.0.0.53"]}}, "a DNS server that a pod can call"),
        ("dev", {"dns": {"addresses": ["FD00::A"]}}, "a DNS server that a pod can call"),
        ("dev", {"dns": {"addresses": ["10.96.0.10", "10.96.0.10"]}}, "stands twice"),
        ("dev", {"workload_identities": "gke"}, "workload_identities"),
    ],
)
def test_what_an_environment_cannot_mean_is_refused_with_its_field(
    name: str, fields: dict[str, Any], told: str
) -> None:
    (message,) = problems({name: fields})
    assert message.startswith(FILE)
    assert f": environments.{name}" in message
    assert told in message


def test_two_clusters_with_one_domain_are_refused_once_an_environment_names_it() -> None:
    (message,) = problems({"dev": {"domain": "models.example.com"}})
    assert "environments.dev.domain: models.example.com is also the domain of prod" in message
    both = problems({name: {"domain": "x.example.com"} for name in ("dev", "prod")})
    assert [message.partition(":")[2].split()[0] for message in both] == [
        "environments.dev.domain:",
        "environments.prod.domain:",
    ]
    assert problems({"dev": {"domain": "dev.models.example.com"}}) == []


def test_environments_that_name_no_domain_stay_as_they_were_and_are_noted() -> None:
    assert problems({}) == []
    (note,) = domain_notes(with_settings({}))
    assert "dev and prod" in str(note)
    assert "`domain: dev.models.example.com` below environments.dev" in str(note)
    # The platform on this machine is reached at the loopback, whatever its domain.
    assert domain_notes(with_settings({"dev": {"domain": "dev.models.example.com"}})) == []
    assert domain_notes(SETTINGS) == []


def test_a_runtime_whose_image_the_settings_do_not_allow_is_noted() -> None:
    assert image_notes(SETTINGS, CATALOG) == []
    assert image_notes(SETTINGS.model_copy(update={"registries": None}), CATALOG) == []
    notes = image_notes(SETTINGS.model_copy(update={"registries": ("registry.acme.example/vllm/",)}), CATALOG)
    assert {note.where for note in notes} == {f"platform/catalog/runtimes/{name}.yaml" for name in CATALOG.runtimes}
    assert all("allowed-registries refuses" in note.message for note in notes)


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("vllm/vllm-openai:v1", "docker.io/vllm/vllm-openai:v1"),
        ("python:3", "docker.io/library/python:3"),
        ("quay.io/a/b:1", "quay.io/a/b:1"),
        ("localhost/a", "localhost/a"),
        ("here:5000/a", "here:5000/a"),
    ],
)
def test_an_image_without_a_registry_is_docker_hubs(image: str, full: str) -> None:
    assert full_image(image) == full


def test_files_of_one_cluster_never_lie_among_those_of_a_kind() -> None:
    dev = SETTINGS.environments["dev"].model_copy(update={"domain": "a.example.com"})
    settings = SETTINGS.model_copy(
        update={"environments": {"gke": dev}, "production": SETTINGS.production.model_copy(update={"environments": ()})}
    )
    with pytest.raises(InputError, match="Give the environment another name"):
        check_settings(settings, CATALOG)
    plain = {"gke": dev.model_copy(update={"domain": None})}
    check_settings(settings.model_copy(update={"environments": plain}), CATALOG)


def test_a_plan_changes_with_what_it_holds_of_the_cluster_and_with_nothing_else() -> None:
    silent = with_settings({}).environments["dev"]
    recorded = load_plan((ROOT / "manifests/local/tiny-moe/plan.yaml").read_text(), "plan.yaml").lock
    assert recorded.entries["settings/local"] == _settings_digest(SETTINGS.environments["local"])
    unplanned: tuple[dict[str, Any], ...] = ({"domain": "a.example.com"}, {"certificate": ACME})
    unplanned += ({"charts": {"opencost": {"a": 1}}}, {"dns": {}})
    planned: tuple[dict[str, Any], ...] = (IDENTITY, {"service_account": {}}, {"dns": {"node_local": True}})
    planned += ({"prometheus": {"port": 9}}, {"opencost": {"port": 9}}, {"secret_store": STORE})
    for field in unplanned:
        assert _settings_digest(with_settings({"dev": field}).environments["dev"]) == _settings_digest(silent)
    for field in planned:
        assert _settings_digest(with_settings({"dev": field}).environments["dev"]) != _settings_digest(silent)


def test_only_pods_that_read_the_store_get_an_identity() -> None:
    settings = with_settings({"dev": {**IDENTITY, "service_account": {"annotations": GOOGLE}}})
    stored = plan(make_request(), CATALOG, settings).surroundings
    assert stored.service_account == "model-store"
    assert [(one.address, one.port) for one in stored.metadata_servers] == list(METADATA_SERVERS["gke"])
    hub = plan(make_request(model="google/gemma-4-12B-it"), CATALOG, settings)
    assert hub.model_source.startswith("hf://")
    assert (hub.surroundings.service_account, hub.surroundings.metadata_servers) == ("", ())
