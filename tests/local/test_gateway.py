"""The gateway of the local platform: a real Caddy, told of pods by a real control plane."""

from __future__ import annotations

import itertools
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from gateway_lab import DIES, DOMAIN, NAMESPACE, OTHER, REFUSED, GatewayLab, Service, gateway_lab
from neuroscale.cluster.command_lines import Way, curl_line
from neuroscale.kube.certificates import Authority
from neuroscale.kube.client import RefusedError
from neuroscale.local import control_plane, gateway, gateway_routes
from neuroscale.local.gateway import Gateway
from waiting import wait_for

pytestmark = [pytest.mark.tools, pytest.mark.xdist_group("gateway")]


@pytest.fixture(scope="module")
def lab() -> Iterator[GatewayLab]:
    with gateway_lab() as found:
        yield found


@pytest.fixture
def chat(lab: GatewayLab) -> Service:
    """A service with one ready pod, which the gateway knows."""
    found = lab.service()
    found.pod()
    found.awaits(200)
    return found


def error(response: httpx.Response) -> dict[str, object]:
    """The error of an answer in the form of OpenAI's API."""
    assert response.headers["Content-Type"] == "application/json"
    found = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["code"] == response.status_code
    return dict(found)


def server_of(service: Service) -> str:
    (server,) = service.servers.values()
    return server.address


# ------------------------------------------------------------ where requests go


def test_requests_are_spread_over_the_ready_pods_and_go_to_no_other(lab: GatewayLab) -> None:
    service = lab.service()
    pods = [service.pod(), service.pod()]
    service.pod(ready=False)
    service.pod(node=OTHER)
    wanted = {service.servers[name].address for name in pods}
    wait_for(lambda: seen_by(service) == wanted, 30, f"not spread over {wanted}")
    service.delete(pods[0])
    wait_for(lambda: seen_by(service) == {service.servers[pods[1]].address}, 30, "the deleted pod is still asked")


def seen_by(service: Service, requests: int = 16) -> set[str]:
    return {str(found["address"]) for _ in range(requests) if (found := service.get().json()).get("address")}


def test_without_a_ready_pod_it_says_so_until_there_is_one(lab: GatewayLab) -> None:
    service = lab.service()
    service.awaits(503)
    answer = service.get()
    assert answer.headers["Retry-After"] == "5"
    assert "No pod of this service is ready" in str(error(answer)["message"])
    pod = service.pod(ready=False)
    assert service.get().status_code == 503
    service.set_ready(pod, True)
    service.awaits(200)
    service.set_ready(pod, False)
    service.awaits(503)


def test_a_host_that_no_service_has_is_not_found(lab: GatewayLab, chat: Service) -> None:
    answer = lab.request("GET", f"nobody.{DOMAIN}", "/v1/models")
    assert answer.status_code == 404
    assert "No service" in str(error(answer)["message"])
    assert chat.get().status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/metrics", "/docs", "/openapi.json", "/healthz", "/health/x", "/v2/models", "/v1"),
        *(
            "/v1/../metrics",
            "/v1/%2e%2e/metrics",
            "/v1/..%2fmetrics",
            "//metrics",
            "/v1/x/../../metrics",
            "/V1/../docs",
        ),
    ],
)
def test_only_the_api_and_its_health_are_served(chat: Service, path: str) -> None:
    answer = chat.get(path)
    assert answer.status_code == 404
    assert "not open to clients" in str(error(answer)["message"])
    assert [asked for server in chat.servers.values() for asked in server.asked if "v1/models" not in asked] == []


def test_health_needs_no_key_and_the_api_needs_the_right_one(chat: Service) -> None:
    assert chat.get("/health", key="").status_code == 200
    assert chat.get(key="wrong").status_code == 401
    assert chat.get(key="").status_code == 401
    assert chat.get().status_code == 200


def test_what_a_service_is_asked_for_reaches_it_as_it_was_sent(lab: GatewayLab, chat: Service) -> None:
    assert chat.get("/v1/models/a%20b?x=1&y=%2F").json()["path"] == "/v1/models/a%20b?x=1&y=%2F"
    assert chat.get("/v1/models").json()["address"] == server_of(chat)


