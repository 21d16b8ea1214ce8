"""A service may call a link-local address where its environment declares it, exactly there, and nowhere else."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from neuroscale.catalog.cluster_settings import Dns
from neuroscale.core.errors import InputError
from neuroscale.gate.check import Run
from neuroscale.gate.checks.judged_kinds import _environment
from neuroscale.gate.checks.open_networks import Answering, open_rules
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.repo.layout import TEMPLATE, ServicePath
from platform_repository import SETTINGS


def _declared(of: Run, manifest: Manifest) -> Answering:
    environment = _environment(of, manifest)
    return environment.answering_addresses if environment else ()


def declared_by(**fields: Any) -> frozenset[tuple[str, str, int]]:
    return SETTINGS.environments["prod"].model_copy(update=fields).answering_addresses


GKE = declared_by(workload_identity="gke")
EKS = declared_by(workload_identity="eks")
CACHE = declared_by(dns=Dns(addresses=("169.254.20.10",)))
NONE = declared_by()


def rule(*cidrs: str, ports: Any = None, **more: Any) -> dict[str, Any]:
    return {"to": [{"ipBlock": {"cidr": cidr}} for cidr in cidrs], "ports": ports, **more}


def tcp(*ports: Any) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def is_open(declared: Any, *rules: dict[str, Any]) -> bool:
    return bool(list(open_rules({"podSelector": {}, "policyTypes": ["Egress"], "egress": list(rules)}, declared)))


DNS = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
DATAPLANE, CALICO, AGENT = "169.254.169.254/32", "169.254.169.252/32", "169.254.170.23/32"


@pytest.mark.parametrize(
    ("declared", "rules"),
    [
        (GKE, [rule(DATAPLANE, ports=tcp(80)), rule(CALICO, ports=tcp(988))]),
        (GKE, [rule(DATAPLANE, ports=[{"port": 80}])]),
        (EKS, [rule(AGENT, ports=tcp(80))]),
        (CACHE, [rule("169.254.20.10/32", ports=DNS)]),
        (CACHE, [rule("169.254.20.10/32", ports=DNS[:1])]),
    ],
)
def test_a_declared_address_may_be_called_on_its_port(declared: Any, rules: list[dict[str, Any]]) -> None:
    assert not is_open(declared, *rules)


@pytest.mark.parametrize(
    ("declared", "one"),
    [
        *((NONE, rule(address, ports=tcp(port))) for address, port in ((DATAPLANE, 80), (CALICO, 988), (AGENT, 80))),
        (NONE, rule("169.254.20.10/32", ports=DNS)),
        (GKE, rule(DATAPLANE)),
        (GKE, rule(DATAPLANE, ports=[])),
        (GKE, rule(DATAPLANE, ports=[{"protocol": "TCP"}])),
        (GKE, rule(DATAPLANE, ports=tcp(80, 443))),
        (GKE, rule(DATAPLANE, ports=tcp(988))),
        (GKE, rule(DATAPLANE, ports=tcp("80"))),
        (GKE, rule(DATAPLANE, ports=[{"port": 80, "endPort": 90}])),
        (GKE, rule(DATAPLANE, ports=[{"protocol": "UDP", "port": 80}])),
        (GKE, rule(CALICO, ports=tcp(80))),
        (GKE, rule(AGENT, ports=tcp(80))),
        (GKE, rule(DATAPLANE, CALICO, ports=tcp(80))),
        (GKE, rule("169.254.169.254/31", ports=tcp(80))),
        (GKE, rule("169.254.169.0/24", ports=tcp(80))),
        (GKE, rule("fe80::1/128", ports=tcp(80))),
        (EKS, rule(DATAPLANE, ports=tcp(80))),
        (CACHE, rule("169.254.20.10/32", ports=tcp(80))),
        (CACHE, rule("169.254.20.10/32", ports=[*DNS, *tcp(443)])),
        (CACHE, rule(DATAPLANE, ports=DNS)),
    ],
)
def test_every_other_link_local_address_and_port_is_refused(declared: Any, one: dict[str, Any]) -> None:
    assert is_open(declared, one)


def policy(environment: str | None, file: str = "") -> Manifest:
    value = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": {}}
    service = None if environment is None else ServicePath(environment, "chat")
    (found,) = read_manifests(json.dumps(value).encode(), "a.json")
    place = file or f"manifests/{environment}/chat/networkpolicy.yaml"
    return Manifest(place, found.value, found.document, service=service)


def run(base: Any, head: Any) -> Run:
    def side(identity: Any) -> SimpleNamespace:
        def settings() -> Any:
            if identity is None:
                raise InputError.at("settings", "", "cannot be read", "Correct it.")
            dev = SETTINGS.environments["dev"].model_copy(update={"workload_identity": identity})
            return SETTINGS.model_copy(update={"environments": {"dev": dev}})

        return SimpleNamespace(settings=settings)

    return cast("Run", SimpleNamespace(judge=side(base), after=side(head)))


def test_the_bases_settings_decide_about_a_services_files() -> None:
    assert _declared(run("gke", "none"), policy("dev")) == GKE
    # A change that declares the identity shows what it would render, and cannot use it yet.
    assert not _declared(run("none", "gke"), policy("dev"))
    assert _declared(run("none", "gke"), policy("dev", f"{TEMPLATE}/skeleton/networkpolicy.yaml")) == GKE


def test_an_object_outside_an_environment_that_declares_it_calls_nothing_link_local() -> None:
    assert not _declared(run("gke", "gke"), policy(None))
    assert not _declared(run("gke", "gke"), policy("prod"))
    assert not _declared(run(None, None), policy("dev"))
