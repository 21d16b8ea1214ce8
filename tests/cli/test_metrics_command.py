"""`neuroscale metrics` on a real Prometheus: what it shows is what the servers counted."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api_server import ApiServer
from cluster_lab import run
from command_line import Said
from examples import examples
from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.progress import SILENT
from neuroscale.actions.retirement import last_requests
from neuroscale.catalog.cluster_settings import Prometheus as Configured
from neuroscale.cluster.endpoint.metrics import parse
from neuroscale.cluster.metrics.prometheus import by_address, duration, in_cluster, quoted, selector
from neuroscale.cluster.metrics.service_metrics import finished_requests
from neuroscale.core.errors import InputError
from neuroscale.repo.layout import ServicePath
from plan_factory import make_plan
from platform_repository import SETTINGS
from prometheus_lab import NAMESPACE, Lab, Server, running_prometheus
from roots import ROOT
from waiting import wait_for

pytestmark = pytest.mark.tools


@dataclass(frozen=True)
class Services:
    """Prometheus, and the servers of the services that it looks at."""

    lab: Lab
    busy: Server
    quiet: Server
    new: Server
    dying: Server
    restarting: Server
    twice: tuple[Server, Server]

    def metrics(self, service: str, *arguments: object) -> Said:
        return run("metrics", service, "--prometheus-url", self.lab.url, "--repository", ROOT, *arguments)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    names = ("busy", "quiet", "new", "dying", "restarting", "twice")
    with ExitStack() as running:
        servers = [Server(name) for name in names] + [Server("twice", "team-beta")]
        for server in servers:
            running.callback(server.close)
        # Before anybody looked: its counts do not grow any more.
        for _ in range(12):
            servers[1].page.request(0.05, 0.4, 0.02, 10, 5)
        lab = running.enter_context(running_prometheus(tmp_path_factory.mktemp("prometheus"), servers))
        busy, quiet, new, dying, restarting, *twice = servers
        yield Services(lab, busy, quiet, new, dying, restarting, (twice[0], twice[1]))


def rows(said: Said) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in said.json["rows"]}


def test_what_is_shown_is_what_the_server_counted(services: Services) -> None:
    page = services.busy.page
    for number in range(200):
        page.request(ttft=0.03 + number / 1000, e2e=0.2 + number / 50, itl=0.012, prompt=17, generated=3)
    page.waiting.set(40)  # for a moment
    services.lab.await_value('sum(vllm:num_requests_waiting{service="busy"})', 40)
    page.running.set(7)
    page.waiting.set(2)
    page.kv_cache.set(0.375)
    services.lab.await_value('sum(vllm:num_requests_waiting{service="busy"})', 2)
    services.lab.await_value('sum(vllm:request_success_total{service="busy"})', 200)

    said = services.metrics("busy", "--since", "1m", "--json")
    assert said.status == 0, said.out + said.err
    found, shown, counted = said.json, rows(said), parse(page.text())
    # Counters exactly, and what moves as it is.
    assert found["counted"] == {"requests": 200, "prompt_tokens": 3400, "generation_tokens": 600}
    assert found["counted"]["prompt_tokens"] == counted.prompt_tokens
    assert found["counted"]["generation_tokens"] == counted.generation_tokens
    assert [shown[name]["now"] for name in ("requests_running", "requests_waiting", "kv_cache_usage")] == [7, 2, 0.375]
    assert shown["requests_waiting"]["highest"] == 40
    assert 2 <= shown["requests_waiting"]["whole"] <= 40
    # Quantiles as somebody else computes them of the same buckets.
    for name, histogram in (("time_to_first_token", counted.ttft), ("inter_token_latency", counted.itl)):
        for part, share in (("p50", 0.5), ("p95", 0.95)):
            assert histogram is not None
            for when in ("now", "whole"):
                value = shown[f"{name}_{part}"][when]
                assert value["seconds"] == pytest.approx(histogram.quantile(share))
                assert value["above"] < value["seconds"] <= value["up_to"]
    assert shown["end_to_end_latency_p95"]["whole"]["seconds"] == pytest.approx(counted.e2e.quantile(0.95))  # type: ignore[union-attr]
    # All of them waited less than the first bound, so nothing more is known.
    assert shown["queue_time_p95"]["now"]["above"] == 0
    assert shown["queue_time_p95"]["now"]["up_to"] == 0.3
    assert found["answers"] is True
    assert found["restarts"] == 0
    assert [pod["answers"] for pod in found["pods"]] == [True]
    assert found["newest_sample_age_seconds"] < 30
    assert found["scrape_interval_seconds"] == pytest.approx(1.0, abs=0.5)

    with by_address(services.lab.url) as prometheus:
        at = prometheus.now()
        asked = finished_requests(prometheus, NAMESPACE, "busy", at, 3600)
        assert asked is not None
        assert 200 <= asked <= 300, "Prometheus adds what may have come before the first and after the last sample"
        assert finished_requests(prometheus, NAMESPACE, "unknown", at, 3600) is None
    where = (make_plan(), Where(), services.lab.url, ROOT, SILENT)
    told = last_requests(SETTINGS, ServicePath("dev", "busy"), *where)
    assert re.match(r"It answered about 2\d\d requests in the last 7 days, .* in the last 24 h\. Metrics do", told)
    assert "was not scraped, or did not run" in last_requests(SETTINGS, ServicePath("dev", "unknown"), *where)

    text = services.metrics("busy", "--since", "1m").out
    assert f"{NAMESPACE}/busy: its pod answers, no restart within 60 s, newest sample" in text
    assert "200 requests, 3,400 tokens in, 600 tokens out" in text
    assert "in the queue p95  < 300 ms  < 300 ms" in text
    assert "37.5%" in text
    assert "\x1b" not in text


def test_an_idle_service_has_no_latency_rather_than_none_at_all(services: Services) -> None:
    said = services.metrics("quiet", "--json")
    assert said.status == 0
    assert said.json["counted"]["requests"] == 12
    latencies = {name: row for name, row in rows(said).items() if row["unit"] == "seconds"}
    assert len(latencies) == 7
    for row in latencies.values():
        assert (row["now"], row["whole"], row["highest"]) == (None, None, None)
        assert set(row["points"]) <= {"idle", "unseen"}
        assert row["points"][-1] == "idle"
    assert rows(said)["tokens_out"]["now"] == 0
    assert "NaN" not in said.out
    text = services.metrics("quiet").out
    assert text.count("no requests") == 3 * 7
    assert "· no request was measured in that time" in text


def test_a_service_that_never_had_a_request_says_so(services: Services) -> None:
    said = services.metrics("new")
    assert said.status == 0
    assert "Counted since its servers started: 0 requests, 0 tokens in, 0 tokens out" in said.out
    assert re.search(r"^first token p95 +no requests +no requests +[ ·]+ +no requests$", said.out, re.MULTILINE)


def test_a_dead_service_is_down_and_its_last_sample_gets_older(services: Services) -> None:
    assert services.metrics("dying").status == 0
    services.dying.close()
    services.lab.await_value('sum(up{service="dying"})', 0)
    said = services.metrics("dying", "--json")
    assert said.status == 1
    assert said.json["answers"] is False
    assert said.json["counted"] is None
    assert rows(said)["tokens_out"]["now"] in (None, 0)
    assert all(row["points"][-1] == "unseen" for row in said.json["rows"])
    first = said.json["newest_sample_age_seconds"]
    wait_for(lambda: services.metrics("dying", "--json").json["newest_sample_age_seconds"] > first, 30)
    # On a busy machine, the newest look may have run out of time.
    wait_for(lambda: "connection refused" in services.metrics("dying").out, 30)
    text = services.metrics("dying").out
    assert "down: its pod does not answer" in text
    assert "no requests" not in text


def test_a_server_that_began_anew_in_its_pod_was_restarted(services: Services) -> None:
    services.restarting.page.started.set(1_700_000_100)
    services.lab.await_value('max(process_start_time_seconds{service="restarting"})', 1_700_000_100)
    said = services.metrics("restarting", "--json")
    assert said.json["restarts"] == 1
    assert "1 restart within 15 min" in services.metrics("restarting").out
    # Kubernetes also counts the starts after which it never answered.
    for count in (2, 6):
        services.restarting.page.tell_restarts(count)
        told = 'max(kube_pod_container_status_restarts_total{service="restarting"})'
        services.lab.await_value(told, count)
    assert services.metrics("restarting", "--json").json["restarts"] == 4


def test_a_name_in_two_namespaces_must_be_told_apart(services: Services) -> None:
    said = services.metrics("twice")
    assert said.status == 2
    assert "team-alpha, team-beta" in said.err
    assert "--namespace" in said.err
    chosen = services.metrics("twice", "--namespace", "team-beta", "--json")
    assert (chosen.status, chosen.json["namespace"]) == (0, "team-beta")


def test_a_name_that_prometheus_does_not_know_is_no_data_and_not_nothing(services: Services) -> None:
    said = services.metrics("bussy")
    assert said.status == 1
    assert "bussy: no data of the last 15 min. Prometheus scrapes no pod of it. Did you mean 'busy'?" in said.out
    record = services.metrics("bussy", "--json")
    assert record.status == 1
    assert (record.json["answers"], "rows" in record.json) == (False, False)


@pytest.mark.parametrize("name", ['busy"} or vector(1) or up{job="x', "busy', ", "busy\\", "busy\n", "{}", "busy[5m]"])
def test_a_name_is_never_a_part_of_the_question(services: Services, name: str) -> None:
    said = services.metrics(name, "--json")
    assert said.status == 1, said.out + said.err
    assert said.json["answers"] is False
    assert "scrapes no pod of it" in said.json["reason"]


def test_what_is_no_service_or_time_is_refused_before_anybody_is_asked(services: Services) -> None:
    for arguments in (("",), ("a/b/c",), ("nowhere/busy",)):
        assert services.metrics(*arguments).status == 2
    for since in ("", "15", "0m", "5s", "31d", "1h30m", "-5m", "1e3s"):
        said = services.metrics("busy", f"--since={since}")
        assert said.status == 2
        assert "--since" in said.err


# Prometheus reads what was put together as what was meant -------------------------------------------------------------


def parsed(lab: Lab, query: str) -> dict[str, Any]:
    answer = lab.http.post(f"{lab.url}/api/v1/parse_query", data={"query": query}).json()
    assert answer["status"] == "success", answer
    found: dict[str, Any] = answer["data"]
    return found


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8"), max_size=60), st.floats(min_value=0.001, max_value=30 * 86400))
def test_any_text_is_one_value_of_a_label(services: Services, text: str, within: float) -> None:
    tree = parsed(services.lab, selector("up", {"namespace": text, "service": text}, within))
    assert tree["type"] == "matrixSelector"
    assert tree["range"] == pytest.approx(within * 1000, abs=1)
    matchers = {one["name"]: (one["type"], one["value"]) for one in tree["matchers"]}
    assert matchers == {"__name__": ("=", "up"), "namespace": ("=", text), "service": ("=", text)}
    assert parsed(services.lab, quoted(text)) == {"type": "stringLiteral", "val": text}


def test_times_are_written_to_the_millisecond() -> None:
    assert [duration(seconds) for seconds in (0.0001, 0.5, 20, 900)] == ["1ms", "500ms", "20000ms", "900000ms"]


# What is no Prometheus ------------------------------------------------------------------------------------------------


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name that http.server looks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10.0)


def ask(url: str) -> Said:
    return run("metrics", "busy", "--prometheus-url", url, "--repository", ROOT)


SUCCESS = {"status": "success", "data": {"resultType": "scalar", "result": [1.0, "1"]}}


@pytest.mark.parametrize(
    ("status", "body", "headers", "told"),
    [
        (404, b"<html>not here</html>", {}, "answers 404, and not as Prometheus does"),
        (200, b"<html>a page</html>", {}, "answers 200, and not as Prometheus does"),
        (302, b"", {"Location": "https://login.example.com/"}, "answers 302"),
        (200, b'{"version": "1.26.0"}', {}, "not as Prometheus does"),
        (200, b'{"status": "success"}', {}, "answers without a result"),
        (200, b'{"status": "success", "data": {}}', {}, "does not answer with its time"),
        (200, json.dumps(SUCCESS).encode(), {}, "answers something else than a vector"),
        (503, b'{"status": "error", "error": "starting \x1b[31mup"}', {}, "not as Prometheus does"),
        (503, b'{"status": "error", "error": "query queue is full"}', {}, "refuses: query queue is full"),
    ],
)
def test_what_is_no_prometheus_is_told_and_is_no_data(
    status: int, body: bytes, headers: dict[str, str], told: str
) -> None:
    with answering(status, body, **headers) as url:
        said = ask(url)
    assert said.status == 2
    assert told in said.err
    assert url in said.err
    assert said.out == ""


def test_nobody_there_is_told_with_the_address() -> None:
    with answering(200, b"") as url:
        pass
    said = ask(url)
    assert said.status == 2
    assert f"Prometheus at {url} does not answer" in said.err


@pytest.mark.parametrize("url", ["prometheus", "ftp://prometheus", "http://", "http://host:port", "http://h?query=up"])
def test_what_is_no_address_is_refused(url: str) -> None:
    said = ask(url)
    assert said.status == 2
    assert "--prometheus-url: is not a web address" in said.err


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    said = ask("http://reader:geheim@127.0.0.1:9090")
    assert said.status == 2
    assert "geheim" not in said.err + said.out
    assert "password" in said.err


def test_two_places_to_ask_are_one_too_many(tmp_path: Path) -> None:
    said = run(
        *("metrics", "busy", "--prometheus-url", "http://127.0.0.1:1", "--state", tmp_path, "--repository", ROOT)
    )
    assert said.status == 2
    assert "name more than one Prometheus" in said.err


def test_a_folder_without_a_platform_has_no_prometheus(tmp_path: Path) -> None:
    said = run("metrics", "busy", "--state", tmp_path, "--repository", ROOT)
    assert said.status == 2
    assert "neuroscale local up" in said.err


# The rules of this repository, by the real thing ----------------------------------------------------------------------


@pytest.mark.slow
def test_prometheus_records_what_the_rules_say_and_nothing_for_an_idle_service(services: Services) -> None:
    lab = services.lab
    # Two evaluations, which are 15 s apart.
    lab.await_value('count(count_over_time(service:up:sum{service="quiet"}[2m]) >= 2)', 1, seconds=90)
    assert lab.value('service:up:sum{service="quiet"}') == 1
    busy = lab.value('service:vllm_time_to_first_token_seconds:p95_5m{service="busy"}')
    assert busy is None or busy > 0
    assert (
        lab.prometheus.vector('service:vllm_time_to_first_token_seconds:p95_5m{service="quiet"}', lab.prometheus.now())
        == []
    )
    groups = lab.http.get(f"{lab.url}/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]


# A cluster's Prometheus, by the settings ------------------------------------------------------------------------------


def test_what_is_wrong_with_the_way_to_a_clusters_prometheus_is_told_at_its_place(api_server: ApiServer) -> None:
    namespace = f"monitoring-{secrets.token_hex(3)}"
    cluster, wanted = api_server.cluster, Configured(namespace=namespace)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    metadata = {"name": wanted.service, "namespace": namespace}

    def told() -> str:
        with pytest.raises(InputError) as error, in_cluster(cluster, wanted, "dev"):
            raise AssertionError("it was reached")
        return str(error.value)

    place = "platform/settings.yaml: environments.dev.prometheus: the Service"
    assert told().startswith(f"{place} {namespace}/prometheus-operated is not in the cluster")
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    cluster.apply({**service, "spec": {"selector": {"app": "prometheus"}, "ports": [{"port": 80}]}})
    assert "has no port 9090 that leads to pods" in told()
    cluster.apply({**service, "spec": {"selector": {"app": "prometheus"}, "ports": [{"port": 9090}]}})
    assert "has no pod that is ready (it has none)" in told()
    container = {"name": "prometheus", "image": "registry.example.com/prometheus:1"}
    pod = {"name": "prometheus-0", "namespace": namespace, "labels": {"app": "prometheus"}}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"containers": [container]}})
    assert "prometheus-0: waits for the scheduler" in told()


def test_a_service_of_this_machine_is_looked_for_on_the_local_platform(tmp_path: Path, services: Services) -> None:
    for part in ("platform", "manifests/local", "templates"):
        shutil.copytree(ROOT / part, tmp_path / part)
    for named in ("tiny-moe", "local/tiny-moe"):
        said = run("metrics", named, "--repository", tmp_path)
        assert said.status == 2
        assert f"{tmp_path}/.state/local" in said.err
        assert "neuroscale local up" in said.err
        assert "environments.dev" not in said.err
    said = run("metrics", "tiny-moe", "--repository", tmp_path, "--prometheus-url", services.lab.url)
    assert "no data of the last" in said.out