def test_a_request_that_is_too_large_is_refused(lab: GatewayLab, chat: Service) -> None:
    body = b'{"messages": "' + b"x" * gateway.LARGEST_BODY + b'"}'
    answer = lab.request("POST", chat.host, "/v1/chat/completions", headers=chat.headers(), content=body)
    assert answer.status_code == 413
    assert "larger than" in str(error(answer)["message"])


@pytest.mark.parametrize("size", [24, 100_000, 1_100_000])
def test_a_refusal_that_comes_before_the_requests_body_arrives_whole(lab: GatewayLab, chat: Service, size: int) -> None:
    """vLLM refuses a wrong key as soon as it has the headers, while the gateway still passes on the body."""
    context = ssl.create_default_context(cafile=str(lab.authority))
    with (
        socket.create_connection(("127.0.0.1", lab.port), 10) as plain,
        context.wrap_socket(plain, server_hostname=chat.host) as secure,
    ):
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {chat.host}\r\nContent-Length: {size}\r\n\r\n"
        secure.sendall(head.encode() + b"x" * (size - 24))
        for _ in range(24):  # each is read by itself, by the transport or by whoever else takes the body
            secure.sendall(b"x")
            time.sleep(0.01)
        answer = b""
        while not answer.endswith(REFUSED) and (part := secure.recv(4096)):
            answer += part
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.endswith(REFUSED)


def test_a_pod_that_is_gone_before_the_cluster_knows_is_told_and_another_is_tried(lab: GatewayLab) -> None:
    service = lab.service()
    service.pod(serves=False)
    service.awaits(502)
    assert "did not answer" in str(error(service.get())["message"])
    service.pod()
    service.awaits(200)
    assert {service.get().status_code for _ in range(10)} == {200}


def test_the_second_service_of_a_host_gets_none_of_its_requests(lab: GatewayLab, chat: Service) -> None:
    later = lab.service(host=chat.host)
    later.pod()
    other = lab.service()
    other.pod()
    other.awaits(200)  # what came before it has been seen
    assert {chat.get().json()["address"] for _ in range(10)} == {server_of(chat)}


# ------------------------------------------------------------ TLS


