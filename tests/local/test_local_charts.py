"""What upstream's charts say reaches the local cluster, but for what needs nodes."""

from __future__ import annotations

import base64
from collections import Counter

import pytest

from admission_lab import values_of
from neuroscale.kube.client import Object
from neuroscale.local import kserve, kyverno
from neuroscale.local.charts import WEBHOOK_KINDS, at_port, program_of, render, settings_of
from neuroscale.local.state import LocalError

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def of_kserve() -> list[Object]:
    return render(kserve.CHART, values_of("kserve", "kserve-no-ingress"))


@pytest.fixture(scope="module")
def of_kyverno() -> list[Object]:
    return render(kyverno.CHART, values_of("kyverno"))


def test_kserve_gets_its_configuration_roles_and_webhooks_but_no_pods(of_kserve: list[Object]) -> None:
    kinds = Counter(found["kind"] for found in settings_of(of_kserve))
    assert kinds["ConfigMap"] == 1
    assert {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"} <= set(kinds)
    assert {"ClusterStorageContainer", *WEBHOOK_KINDS} <= set(kinds)
    assert not {"Deployment", "Service", "Certificate", "Issuer"} & set(kinds)


def test_kyverno_gets_its_configuration_and_roles_but_no_pods_and_hooks(of_kyverno: list[Object]) -> None:
    settings = settings_of(of_kyverno)
    assert {found["kind"] for found in settings} == {
        *("ClusterRole", "ClusterRoleBinding", "ConfigMap", "Role", "RoleBinding", "ServiceAccount")
    }
    assert any(found["kind"] == "CustomResourceDefinition" for found in of_kyverno)


def test_a_program_runs_with_the_arguments_and_the_environment_of_its_container(of_kyverno: list[Object]) -> None:
    program = program_of(of_kyverno, "kyverno-admission-controller", "kyverno")
    assert program.service_account == "kyverno-admission-controller"
    assert program.environment["KYVERNO_NAMESPACE"] == "kyverno"
    assert program.environment["INIT_CONFIG"] == "kyverno"
    # What could switch a policy off, or judge in other words.
    assert {
        *("--forceFailurePolicyIgnore=false", "--enablePolicyException=false"),
        *("--generateValidatingAdmissionPolicy=false", "--autoUpdateWebhooks=true"),
    } <= set(program.arguments)


def test_a_program_that_a_chart_does_not_have_is_an_error(of_kserve: list[Object]) -> None:
    with pytest.raises(LocalError, match="no container manager"):
        program_of(of_kserve, "kserve-localmodel", "manager")


def test_a_webhook_of_this_machine_keeps_its_path_and_what_its_failure_leads_to(of_kserve: list[Object]) -> None:
    for found in settings_of(of_kserve):
        if found["kind"] not in WEBHOOK_KINDS:
            continue
        for webhook in at_port(found, 9443, "AUTHORITY")["webhooks"]:
            assert webhook["failurePolicy"] == "Fail"
            assert webhook["clientConfig"]["url"].startswith("https://127.0.0.1:9443/")
            assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == b"AUTHORITY"
            assert set(webhook["clientConfig"]) == {"url", "caBundle"}
