"""The way to a pod, and its key: a real API server, kubectl's port-forward, and KWOK in place of a kubelet."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from api_server import ApiServer
from cluster_lab import install_kinds
from endpoint_lab import Pods, pods, running_kwok
from neuroscale.cluster.endpoint import chat, key
from neuroscale.cluster.endpoint.access import open_endpoint, ready_pods
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.forward import find_kubectl, port_forward
from neuroscale.cluster.endpoint.key_rotation import rotate
from neuroscale.core.errors import InputError
from neuroscale.core.secret_text import SecretText
from neuroscale.kube.client import Cluster, Object
from waiting import wait_for

VAULT = {"apiVersion": "x/v1", "kind": "ExternalSecret", "name": "vault", "uid": "1", "controller": True}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kwok(api_server: ApiServer) -> Iterator[ApiServer]:
    install_kinds(api_server)
    with running_kwok(api_server):
        yield api_server


@pytest.fixture
def lab(kwok: ApiServer) -> Iterator[Pods]:
    with pods(kwok, f"endpoint-{next(_numbers)}") as found:
        yield found


@pytest.fixture
def cluster(lab: Pods) -> Iterator[Cluster]:
    """As a command reads it: from a kubeconfig, which kubectl is given as well."""
    with Cluster.of_kubeconfig(lab.server.kubeconfig, lab.server.context) as found:
        yield found


def user_with(lab: Pods, name: str, rules: list[Object]) -> Path:
    """The kubeconfig of a user who may do so much in the namespace."""
    version, place = "rbac.authorization.k8s.io/v1", {"name": name, "namespace": lab.namespace}
    lab.cluster.apply({"apiVersion": version, "kind": "Role", "metadata": place, "rules": rules})
    lab.cluster.apply(
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": place,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        }
    )
    return lab.server.kubeconfig_of(name)


def quiet(_: str) -> None:
    """Nobody reads what a test's rotation tells."""


# The port-forward -----------------------------------------------------------------------------------------------------


def test_many_long_streams_go_through_one_port_forward_also_when_some_are_given_up(lab: Pods, cluster: Cluster) -> None:
    lab.add("a", key="x")
    seen: collections.Counter[int] = collections.Counter()

    def read(url: str, most: int) -> None:
        with httpx.stream("GET", f"{url}/slow", trust_env=False, timeout=180) as response:
            lines = 0
            for _ in itertools.islice(response.iter_lines(), most):
                lines += 1
            seen[lines] += 1

    with port_forward(cluster, lab.namespace, "a", 8080) as port:
        url = f"http://127.0.0.1:{port}"
        threads = [threading.Thread(target=read, args=(url, 3 if index < 8 else 99)) for index in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == {3: 8, 20: 24}
        assert httpx.get(f"{url}/v1/models", trust_env=False).status_code == 401
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_a_server_that_comes_back_is_reached_again_on_the_same_port(lab: Pods, cluster: Cluster) -> None:
    lab.add("a", key="x")
    with port_forward(cluster, lab.namespace, "a", 8080) as port:
        url = f"http://127.0.0.1:{port}/v1/models"
        assert httpx.get(url, trust_env=False).status_code == 401
        lab.stop("a")
        for _ in range(3):
            with pytest.raises(httpx.TransportError):
                httpx.get(url, trust_env=False)
        lab.add("a", key="x")

        def answers() -> bool:
            try:
                return httpx.get(url, trust_env=False).status_code == 401
            except httpx.TransportError:
                return False

        wait_for(answers, what="the server is reached again")


def test_a_pod_that_is_not_there_is_told_at_once(lab: Pods, cluster: Cluster) -> None:
    with (
        pytest.raises(EndpointError, match='pods "nobody" not found'),
        port_forward(cluster, lab.namespace, "nobody", 8080),
    ):
        pass


def test_whoever_may_not_forward_ports_is_told_so(lab: Pods) -> None:
    lab.add("a", key="x")
    stranger = lab.server.kubeconfig_of("stranger-to-ports")
    with (
        Cluster.of_kubeconfig(stranger, None) as weak,
        pytest.raises(EndpointError, match=r"[Ff]orbidden.*can-i"),
        port_forward(weak, lab.namespace, "a", 8080),
    ):
        pass


def test_no_port_forward_outlives_a_program_that_is_killed(lab: Pods) -> None:
    lab.add("a", key="x")
    program = (
        "import sys, time; from pathlib import Path\n"
        "from neuroscale.kube.client import Cluster\n"
        "from neuroscale.cluster.endpoint.forward import port_forward\n"
        "with port_forward(Cluster.of_kubeconfig(Path(sys.argv[1]), None), sys.argv[2], 'a', 8080) as port:\n"
        "    print(port, flush=True); time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", program, str(lab.server.kubeconfig), lab.namespace]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1/models"
        assert httpx.get(url, trust_env=False).status_code == 401
        process.kill()

    def is_gone() -> bool:
        try:
            httpx.get(url, trust_env=False)
        except httpx.ConnectError:
            return True
        return False

    wait_for(is_gone, what="nothing listens any more")


def test_where_there_is_no_kubectl_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match=r"kubectl: is not on PATH.*--base-url"):
        find_kubectl()
    beside = tmp_path / "kubectl"
    beside.write_text("#!/bin/sh\n")
    beside.chmod(0o755)
    assert find_kubectl() == beside