def test_who_does_not_know_the_authority_refuses_it(lab: GatewayLab, chat: Service, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    other.write_text(Authority.create("another").pair.certificate)
    done = pasted(curl_line(chat.url, "m", ["printf", chat.key], Way(other, lab.port)))
    assert done.returncode == 60, done.stderr  # curl's: the certificate cannot be verified
    assert all(server.asked.count("/v1/chat/completions") == 0 for server in chat.servers.values())


def test_a_host_outside_the_domain_gets_no_certificate_of_its_own(lab: GatewayLab) -> None:
    context = ssl.create_default_context(cafile=str(lab.authority))
    for host in ("chat.example.org", f"a.b.{DOMAIN}"):
        with (
            socket.create_connection(("127.0.0.1", lab.port), 10) as connection,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(connection, server_hostname=host)


def test_plain_http_is_redirected_and_answers_nothing_else(lab: GatewayLab, chat: Service) -> None:
    for path in ("/v1/models?x=1", "/metrics"):
        answer = httpx.get(
            f"http://127.0.0.1:{lab.redirect_port}{path}", headers={"Host": chat.host}, trust_env=False, timeout=10
        )
        assert (answer.status_code, answer.headers["Location"]) == (308, f"{chat.url}{path}")
    answer = httpx.get(f"http://127.0.0.1:{lab.port}/v1/models", headers=chat.headers(), trust_env=False, timeout=10)
    assert (answer.status_code, "HTTPS server" in answer.text) == (400, True)


def test_it_listens_on_the_loopback_alone(lab: GatewayLab) -> None:
    child = psutil.Process(lab.processes.children[gateway.NAME].pid)
    listening = [one.laddr for one in child.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    assert sorted(listening) == sorted([("127.0.0.1", lab.port), ("127.0.0.1", lab.redirect_port)])
    assert [one for one in child.net_connections("udp") if one.laddr] == []


def test_nobody_else_may_ask_the_router(lab: GatewayLab) -> None:
    work = Gateway(lab.processes.state).work
    assert work.stat().st_mode & 0o077 == 0
    assert (work / gateway_routes.SOCKET).stat().st_mode & 0o077 == 0


# ------------------------------------------------------------ streams


def test_a_stream_arrives_chunk_by_chunk(chat: Service) -> None:
    (server,) = chat.servers.values()
    with chat.stream() as lines:
        for number in range(5):
            # The next one is sent only when this one has arrived.
            server.chunks.put(f"chunk {number}")
            assert next(lines) == f"data: chunk {number}"
        server.chunks.put(None)
        assert list(lines) == []


def test_a_stream_goes_on_while_its_pod_is_replaced_and_other_services_come(lab: GatewayLab) -> None:
    service = lab.service()
    old = service.pod()
    service.awaits(200)
    server = service.servers[old]
    with service.stream() as lines:
        server.chunks.put("before")
        assert next(lines) == "data: before"
        new = service.pod()
        service.delete(old)
        wait_for(lambda: seen_by(service) == {service.servers[new].address}, 30, "the new pod is not asked")
        server.chunks.put("during")
        assert next(lines) == "data: during"
        other = lab.service()
        other.pod()
        other.awaits(200)
        server.chunks.put("after")
        assert next(lines) == "data: after"
        server.chunks.put(None)
        assert list(lines) == []


def test_a_stream_may_pause_for_longer_than_a_request_may_take_to_come_in(chat: Service) -> None:
    (server,) = chat.servers.values()
    with chat.stream() as lines:
        time.sleep(gateway.HEADER_WITHIN + 1)
        server.chunks.put("still there")
        assert next(lines) == "data: still there"
        server.chunks.put(None)
        assert list(lines) == []


def test_a_stream_whose_server_dies_ends_as_an_error_and_not_as_if_it_were_whole(chat: Service) -> None:
    (server,) = chat.servers.values()
    with chat.stream() as lines:
        server.chunks.put("begun")
        assert next(lines) == "data: begun"
        server.chunks.put(DIES)
        with pytest.raises(httpx.TransportError):
            list(lines)


# ------------------------------------------------------------ faults


def test_it_serves_again_after_a_crash_of_either_process(lab: GatewayLab, chat: Service) -> None:
    routes, caddy = Gateway(lab.processes.state).processes()
    lab.processes.kill(caddy.name)
    lab.processes.start(caddy)
    assert chat.get().status_code == 200
    (server,) = chat.servers.values()
    with chat.stream() as lines:
        server.chunks.put("before")
        assert next(lines) == "data: before"
        lab.processes.kill(routes.name)
        later = lab.service()
        later.pod()
        assert error(chat.get())["code"] == 502
        server.chunks.put("after")
        assert next(lines) == "data: after", "what is being answered goes on"
        server.chunks.put(None)
        assert list(lines) == []
    lab.processes.start(routes)
    assert chat.get().status_code == 200
    later.awaits(200)


def test_no_request_is_lost_while_pods_and_services_come_and_go(lab: GatewayLab, chat: Service) -> None:
    answers: list[int] = []
    done = threading.Event()

    def ask() -> None:
        # By connections that are kept, and by new ones.
        for index in itertools.count():
            if done.is_set():
                return
            more = {"Connection": "close"} if index % 2 else {}
            answers.append(lab.request("GET", chat.host, "/v1/models", headers={**chat.headers(), **more}).status_code)

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for _ in range(4):
                other = lab.service()
                pod = other.pod()
                other.awaits(200)
                other.delete(pod)
                other.awaits(503)
        finally:
            done.set()
        for one in asking:
            one.result()
    assert set(answers) == {200}
    assert len(answers) > 20


def test_what_it_knew_stays_while_the_cluster_does_not_answer(lab: GatewayLab, chat: Service) -> None:
    plane = control_plane.processes(lab.processes.state)
    server = next(one for one in plane if one.name == control_plane.API_SERVER)
    lab.processes.kill(server.name)
    assert chat.get().status_code == 200
    lab.processes.start(server)
    later = lab.service()
    later.pod()
    later.awaits(200)
    assert chat.get().status_code == 200


def test_it_may_see_services_and_addresses_and_nothing_else(lab: GatewayLab) -> None:
    with control_plane.cluster(lab.processes.state, gateway.NAME) as own:
        assert own.list("serving.kserve.io/v1beta1", "InferenceService") is not None
        assert own.list("discovery.k8s.io/v1", "EndpointSlice") is not None
        for kind in ("Secret", "Pod", "Service"):
            with pytest.raises(RefusedError, match="forbidden"):
                own.list("v1", kind)
        with pytest.raises(RefusedError, match="forbidden"):
            own.get("serving.kserve.io/v1beta1", "InferenceService", "chat", NAMESPACE)


def test_a_key_is_written_nowhere(lab: GatewayLab) -> None:
    service = lab.service()
    service.pod(serves=False)
    service.awaits(502)
    lab.request("GET", service.host, f"/v1/models?api_key={service.key}", headers=service.headers())
    logged = [lab.processes.log(name) for name in (gateway.NAME, gateway.ROUTES)]
    assert "connection refused" in logged[0], "the failure itself is told"
    folder = Gateway(lab.processes.state).folder
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not [text for text in logged if service.key in text]
    assert not [data for data in files if service.key.encode() in data]


# ------------------------------------------------------------ the line to be pasted


def pasted(line: str, *more: Path) -> subprocess.CompletedProcess[str]:
    """What a shell does with the line, with a proxy in its environment that leads nowhere."""
    environment = {"PATH": os.pathsep.join([*map(str, more), os.defpath]), "HTTPS_PROXY": "http://127.0.0.1:1"}
    return subprocess.run(
        ["bash", "-c", line], check=False, capture_output=True, text=True, timeout=60, env=environment
    )


def test_the_line_works_when_it_is_pasted_and_holds_no_key(lab: GatewayLab, chat: Service, tmp_path: Path) -> None:
    key = tmp_path / "the key"
    key.write_text(f"{chat.key}\n")
    line = curl_line(chat.url, "tiny", ["cat", str(key)], Way(lab.authority, lab.port))
    assert chat.key not in line
    done = pasted(line)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "tiny"
    assert found["choices"][0]["message"]["content"].startswith("You said")
    key.write_text("another key")
    done = pasted(line)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"error": "Unauthorized"})
    # Without a name of its model, it asks for it.
    key.write_text(chat.key)
    done = pasted(curl_line(chat.url, "", ["cat", str(key)], Way(lab.authority, lab.port)))
    assert json.loads(done.stdout)["path"] == "/v1/models"


def test_the_key_is_in_no_argument_of_curl(lab: GatewayLab, chat: Service) -> None:
    line = curl_line(chat.url, "tiny", ["printf", "%s", chat.key], Way(lab.authority, lab.port))
    arguments = line.partition(" | ")[2]
    assert arguments.startswith("curl ")
    assert chat.key not in arguments
    assert "Authorization" not in arguments


@pytest.mark.parametrize("url", ["http://chat.example.com", "", "https://", "chat.example.com"])
def test_a_key_is_sent_by_tls_or_not_at_all(url: str) -> None:
    assert curl_line(url, "m", ["cat", "key"]) == ""


def test_in_a_real_cluster_the_url_is_asked_as_it_is() -> None:
    line = curl_line("https://chat.models.example.com", "m", ["neuroscale", "key", "chat", "--print"])
    assert "https://chat.models.example.com/v1/chat/completions" in line
    assert not {"--connect-to", "--cacert", "--noproxy", "--insecure", "-k"} & set(line.split())
