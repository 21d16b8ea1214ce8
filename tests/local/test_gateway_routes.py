"""Which host leads to which process of this machine, and what the gateway is told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroscale.local.gateway import configuration
from neuroscale.local.gateway_routes import FIRST, SECOND, Route, RoutedService, Router, Settings, Slice, routes

SETTINGS = Settings("127.0.0.1:1", "/a.crt", "/c.crt", "/c.key", "this-machine")


def inference_service(name: str = "chat", url: str | None = None, **spec: Any) -> dict[str, Any]:
    status = {"url": f"https://{name}-team-alpha.models.example.com" if url is None else url}
    return {
        "metadata": {"name": name, "namespace": "team-alpha", "creationTimestamp": "2026-09-01T12:00:00Z"},
        "spec": {"predictor": spec},
        "status": status,
    }


def endpoint(address: str = "10.127.0.1", *, ready: bool | None = True, node: str = "this-machine") -> dict[str, Any]:
    return {"addresses": [address], "nodeName": node, "conditions": {"ready": ready}}


def endpoint_slice(*endpoints: dict[str, Any], backend: str = "chat-predictor", **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{backend}-x",
            "namespace": "team-alpha",
            "labels": {"kubernetes.io/service-name": backend},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": list(endpoints),
        **changes,
    }


def addresses(found: dict[str, Any]) -> tuple[str, ...]:
    return Slice.of(found, SETTINGS.node).addresses


def test_a_pods_process_listens_on_the_loopback_address_of_the_pods_own() -> None:
    assert addresses(endpoint_slice(endpoint("10.127.3.9"))) == ("127.127.3.9:8080",)


@pytest.mark.parametrize(
    "found",
    [
        endpoint_slice(endpoint(ready=False)),
        endpoint_slice(endpoint(ready=None)),
        endpoint_slice(endpoint(node="simulated-cpu-1")),
        endpoint_slice(endpoint("10.0.0.1")),
        endpoint_slice(endpoint("10.127.0.1@evil")),
        endpoint_slice(endpoint("10.127.300.1")),
        endpoint_slice(endpoint(), addressType="FQDN"),
        endpoint_slice(endpoint(), ports=[]),
        endpoint_slice(endpoint(), ports=None),
        endpoint_slice(endpoints=None),
    ],
)
def test_only_ready_pods_with_a_process_on_this_machine_are_asked(found: dict[str, Any]) -> None:
    assert addresses(found) == ()


@pytest.mark.parametrize("url", ["", "https://", "https://a_b.example.com", "https://*.example.com", "https://{x}.com"])
def test_a_service_without_a_host_that_can_be_one_has_no_route(url: str) -> None:
    assert RoutedService.of(inference_service(url=url)) is None


def test_the_pods_of_a_named_predictor_are_behind_its_own_service() -> None:
    found = RoutedService.of(inference_service(name="chat"))
    assert found is not None
    assert found.backend == "chat-predictor"
    found = RoutedService.of({**inference_service(), "spec": {"predictor": {"name": "b"}}})
    assert found is not None
    assert found.backend == "chat-b-predictor"


def test_of_two_services_with_one_host_the_older_has_it_and_never_the_others_pods() -> None:
    host = "a-b-c.models.example.com"
    old = RoutedService(host, "2026-01-01T00:00:00Z", "b-c", "a-predictor")
    new = RoutedService(host, "2026-02-01T00:00:00Z", "c", "a-b-predictor")
    theirs = Slice("c", "a-b-predictor", ("127.127.0.2:8080",))
    assert routes([new, old], [theirs]) == (Route(host, ()),)
    own = Slice("b-c", "a-predictor", ("127.127.0.1:8080",))
    assert routes([new, old], [theirs, own]) == (Route(host, ("127.127.0.1:8080",)),)


def test_the_slices_of_one_service_are_taken_together_and_each_address_once() -> None:
    service = RoutedService("chat.example.com", "", "team-alpha", "chat-predictor")
    slices = [
        Slice("team-alpha", "chat-predictor", ("127.127.0.2:8080", "127.127.0.1:8080")),
        Slice("team-alpha", "chat-predictor", ("127.127.0.1:8080",)),
        Slice("team-beta", "chat-predictor", ("127.127.0.9:8080",)),
    ]
    assert routes([service], slices) == (Route("chat.example.com", ("127.127.0.1:8080", "127.127.0.2:8080")),)


def test_caddy_listens_on_the_loopback_alone_and_has_no_administration() -> None:
    found = configuration(21000, 21001, Path("/s.crt"), Path("/s.key"))
    servers = found["apps"]["http"]["servers"]
    assert [one["listen"] for one in servers.values()] == [["127.0.0.1:21000"], ["127.0.0.1:21001"]]
    assert found["admin"]["disabled"] is True
    assert all(one["automatic_https"]["disable"] and "h3" not in one["protocols"] for one in servers.values())
    # Nothing is written down of a request.
    assert all("logs" not in one for one in servers.values())


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    found = Router(str(tmp_path / "router.sock"))
    yield found
    found.server_close()


def test_the_router_names_two_addresses_to_try_and_all_of_them_in_turn(router: Router) -> None:
    three = {"127.127.0.1:8080", "127.127.0.2:8080", "127.127.0.3:8080"}
    router.table = {"chat.example.com": tuple(three), "one.example.com": ("127.127.0.9:8080",), "none.example.com": ()}
    firsts = set()
    for _ in range(200):
        status, headers, _ = router.answer("chat.example.com")
        assert status == 200
        assert headers[FIRST] != headers[SECOND]
        firsts.add(headers[FIRST])
    assert firsts == three
    one = {FIRST: "127.127.0.9:8080", SECOND: "127.127.0.9:8080"}
    assert router.answer("one.example.com")[:2] == (200, one)


@pytest.mark.parametrize("host", ["one.example.com:443", "ONE.example.com", "one.example.com."])
def test_a_host_is_known_however_a_client_writes_it(router: Router, host: str) -> None:
    router.table = {"one.example.com": ("127.127.0.9:8080",)}
    assert router.answer(host)[0] == 200


@pytest.mark.parametrize(("host", "status"), [("none.example.com", 503), ("other.example.com", 404), ("", 404)])
def test_what_answers_nothing_is_told_as_openais_api_tells_errors(router: Router, host: str, status: int) -> None:
    router.table = {"none.example.com": ()}
    code, headers, body = router.answer(host)
    found = json.loads(body)["error"]
    assert (code, found["code"], headers["Content-Type"]) == (status, status, "application/json")
    assert set(found) == {"message", "type", "param", "code"}


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(SETTINGS.__dict__))
    assert Settings.read(path) == SETTINGS