# The endpoint ---------------------------------------------------------------------------------------------------------


def test_an_endpoint_is_a_ready_pod_with_the_key_of_its_secret(lab: Pods, cluster: Cluster) -> None:
    lab.put_service()
    made = key.ensure(cluster, lab.namespace, lab.service)
    lab.add("a")
    with open_endpoint(cluster, lab.namespace, lab.service) as endpoint:
        assert (endpoint.how, endpoint.pod, endpoint.model) == ("port-forward", "a", "tiny")
        assert endpoint.key == made.key
        assert chat.models(endpoint) == (chat.Model("tiny", 16),)
        for wrong in (None, SecretText("wrong-" * 5)):
            with pytest.raises(EndpointError) as caught:
                chat.models(dataclasses.replace(endpoint, key=wrong))
            assert caught.value.status == 401


def test_the_key_of_the_environment_comes_first(
    lab: Pods, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab.add("a", key="from-the-environment-0123")
    file = tmp_path / "key"
    file.write_text("from-the-environment-0123\n")
    file.chmod(0o600)
    monkeypatch.setenv(key.KEY_FILE_VARIABLE, str(file))
    with open_endpoint(cluster, lab.namespace, lab.service) as endpoint:
        assert chat.models(endpoint)
    file.chmod(0o644)
    with pytest.raises(InputError, match="0600"), open_endpoint(cluster, lab.namespace, lab.service):
        pass


def test_a_secret_that_is_missing_is_named_with_what_makes_it(lab: Pods, cluster: Cluster) -> None:
    lab.add("a", key="x")
    told = f"the Secret {lab.namespace}/chat-api-key: is missing.*neuroscale key chat"
    with pytest.raises(InputError, match=told), open_endpoint(cluster, lab.namespace, lab.service):
        pass


def test_without_a_ready_pod_it_is_said_what_the_pods_do(lab: Pods, cluster: Cluster) -> None:
    with pytest.raises(EndpointError, match="there is no InferenceService of this name"):
        ready_pods(cluster, lab.namespace, lab.service)
    lab.put_service()
    with pytest.raises(EndpointError, match="it has no pods"):
        ready_pods(cluster, lab.namespace, lab.service)
    waiting = {"serving.kserve.io/inferenceservice": lab.service}
    lab.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "waiting", "namespace": lab.namespace, "labels": waiting},
            "spec": {"containers": [{"name": "kserve-container", "image": "vllm"}]},
        }
    )
    with pytest.raises(EndpointError, match="waiting: waits for the scheduler"):
        ready_pods(cluster, lab.namespace, lab.service)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://models.example.com", "is not encrypted, so the key could be read on the way"),
        ("https://user:secret@models.example.com", "holds a user or a password"),
        ("models.example.com", "is not a web address"),
        ("file:///etc/passwd", "is not a web address"),
    ],
)
def test_a_key_goes_to_no_address_that_is_not_safe(address: str, told: str) -> None:
    given = SecretText("a-key-0123456789abc")
    with pytest.raises(InputError, match=told), open_endpoint(None, "", "chat", base_url=address, api_key=given):
        pass


