"""Two clusters of one kind differ as their environments say: domains, charts, accounts and what pods may call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from neuroscale.catalog.settings import Settings
from neuroscale.cluster.endpoint import key
from neuroscale.core.errors import InputError
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import dump
from neuroscale.gate.checks.open_networks import open_rules
from neuroscale.gate.checks.stored_keys import stored_key_findings
from neuroscale.manifests.objects import read_manifests
from neuroscale.planning.plan import dump_plan, load_plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.object_names import secret_name
from neuroscale.rendering.platform import files
from neuroscale.rendering.platform.chart_pods import platform_pods
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import KEY_FILE, ServicePath
from neuroscale.repo.layout import SETTINGS as FILE
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, TEMPLATE, rendered_platform

GOOGLE = {"iam.gke.io/gcp-service-account": "models@example-project.iam.gserviceaccount.com"}
CERT_MANAGER = {"serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "dns@example.com"}}}
IDENTITY = {"workload_identity": "gke", "service_account": {"annotations": GOOGLE, "bucket_secret": "bucket"}}
STORE = {"kind": "external-secrets", "store": "vault", "path": "models/{namespace}/{secret}"}


def changed(**environments: dict[str, Any]) -> Settings:
    """The example's settings with fields of environments replaced, and no domain but the one at the top."""
    value = SETTINGS.model_dump(mode="json", exclude_unset=True)
    del value["environments"]["dev"]["domain"]
    for name, fields in environments.items():
        value["environments"][name] |= fields
    return parse(Settings, dump(value), FILE)


def rendered(**environments: dict[str, Any]) -> dict[str, str]:
    return files.render(SNAPSHOT, CATALOG, changed(**environments))


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def values(text: str) -> dict[str, Any]:
    (application,) = (one for one in documents(text) if one["kind"] == "Application")
    found: dict[str, Any] = application["spec"]["source"]["helm"]["valuesObject"]
    return found


def parts(found: dict[str, str], environment: str) -> dict[str, str]:
    """The folders that Argo CD of an environment reads, by the application."""
    applications = documents(found[f"platform/argocd/{environment}/root.yaml"])
    return {one["metadata"]["name"]: one["spec"]["source"]["path"] for one in applications if one}


SILENT = rendered()


def test_each_environment_with_a_domain_has_a_gateway_and_services_below_it() -> None:
    found = rendered(dev={"domain": "dev.models.example.com"})
    for environment, domain in (("dev", "dev.models.example.com"), ("prod", "models.example.com")):
        folder = parts(found, environment)["platform-upstream"]
        hosts = {
            listener["hostname"]
            for one in documents(found[f"{folder}/gateway.yaml"])
            if one["kind"] == "Gateway"
            for listener in one["spec"]["listeners"]
            if "hostname" in listener
        }
        assert hosts == {f"*.{domain}"}
        names = [
            one["spec"]["dnsNames"] for one in documents(found[f"{folder}/gateway.yaml"]) if "dnsNames" in one["spec"]
        ]
        assert names == [[f"*.{domain}"]]
        assert values(found[f"{folder}/kserve.yaml"])["kserve"]["controller"]["gateway"]["domain"] == domain


def test_an_environment_that_differs_gets_a_folder_and_nothing_else_moves() -> None:
    found = rendered(dev={"charts": {"cert-manager": CERT_MANAGER}})
    folder = "platform/clusters/dev/upstream"
    assert parts(found, "dev")["platform-upstream"] == folder
    root = "platform/argocd/dev/root.yaml"
    assert {path: text for path, text in found.items() if not path.startswith(folder) and path != root} == {
        path: text for path, text in SILENT.items() if path != root
    }
    gke = {path.rpartition("/")[2]: text for path, text in SILENT.items() if path.startswith("platform/clusters/gke/")}
    own = {path.rpartition("/")[2]: text for path, text in found.items() if path.startswith(f"{folder}/")}
    assert {name for name in gke.keys() | own.keys() if gke.get(name) != own.get(name)} == {"cert-manager.yaml"}
    assert values(own["cert-manager.yaml"]) == {**values(gke["cert-manager.yaml"]), **CERT_MANAGER}
    assert own["cert-manager.yaml"].startswith(f"# Rendered from platform/clusters/charts.yaml, {FILE}.\n")
    assert all(files.is_rendered(path) for path in found if path.startswith(folder))


def test_values_of_an_environment_lie_over_those_of_the_kind_and_below_its_domain() -> None:
    more = {"kserve": {"controller": {"resources": {"limits": {"cpu": "4"}}, "gateway": {"domain": "other.example"}}}}
    found = rendered(prod={"charts": {"kserve": more}})
    controller = values(found["platform/clusters/prod/upstream/kserve.yaml"])["kserve"]["controller"]
    assert controller["resources"] == {
        "requests": {"cpu": "100m", "memory": "300Mi"},
        "limits": {"cpu": "4", "memory": "1Gi"},
    }
    assert controller["gateway"]["domain"] == "models.example.com"


