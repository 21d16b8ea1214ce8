"""Requests and plans with any text in them, for property tests."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from neuroscale.catalog.cluster_settings import SecretStore
from neuroscale.planning.plan import (
    Architecture,
    Memory,
    Plan,
    Replicas,
    Resources,
    Runtime,
    Startup,
    Surroundings,
    Tenancy,
)
from neuroscale.request.service_request import Override, Request
from plan_factory import make_plan, make_request

HOSTILE = (
    "",
    " ",
    "x: y",
    "- x",
    "#x",
    "a #b",
    "'",
    '"',
    '"}',
    "\\",
    "a\nb: c\n---\nkind: Secret\n",
    "\r\n",
    "\t",
    "\x00",
    "\x85\u2028\u2029",
    "\ufeff",
    "\x7f\x1b[31m",
    "\U0001f600",
    "null",
    "~",
    "true",
    "yes",
    "0o7",
    "1_000",
    "12:30",
    "2026-01-01",
    "1e3",
    "=",
    "<<",
    "&a",
    "*a",
    "!!python/object:os.system",
    "${{ values.service }}",
    "${{ secrets.token }}",
    "{% for x in values.args %}",
    "{# comment #}",
    "{{.Name}}",
    "$(HOME)",
    "$HOME",
    "`id`",
    "; rm -rf /",
    "$(id)",
    "../../etc/passwd",
    "marker:image:",
    "\ud800",
)
"""Text that some parser on the way to the cluster would misread."""

any_text = (
    st.sampled_from(HOSTILE)
    | st.text(max_size=40)
    | st.tuples(st.text(max_size=6), st.sampled_from(HOSTILE), st.text(max_size=6)).map("".join)
)
"""Any characters, lone surrogates included."""

writable_text = any_text.filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text))
"""Any text that a file can hold."""

inert_text = writable_text.filter(lambda text: not any(opening in text for opening in ("{{", "$(")))
"""Any text that neither KServe nor Kubernetes replaces inside a container."""

label_values = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A request that is valid by itself: any model, team and environment, any reason for an override."""
    override = st.builds(
        Override,
        field=st.just("replicas.min"),
        value=st.integers(1, 9),
        reason=writable_text.filter(str.strip),
        expires=st.dates(),
    )
    longest_prompt, longest_answer = draw(st.integers(1, 1_048_576)), draw(st.integers(1, 131_072))
    changes: dict[str, Any] = {
        "service": draw(st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)),
        "model": draw(writable_text),
        "team": draw(writable_text),
        "environment": draw(names),
        "concurrent_users": draw(st.integers(1, 4096)),
        "longest_prompt_tokens": longest_prompt,
        "longest_answer_tokens": longest_answer,
        "typical_prompt_tokens": draw(st.none() | st.integers(1, longest_prompt)),
        "typical_answer_tokens": draw(st.none() | st.integers(1, longest_answer)),
        "p95_ttft_seconds": draw(st.floats(0.01, 120)),
        "availability": draw(st.sampled_from(("standard", "high"))),
        "overrides": tuple(draw(st.lists(override, max_size=1))),
    }
    return make_request(**changes)


@st.composite
def plans(draw: st.DrawFn, request: Request) -> Plan:
    """A plan that belongs to the request and can be rendered, with any text where a plan may hold text."""
    ratio = draw(st.floats(0.0001, 0.9999) | st.just(1.0))
    minimum = draw(st.integers(1, 5000))
    environment = draw(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True), inert_text, max_size=4))
    environment |= {"HOME": draw(st.sampled_from(("/home/vllm", "/srv/x"))), "USER": draw(inert_text.filter(bool))}
    environment.pop("HF_TOKEN", None)
    return make_plan(
        request,
        verdict=draw(st.sampled_from(("fits", "tight"))),
        model_source=draw(st.sampled_from(("hf://", "gs://", "s3://", "pvc://", "file://", ""))) + draw(inert_text),
        accelerator=draw(writable_text),
        tensor_parallel_size=draw(st.integers(1, 16) | st.just(1000)),
        replicas=Replicas(min=minimum, max=minimum + draw(st.integers(0, 9))),
        memory_gib=Memory(
            weights=draw(st.floats(0.001, 2000)), kv_cache=1.0, overhead=1.0, usable=80.0, free=draw(st.floats(-9, 9))
        ),
        architecture=Architecture(
            kind="dense" if ratio == 1 else "moe",
            total_params=draw(st.integers(1, 3 * 10**12)),
            active_params=1,
            active_params_without_embedding=None,
            active_ratio=ratio,
        ),
        vllm_args=tuple(draw(st.lists(inert_text, min_size=1, max_size=4))),
        environment_variables=environment,
        needs_hugging_face_token=draw(st.booleans()),
        startup=Startup(expected_seconds=1, probe_budget_seconds=draw(st.integers(1, 20_000))),
        runtime=Runtime(
            name=draw(inert_text),
            image=draw(inert_text),
            version=draw(writable_text),
            uid=draw(st.integers(1, 65535)),
            gid=draw(st.integers(1, 65535)),
        ),
        resources=Resources(
            cpu=draw(st.integers(1, 2000)),
            memory_gib=draw(st.integers(1, 4096)),
            shared_memory_gib=draw(st.integers(1, 64)),
            accelerator_resource=draw(st.sampled_from(("", "nvidia.com/gpu", "google.com/tpu"))),
            node_selector=draw(
                st.dictionaries(st.sampled_from(("a", "true", "1", "example.com/b.c", "n")), label_values, max_size=3)
            ),
        ),
        surroundings=Surroundings(
            token_secret=draw(names),
            token_key=draw(label_values),
            client_namespaces=tuple(draw(st.lists(names, min_size=1, max_size=3))),
            secret_store=draw(st.none() | st.builds(SecretStore, kind=st.just("external-secrets"), store=names)),
        ),
        tenancy=Tenancy(
            team=request.team,
            owner=draw(label_values),
            cost_center=draw(label_values),
            namespace=draw(names),
        ),
        reasons=tuple(draw(st.lists(writable_text, max_size=3))),
        cost=make_plan().cost.model_copy(
            update={"price_source": draw(writable_text), "price_date": date(2026, 1, 1), "hourly": Decimal("1.5")}
        ),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Request, Plan]:
    """A request with a plan of its own."""
    request = draw(requests())
    return request, draw(plans(request))