def test_an_address_needs_a_key_from_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(key.KEY_VARIABLE, raising=False)
    with (
        pytest.raises(InputError, match=key.KEY_VARIABLE),
        open_endpoint(None, "", "chat", base_url="https://x.example"),
    ):
        pass


# The key --------------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_with_its_owner_and_never_overwritten(lab: Pods, cluster: Cluster) -> None:
    service = lab.put_service()
    first, second = (key.ensure(cluster, lab.namespace, lab.service) for _ in range(2))
    assert (first.created, second.created) == (True, False)
    assert first.key == second.key
    assert len(first.key.secret) >= 43
    assert first.key.secret not in repr(first)
    secret = cluster.get("v1", "Secret", "chat-api-key", lab.namespace) or {}
    assert (secret["type"], secret["immutable"]) == ("Opaque", False)
    assert secret["metadata"]["labels"] == {
        "app.kubernetes.io/name": "chat",
        "app.kubernetes.io/managed-by": "neuroscale",
        "app.kubernetes.io/owner": "team-alpha",
        "cost-center": "cc-1",
    }
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == service["metadata"]["uid"]


def test_a_key_that_external_secrets_has_not_written_yet_is_not_made(lab: Pods, cluster: Cluster) -> None:
    file = f"manifests/dev/{lab.service}/externalsecret.yaml"
    with pytest.raises(InputError, match=rf"External Secrets writes it .* Enter the key there, as {file} names it"):
        key.check_stored(cluster, lab.namespace, lab.service, file)
    key.ensure(cluster, lab.namespace, lab.service)
    key.check_stored(cluster, lab.namespace, lab.service, file)


def test_a_key_that_came_before_its_service_goes_with_it_later(lab: Pods, cluster: Cluster) -> None:
    first = key.ensure(cluster, lab.namespace, lab.service)
    assert "ownerReferences" not in (cluster.get("v1", "Secret", "chat-api-key", lab.namespace) or {})["metadata"]
    lab.put_service()
    assert key.ensure(cluster, lab.namespace, lab.service).key == first.key
    secret = cluster.get("v1", "Secret", "chat-api-key", lab.namespace) or {}
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "InferenceService"
    assert secret["metadata"]["labels"]["cost-center"] == "cc-1"


def test_of_several_at_once_one_makes_the_key_and_all_get_it(lab: Pods, cluster: Cluster) -> None:
    found: list[key.Ensured] = []
    threads = [
        threading.Thread(target=lambda: found.append(key.ensure(cluster, lab.namespace, lab.service))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.key for one in found}) == 1
    assert [one.created for one in found].count(True) == 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "open to everybody"),
        ({"api-key": ""}, "open to everybody"),
        ({"api-key": "short"}, "holds text that is not a key"),
        ({"api-key": "with-a-line-break-at-its-end\n"}, "holds text that is not a key"),
        ({"api-key": "with spaces in the middle"}, "holds text that is not a key"),
    ],
)
def test_a_secret_with_which_the_endpoint_would_be_open_or_closed_to_all_is_refused_unseen(
    lab: Pods, cluster: Cluster, data: dict[str, str], told: str
) -> None:
    metadata = {"name": "chat-api-key", "namespace": lab.namespace}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    for look in (key.ensure, key.read):
        with pytest.raises(InputError, match=f"{told}.*--rotate") as caught:
            look(cluster, lab.namespace, lab.service)
        assert not any(text in str(caught.value) for text in data.values() if text)