def test_an_environments_certificate_comes_from_its_own_authority() -> None:
    found = rendered(dev={"certificate": {"issuer": "own"}})
    assert found["platform/clusters/dev/upstream/gateway.yaml"] == SILENT["platform/clusters/kind/gateway.yaml"]
    assert found["platform/clusters/gke/gateway.yaml"] == SILENT["platform/clusters/gke/gateway.yaml"]


@pytest.mark.parametrize(
    ("charts", "told"),
    [
        ({"cert-manger": {"a": 1}}, "environments.dev.charts.cert-manger"),
        ({"nvidia-device-plugin": {"a": 1}}, "no chart of that name for clusters of the kind gke"),
    ],
)
def test_values_for_a_chart_that_the_cluster_does_not_get_are_refused(charts: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        rendered(dev={"charts": charts})


def test_an_environment_cannot_hide_a_teams_namespace_from_kyverno() -> None:
    rule = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "team-beta"]}
    webhooks = {"namespaceSelector": {"matchExpressions": [rule]}}
    with pytest.raises(InputError, match=r"'team-beta' .* environments.dev.charts.kyverno"):
        rendered(dev={"charts": {"kyverno": {"config": {"webhooks": webhooks}}}})
    webhooks["namespaceSelector"]["matchExpressions"] = []
    with pytest.raises(InputError, match=r"environments\.dev\.charts\.kyverno\.config\.webhooks"):
        rendered(dev={"charts": {"kyverno": {"config": {"webhooks": webhooks}}}})


def test_what_pods_of_a_changed_chart_request_is_unknown_there_alone() -> None:
    settings = changed(dev={"charts": {"kyverno": {"admissionController": {"replicas": 9}}}})
    assert platform_pods(SNAPSHOT, settings, "prod").unknown == ()
    assert [one.name for one in platform_pods(SNAPSHOT, settings, "dev").unknown] == ["kyverno"]


def test_every_team_gets_the_account_in_that_environment_alone() -> None:
    found = rendered(dev=IDENTITY)
    new = {path: text for path, text in found.items() if path not in SILENT}
    assert set(new) == {f"platform/clusters/dev/teams/{team}.yaml" for team in CATALOG.teams}
    for team in CATALOG.teams.values():
        (account,) = documents(new[f"platform/clusters/dev/teams/{team.name}.yaml"])
        assert (account["metadata"]["name"], account["metadata"]["namespace"]) == ("model-store", team.namespace)
        assert account["metadata"]["annotations"] == GOOGLE
        assert account["secrets"] == [{"name": "bucket"}]
        assert account["automountServiceAccountToken"] is False
    assert parts(found, "dev") == {**parts(SILENT, "dev"), "platform-teams": "platform/clusters/dev/teams"}
    assert parts(found, "prod") == parts(SILENT, "prod")
    (plain, *_) = (documents(text) for path, text in rendered(dev={"service_account": {}}).items() if "/teams/" in path)
    assert not {"annotations", "secrets"} & {*plain[0], *plain[0]["metadata"]}


def test_the_secrets_of_a_team_come_out_of_the_store_of_the_environment() -> None:
    found = rendered(dev={**IDENTITY, "secret_store": STORE})
    account, bucket, token = documents(found["platform/clusters/dev/teams/team-beta.yaml"])
    assert account == documents(rendered(dev=IDENTITY)["platform/clusters/dev/teams/team-beta.yaml"])[0]
    for one in (bucket, token):
        assert (one["apiVersion"], one["kind"]) == ("external-secrets.io/v1", "ExternalSecret")
        assert one["metadata"]["namespace"] == "team-beta"
        assert one["spec"]["secretStoreRef"] == {"name": "vault", "kind": "ClusterSecretStore"}
        assert one["spec"]["target"]["name"] == one["metadata"]["name"]
    assert bucket["metadata"]["name"] == account["secrets"][0]["name"]
    assert bucket["spec"]["dataFrom"] == [{"extract": {"key": "models/team-beta/bucket"}}]
    # The Secret and the entry that a service's HF_TOKEN refers to.
    wanted = SETTINGS.environments["dev"].token_secret
    assert token["metadata"]["name"] == wanted.name
    key = f"models/team-beta/{wanted.name}"
    assert token["spec"]["data"] == [{"secretKey": wanted.key, "remoteRef": {"key": key, "property": wanted.key}}]
    assert "platform-teams" in parts(found, "dev")
    assert {path for path in found if path not in SILENT} == {
        f"platform/clusters/dev/teams/{team}.yaml" for team in CATALOG.teams
    }


