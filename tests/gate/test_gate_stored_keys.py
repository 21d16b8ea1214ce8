"""The ExternalSecret of a service's API key: only the one that settings and plan render to passes the gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gate_lab import SERVICE, gate, pristine, repository, rules
from neuroscale.catalog.cluster_settings import SecretStore
from neuroscale.cli.platform import render_platform
from neuroscale.cli.replan import replan_service
from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks import stored_keys
from neuroscale.gate.checks.stored_keys import check_tripwires, stored_key_findings
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.repo.layout import KEY_FILE, ServicePath
from platform_repository import SETTINGS
from repositories import Repository

__all__ = ["pristine", "repository"]

FILE = f"{SERVICE}/{KEY_FILE}"
DEV = "    domain: dev.models.example.com\n"
STORE = "    secret_store: {kind: external-secrets, store: vault}\n"


@pytest.fixture
def stored(repository: Repository) -> Repository:
    """A repository whose main has a secret store in dev, and a branch that takes a service's key from it."""
    settings = (repository.root / "platform/settings.yaml").read_text()
    repository.run("switch", "--quiet", "main")
    assert settings.count(DEV) == 1
    (repository.root / "platform/settings.yaml").write_text(settings.replace(DEV, DEV + STORE))
    render_platform(repository=repository.root)
    repository.commit({}, "Name the store")
    repository.run("switch", "--quiet", "added")
    repository.run("rebase", "--quiet", "main")
    replan_service("support-chat", repository.root)
    repository.commit({}, "Take the key from the store")
    return repository


@pytest.mark.tools
def test_the_rendered_one_passes_and_the_verdict_says_that_no_schema_judged_it(stored: Repository) -> None:
    assert (stored.root / FILE).is_file()
    verdict = gate(stored)
    assert (verdict["exit_status"], verdict["findings"]) == (0, [])
    (line,) = (line for line in verdict["not_checked"] if "External Secrets" in line)
    assert "held the form of 1 ExternalSecret against the settings" in line


@pytest.mark.tools
def test_the_store_itself_is_a_change_that_passes_and_shows_what_services_get(stored: Repository) -> None:
    stored.run("switch", "--quiet", "main")
    verdict = gate(stored, base="main~1")
    assert verdict["exit_status"] == 0
    assert any(each["kind"] == "ExternalSecret" for each in verdict["effects"]["differences"])


@pytest.mark.tools
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("refreshInterval: 1h0m0s", "refreshInterval: 2h0m0s", {"drift/edited"}),
        ("name: vault", "name: theirs", {"drift/edited", "kinds/stored-key"}),
        ("namespace: team-alpha", "namespace: team-beta", {"drift/edited", "files/wrong-namespace"}),
        ("", None, {"drift/edited"}),
        ("external-secrets.io/v1", "external-secrets.io/v1beta1", {"drift/edited", "schema/no-schema"}),
    ],
)
def test_each_edit_of_it_is_found(stored: Repository, old: str, new: str | None, expected: set[str]) -> None:
    text = (stored.root / FILE).read_text()
    assert old in text
    stored.commit({FILE: None if new is None else text.replace(old, new, 1)}, "Edit it")
    verdict = gate(stored)
    assert verdict["exit_status"] == 1
    assert expected <= rules(verdict)


@pytest.mark.tools
def test_one_in_an_environment_without_a_store_is_refused(repository: Repository) -> None:
    repository.commit({FILE: GOOD.replace("chat", "support-chat")}, "Bring one")
    assert rules(gate(repository)) == {"drift/edited", "kinds/no-secret-store"}


# The rule itself ------------------------------------------------------------------------------------------------------

GOOD = """\
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: chat, namespace: team-alpha, labels: {cost-center: a}}
spec:
  refreshInterval: 1h0m0s
  secretStoreRef: {name: vault, kind: ClusterSecretStore}
  target:
    name: chat-api-key
    creationPolicy: Owner
    deletionPolicy: Retain
    template: {type: Opaque, metadata: {labels: {cost-center: a}}}
  data:
    - secretKey: api-key
      remoteRef: {key: team-alpha/chat-api-key, property: api-key}
"""
VAULT = SecretStore(kind="external-secrets", store="vault")