def test_whoever_may_only_read_gets_the_key_and_makes_none(lab: Pods, cluster: Cluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    rules += [{"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices"], "verbs": ["get"]}]
    with Cluster.of_kubeconfig(user_with(lab, "reads-one-secret", rules), None) as weak:
        with pytest.raises(InputError, match=r"you may not create it.*neuroscale key chat"):
            key.ensure(weak, lab.namespace, lab.service)
        made = key.ensure(cluster, lab.namespace, lab.service)
        lab.put_service()
        assert key.ensure(weak, lab.namespace, lab.service).key == made.key
    told = f"is a Secret that you may not read.*{key.KEY_VARIABLE}"
    stranger = Cluster.of_kubeconfig(lab.server.kubeconfig_of("nobody-at-all"), None)
    with stranger, pytest.raises(InputError, match=told):
        key.read(stranger, lab.namespace, lab.service)


# Rotation -------------------------------------------------------------------------------------------------------------


def test_a_rotation_replaces_pods_one_by_one_and_proves_the_new_key(lab: Pods, cluster: Cluster) -> None:
    lab.put_service()
    before = key.ensure(cluster, lab.namespace, lab.service).key
    lab.add("a")
    lab.add("b")
    told: list[str] = []
    with lab.replaced() as made:
        done = rotate(cluster, lab.namespace, lab.service, told.append, seconds=30)
    assert done.proven, done
    assert sorted(done.replaced) == ["a", "b"]
    assert lab.names() == set(made) == {"new-0", "new-1"}
    after = key.read(cluster, lab.namespace, lab.service)
    assert after != before
    assert not any(secret.secret in line for line in told for secret in (before, after))
    with open_endpoint(cluster, lab.namespace, lab.service) as endpoint:
        assert chat.models(endpoint)
        with pytest.raises(EndpointError, match="401"):
            chat.models(dataclasses.replace(endpoint, key=before))


def test_an_outage_happens_only_when_it_is_asked_for(lab: Pods, cluster: Cluster) -> None:
    before = key.ensure(cluster, lab.namespace, lab.service).key
    lab.add("a")
    with pytest.raises(InputError, match=r"(?s)the only one that answers.*Nothing was changed.*--with-outage"):
        rotate(cluster, lab.namespace, lab.service, quiet, seconds=2)
    assert lab.names() == {"a"}
    assert key.read(cluster, lab.namespace, lab.service) == before


def test_no_pod_is_replaced_while_another_waits_for_room(lab: Pods, cluster: Cluster) -> None:
    before = key.ensure(cluster, lab.namespace, lab.service).key
    lab.add("a")
    lab.add_waiting("b")
    with pytest.raises(InputError, match=r"(?s)the pod b.*waits for a node.*Nothing was changed"):
        rotate(cluster, lab.namespace, lab.service, quiet, seconds=2, with_outage=True)
    assert lab.names() == {"a", "b"}
    assert key.read(cluster, lab.namespace, lab.service) == before