def service(settings: Settings, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The pods of a service, and what they may call."""
    request = make_request(**more)
    made = plan(request, CATALOG, settings, TEMPLATE.version)
    assert load_plan(dump_plan(made), "plan.yaml") == made
    texts = render(request, made, TEMPLATE)
    network = yaml.safe_load(texts["networkpolicy.yaml"])["spec"]
    return yaml.safe_load(texts["inferenceservice.yaml"])["spec"]["predictor"], network["egress"]


def test_a_service_of_the_store_may_ask_the_metadata_server_and_no_other_address() -> None:
    pods, egress = service(changed(dev=IDENTITY))
    before, plain = service(changed())
    assert pods == {**before, "serviceAccountName": "model-store"}
    servers = [
        {"ports": [{"protocol": "TCP", "port": port}], "to": [{"ipBlock": {"cidr": f"{address}/32"}}]}
        for address, port in (("169.254.169.254", 80), ("169.254.169.252", 988))
    ]
    assert [rule for rule in egress if rule not in plain] == servers
    assert [rule for rule in plain if rule not in egress] == []
    spec = {"policyTypes": ["Egress"], "egress": egress}
    assert not list(open_rules(spec, changed(dev=IDENTITY).environments["dev"].answering_addresses))
    assert len(list(open_rules(spec))) == 2


def test_a_model_of_the_hub_needs_no_identity() -> None:
    model = "google/gemma-4-12B-it"
    assert service(changed(dev=IDENTITY), model=model) == service(changed(), model=model)


def test_dns_of_the_environment_answers_beside_kube_dns() -> None:
    dns = {"addresses": ["169.254.20.10", "fd00::a"], "node_local": True}
    pods, egress = service(changed(dev={"dns": dns}))
    before, plain = service(changed())
    assert pods == before
    added = [peer for peer in egress[0]["to"] if peer not in plain[0]["to"]]
    assert added == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "node-local-dns"}},
        },
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
        {"ipBlock": {"cidr": "fd00::a/128"}},
    ]
    assert {port["port"] for port in egress[0]["ports"]} == {53}
    assert egress[1:] == plain[1:]


def test_the_key_of_a_service_comes_out_of_the_store_as_the_secret_that_would_be_made() -> None:
    request = make_request()
    with_store, without = (
        render(request, plan(request, CATALOG, settings, TEMPLATE.version), TEMPLATE)
        for settings in (changed(dev={"secret_store": STORE}), changed())
    )
    assert set(with_store) - set(without) == {KEY_FILE}
    service, before = (yaml.safe_load(texts["inferenceservice.yaml"]) for texts in (with_store, without))
    assert service == before
    assert {name for name in without if without[name] != with_store[name]} == {"plan.yaml", "inferenceservice.yaml"}
    found = yaml.safe_load(with_store[KEY_FILE])
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == (request.service, "team-alpha")
    assert found["spec"]["secretStoreRef"] == {"name": "vault", "kind": "ClusterSecretStore"}
    # What `key.ensure` makes: name, type, labels and entry.
    target = found["spec"]["target"]
    wanted = key.reference(service)
    assert wanted is not None
    labels = key._belonging(request.service, {"metadata": {**service["metadata"], "uid": "1"}}, {})["labels"]
    assert target["name"] == wanted.name == secret_name(request.service)
    assert target["template"] == {"type": "Opaque", "metadata": {"labels": labels}}
    stored = {"key": f"models/team-alpha/{wanted.name}", "property": wanted.entry}
    assert found["spec"]["data"] == [{"secretKey": wanted.entry, "remoteRef": stored}]
    # Nothing else of the store, and nothing that is not the judge's whole form.
    (manifest,) = read_manifests(with_store[KEY_FILE].encode(), f"x/{KEY_FILE}", ServicePath("dev", request.service))
    assert (
        list(
            stored_key_findings(
                "kinds", manifest, changed(dev={"secret_store": STORE}).environments["dev"].secret_store
            )
        )
        == []
    )


def test_argo_cd_takes_an_external_secret_where_the_environment_has_a_store_alone() -> None:
    found = rendered(dev={"secret_store": STORE})
    different = {path for path in found if found[path] != SILENT.get(path)}
    teams = {path for path in different if path.startswith("platform/clusters/dev/teams/")}
    assert different - teams == {f"platform/argocd/dev/{name}.yaml" for name in ("projects", "root", "services")}
    (project,) = (
        one for one in documents(found["platform/argocd/dev/projects.yaml"]) if one["metadata"]["name"] == "services"
    )
    assert {"group": "external-secrets.io", "kind": "ExternalSecret"} in project["spec"]["namespaceResourceWhitelist"]
    assert KEY_FILE in found["platform/argocd/dev/services.yaml"]


def test_a_template_that_does_not_render_the_key_is_named() -> None:
    request, kept = make_request(), {path: text for path, text in TEMPLATE.files.items() if KEY_FILE not in path}
    made = plan(request, CATALOG, changed(dev={"secret_store": STORE}), TEMPLATE.version)
    with pytest.raises(InputError, match=rf"Let it render exactly .*{KEY_FILE}"):
        render(request, made, replace(TEMPLATE, files=kept))


def test_plans_of_an_environment_that_says_nothing_hold_nothing_new() -> None:
    text = dump_plan(plan(make_request(), CATALOG, changed(), TEMPLATE.version))
    around = yaml.safe_load(text)["surroundings"]
    assert set(around) == {"token_secret", "token_key", "client_namespaces"}


def test_the_example_gives_each_of_its_clusters_a_domain() -> None:
    found = rendered_platform()
    assert parts(dict(found), "dev")["platform-upstream"] == "platform/clusters/dev/upstream"
    assert parts(dict(found), "prod")["platform-upstream"] == "platform/clusters/gke"