def manifest(text: str) -> Manifest:
    return read_manifests(text.encode(), FILE, ServicePath("dev", "chat"))[0]


def edited(change: Callable[[dict[str, Any]], None]) -> Manifest:
    value = yaml.safe_load(GOOD)
    change(value["spec"])
    return manifest(yaml.safe_dump(value))


def found(of: Manifest) -> list[str]:
    return [finding.message for finding in stored_key_findings("kinds", of, VAULT)]


def test_a_good_one_passes_however_often_the_key_is_read() -> None:
    assert found(manifest(GOOD)) == []
    assert found(edited(lambda spec: spec.update(refreshInterval="5m", refreshPolicy="Periodic"))) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda spec: spec["secretStoreRef"].update(name="theirs"), "spec.secretStoreRef.name is 'theirs'"),
        (lambda spec: spec["secretStoreRef"].update(kind="SecretStore"), "spec.secretStoreRef.kind"),
        (lambda spec: spec["target"].update(name="other-api-key"), "spec.target.name is 'other-api-key'"),
        (lambda spec: spec["target"].pop("name"), "spec.target.name is missing"),
        (lambda spec: spec["target"].update(creationPolicy="Merge"), "spec.target.creationPolicy"),
        (lambda spec: spec["target"].update(manifest={"kind": "ConfigMap"}), "spec.target.manifest"),
        (lambda spec: spec["target"]["template"].update(templateFrom=[{"target": "Labels"}]), "templateFrom"),
        (lambda spec: spec["target"]["template"].update(data={"api-key": "x"}), "spec.target.template.data"),
        (lambda spec: spec["target"]["template"].update(type="kubernetes.io/tls"), "spec.target.template.type"),
        (lambda spec: spec["target"]["template"]["metadata"].pop("labels"), "labels"),
        (lambda spec: spec["data"][0]["remoteRef"].update(key="team-beta/chat-api-key"), "remoteRef.key"),
        (lambda spec: spec["data"][0]["remoteRef"].update(property="token"), "remoteRef.property"),
        (lambda spec: spec["data"][0]["remoteRef"].update(version="1"), "remoteRef.version"),
        (lambda spec: spec["data"][0].update(sourceRef={"storeRef": {"name": "theirs"}}), "sourceRef"),
        (lambda spec: spec["data"].append({"secretKey": "b", "remoteRef": {"key": "team-beta/x"}}), "spec.data"),
        (lambda spec: spec.update(dataFrom=[{"extract": {"key": "team-beta/x"}}]), "spec.dataFrom"),
        (lambda spec: spec.clear(), "spec"),
    ],
)
def test_whatever_it_reads_or_writes_beside_the_services_own_key_is_found(
    change: Callable[[dict[str, Any]], None],
    place: str,
) -> None:
    assert any(place in message for message in found(edited(change))), found(edited(change))


@pytest.mark.parametrize("spec", ["null", "[]", "text", "{}"])
def test_a_spec_of_another_form_is_found(spec: str) -> None:
    assert found(manifest(GOOD.partition("spec:")[0] + f"spec: {spec}\n"))
    assert found(manifest(GOOD.partition("spec:")[0]))


def test_without_a_store_none_is_good() -> None:
    (finding,) = stored_key_findings("kinds", manifest(GOOD), SETTINGS.environments["dev"].secret_store)
    assert finding.rule == "no-secret-store"
    assert "environments.dev" in finding.message


def test_a_gate_that_lost_the_rule_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_tripwires("kinds") == 2
    monkeypatch.setattr(stored_keys, "raw_changes", lambda *_: ())
    with pytest.raises(UntrustedError, match="ExternalSecret"):
        check_tripwires("kinds")