def test_a_pod_that_takes_the_earlier_key_still_is_found(
    lab: Pods, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key.ensure(cluster, lab.namespace, lab.service).key
    lab.add("a")
    add = lab.add
    monkeypatch.setattr(lab, "add", lambda name: add(name, key=before.secret))
    with lab.replaced(), pytest.raises(EndpointError, match="401"):
        rotate(cluster, lab.namespace, lab.service, quiet, seconds=30, with_outage=True)


def test_a_server_that_asks_nobody_for_a_key_is_found(
    lab: Pods, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    key.ensure(cluster, lab.namespace, lab.service)
    lab.add("a")
    monkeypatch.setattr("endpoint_lab._Model.do_GET", lambda self: self._answer(200, {"data": [{"id": "tiny"}]}))
    with lab.replaced(), pytest.raises(EndpointError, match="still answers to no key"):
        rotate(cluster, lab.namespace, lab.service, quiet, seconds=30, with_outage=True)


def test_what_cannot_be_asked_is_not_proven(lab: Pods, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    key.ensure(cluster, lab.namespace, lab.service)
    lab.add("a")
    add = lab.add

    def add_without_server(name: str) -> None:
        add(name)
        lab.stop(name)

    monkeypatch.setattr(lab, "add", add_without_server)
    with lab.replaced():
        done = rotate(cluster, lab.namespace, lab.service, quiet, seconds=30, with_outage=True)
    assert not done.proven
    assert "could not be asked" in done.unproven


def test_a_budget_that_allows_no_disruption_is_told_and_nothing_is_changed(lab: Pods, cluster: Cluster) -> None:
    before = key.ensure(cluster, lab.namespace, lab.service).key
    lab.add("a")
    cluster.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "chat", "namespace": lab.namespace},
            "spec": {
                "maxUnavailable": 0,
                "selector": {"matchLabels": {"serving.kserve.io/inferenceservice": lab.service}},
            },
        }
    )
    with pytest.raises(EndpointError, match=r"may not be evicted.*Nothing was changed.*get pdb"):
        rotate(cluster, lab.namespace, lab.service, quiet, seconds=2, with_outage=True)
    assert lab.names() == {"a"}
    assert key.read(cluster, lab.namespace, lab.service) == before


def test_whoever_may_not_evict_changes_nothing(lab: Pods, cluster: Cluster) -> None:
    before = key.ensure(cluster, lab.namespace, lab.service).key
    lab.add("a")
    rules = [{"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list", "patch"]}]
    writer = user_with(lab, "writes-secrets", rules)
    with (
        Cluster.of_kubeconfig(writer, None) as weak,
        pytest.raises(InputError, match="is a pod that you may not evict"),
    ):
        rotate(weak, lab.namespace, lab.service, quiet, seconds=2)
    assert key.read(cluster, lab.namespace, lab.service) == before


def test_a_pod_that_nothing_replaces_is_told_in_time(lab: Pods, cluster: Cluster) -> None:
    key.ensure(cluster, lab.namespace, lab.service)
    lab.add("a")
    with pytest.raises(EndpointError, match="was not replaced within 2 s: 0 of 1 pods are ready"):
        rotate(cluster, lab.namespace, lab.service, quiet, seconds=2, with_outage=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"immutable": True}, "is immutable"),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {
                            "apiVersion": "x/v1",
                            "kind": "ExternalSecret",
                            "name": "vault",
                            "uid": "1",
                            "controller": True,
                        }
                    ]
                }
            },
            "belongs to ExternalSecret vault",
        ),
    ],
)
def test_a_secret_that_another_keeps_is_not_changed(
    lab: Pods, cluster: Cluster, change: dict[str, object], told: str
) -> None:
    before = key.ensure(cluster, lab.namespace, lab.service).key
    cluster.request(
        "PATCH",
        cluster.path("v1", "Secret", lab.namespace, "chat-api-key"),
        None,
        change,
        "application/merge-patch+json",
    )
    with pytest.raises(InputError, match=told):
        rotate(cluster, lab.namespace, lab.service, quiet)
    assert key.read(cluster, lab.namespace, lab.service) == before


def test_the_key_stands_in_no_process_of_the_port_forward(lab: Pods, cluster: Cluster) -> None:
    made = key.ensure(cluster, lab.namespace, lab.service).key.secret
    lab.add("a")
    with open_endpoint(cluster, lab.namespace, lab.service):
        children = [process.cmdline() for process in psutil.Process().children(recursive=True)]
        assert any("port-forward" in words for words in children)
        assert not any(made in word for words in children for word in words)
