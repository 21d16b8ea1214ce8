"""The faults of a deployment, one at a time, and the smoke checks that must fail."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import Response
from fastapi.responses import JSONResponse

from model_faults import Call, Certificate, Fault
from neuroscale.cluster.admission_tripwires import try_tripwires
from neuroscale.cluster.endpoint import metrics
from neuroscale.kube.client import Identity, Object

if TYPE_CHECKING:
    from smoke_lab import Lab

_COMPLETIONS, _CHAT, _MODELS = "/v1/completions", "/v1/chat/completions", "/v1/models"
PATIENCE = 6.0
"""Seconds that the smoke tests wait for a first answer that never comes."""
_PATIENT = 60.0
"""Seconds that they wait for a first answer otherwise."""


@dataclass(frozen=True)
class Asked:
    """The options of the smoke tests. `trusts`: an authority that is trusted beside the default ones."""

    service: str = ""
    base_url: str = ""
    revision: str = ""
    kubeconfig: Path | None = None
    patience: float = _PATIENT
    trusts: Path | None = None
    real_kubectl: bool = False


Arrange = Callable[["Lab"], contextlib.AbstractContextManager[Asked]]


@dataclass(frozen=True)
class Breakage:
    """`fails`: the ids of all checks that fail. `trusted`: whether any check of the service could still decide.

    `fault`: the fault of the model server, if nothing else is broken. `place`: the part of the deployment that is
    broken, if other parts can be broken in the same run; empty if it must be broken alone. `last`: checks that fail as
    well, unless the time in which lost requests are asked again is over before them.
    """

    name: str
    fails: frozenset[str]
    arrange: Arrange
    trusted: bool = True
    fault: Callable[[Lab], Fault] | None = None
    place: str = ""
    last: frozenset[str] = frozenset()


# ------------------------------------------------------------ the server


def _server(name: str, fails: str, fault: Callable[[Lab], Fault], patience: float = _PATIENT) -> Breakage:
    """One fault of a model server."""

    @contextlib.contextmanager
    def arrange(lab: Lab) -> Iterator[Asked]:
        with lab.broken(fault(lab)):
            yield Asked(patience=patience)

    return Breakage(name, frozenset(fails.split()), arrange, fault=fault if patience == _PATIENT else None)


def at_once(breakages: Iterable[Breakage]) -> list[Breakage]:
    """Faults of the model server, as many at a time as can be distinguished: each check fails for only one of them."""
    faults = (one for one in breakages if one.fault is not None)
    return [_together(group) for group in _grouped(faults, lambda one, other: True)]


def places_at_once(breakages: Iterable[Breakage]) -> list[Breakage]:
    """Other breakages in the same way, of each place at most one at a time; those without a place stay alone."""
    groups = _grouped(breakages, lambda one, other: "" != one.place != other.place != "")
    return [_in_all_places(group) if len(group) > 1 else group[0] for group in groups]


def _grouped(breakages: Iterable[Breakage], agree: Callable[[Breakage, Breakage], bool]) -> list[list[Breakage]]:
    groups: list[list[Breakage]] = []
    for one in breakages:
        free = (group for group in groups if all(agree(one, other) and not one.fails & other.fails for other in group))
        if (group := next(free, None)) is not None:
            group.append(one)
        else:
            groups.append([one])
    return groups


def _in_all_places(breakages: Sequence[Breakage]) -> Breakage:
    @contextlib.contextmanager
    def arrange(lab: Lab) -> Iterator[Asked]:
        with contextlib.ExitStack() as stack:
            found = [vars(stack.enter_context(one.arrange(lab))) for one in breakages]
            usual = vars(Asked())
            yield Asked(
                **{name: next((one[name] for one in found if one[name] != usual[name]), usual[name]) for name in usual}
            )

    fails = frozenset[str]().union(*(one.fails for one in breakages))
    last = frozenset[str]().union(*(one.last for one in breakages))
    return Breakage("; ".join(one.name for one in breakages), fails, arrange, last=last)


def _together(breakages: Sequence[Breakage]) -> Breakage:
    made = [one.fault for one in breakages if one.fault is not None]
    fails = " ".join(check for one in breakages for check in one.fails)
    return _server("; ".join(one.name for one in breakages), fails, lambda lab: _all_of([fault(lab) for fault in made]))


def _all_of(faults: Sequence[Fault]) -> Fault:
    async def meet(call: Call) -> Response | None:
        for one in faults:
            if one.meet is not None and (met := await one.meet(call)) is not None:
                return met
        return None

    def ask(call: Call) -> dict[str, Any]:
        for one in faults:
            call = replace(call, asked=one.ask(call)) if one.ask is not None else call
        return call.asked

    def answer(call: Call, found: Any) -> Any:
        for one in faults:
            found = one.answer(call, found) if one.answer is not None else found
        return found

    def text(call: Call, found: str) -> str:
        for one in faults:
            found = one.text(call, found) if one.text is not None else found
        return found

    def stream(call: Call, parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        for one in faults:
            parts = one.stream(call, parts) if one.stream is not None else parts
        return parts

    def key(call: Call) -> str | None:
        shown = (one.key(call) for one in faults if one.key is not None)
        return next((found for found in shown if found is not None), None)

    return Fault(meet, ask, answer, text, stream, key)


def _meets(path: str, status: int, words: Any = None) -> Callable[[Lab], Fault]:
    """A path that gives this answer to every caller that the server lets in."""

    def fault(lab: Lab) -> Fault:
        async def meet(call: Call) -> Response | None:
            refused = call.path.startswith("/v1/") and call.key != lab.key
            return JSONResponse(words, status) if call.path == path and not refused else None

        return Fault(meet=meet)

    return fault


def _answers(path: str, change: Callable[[Any], Any]) -> Callable[[Lab], Fault]:
    return lambda lab: Fault(answer=lambda call, found: change(found) if call.path == path else found)


def _listed(**fields: Any) -> Callable[[Any], Any]:
    return lambda found: {**found, "data": [{**one, **fields} for one in found["data"]]}


def _miscounted(found: Any) -> Any:
    usage = {**found["usage"], "completion_tokens": found["usage"]["completion_tokens"] - 1}
    return {**found, "usage": usage}


def _says(text: str) -> Callable[[Lab], Fault]:
    """The same text in every answer that is not a stream."""

    def change(call: Call, found: Any) -> Any:
        if call.path == _COMPLETIONS:
            return {**found, "choices": [{**one, "text": text} for one in found["choices"]]}
        if call.path == _CHAT:
            said = {"role": "assistant", "content": text}
            return {**found, "choices": [{**one, "message": said} for one in found["choices"]]}
        return found

    return lambda lab: Fault(answer=change)


def _held_back(lab: Lab) -> Fault:
    async def stream(_: Call, parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        yield b"".join([part async for part in parts])

    return Fault(stream=stream)


def _broken_off(lab: Lab) -> Fault:
    async def stream(_: Call, parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(parts):
            yield await anext(parts)

    return Fault(stream=stream)


def _short_answers(lab: Lab) -> Fault:
    """Behind the longest prompt is room for one token less than the longest answer."""

    def ask(call: Call) -> dict[str, Any]:
        prompt = call.asked.get("prompt")
        if isinstance(prompt, list) and len(prompt) >= lab.longest_prompt and "max_tokens" in call.asked:
            return {**call.asked, "max_tokens": min(lab.longest_answer - 1, call.asked["max_tokens"])}
        return call.asked

    return Fault(ask=ask)


def _cut_prompts(lab: Lab) -> Fault:
    """Too long a prompt is cut off without a word."""

    def ask(call: Call) -> dict[str, Any]:
        prompt = call.asked.get("prompt")
        if isinstance(prompt, list) and len(prompt) > lab.max_model_len:
            return {**call.asked, "prompt": prompt[: lab.max_model_len - 1]}
        return call.asked

    return Fault(ask=ask)


def _too_long_is(status: int, words: dict[str, Any]) -> Callable[[Lab], Fault]:
    def fault(lab: Lab) -> Fault:
        async def meet(call: Call) -> Response | None:
            prompt = call.asked.get("prompt")
            too_long = isinstance(prompt, list) and len(prompt) > lab.max_model_len
            return JSONResponse(words, status) if too_long else None

        return Fault(meet=meet)

    return fault


def _late(lab: Lab) -> Fault:
    """Two of the longest prompts with few tokens to answer, by which the first token is timed, come too late."""
    waits = iter([lab.p95_ttft + 0.5] * 2)

    async def meet(call: Call) -> None:
        prompt, tokens = call.asked.get("prompt"), call.asked.get("max_tokens", 0)
        if isinstance(prompt, list) and len(prompt) == lab.longest_prompt and tokens <= 4:
            await asyncio.sleep(next(waits, 0.0))

    return Fault(meet=meet)


def _few_users(lab: Lab) -> Fault:
    async def meet(call: Call) -> Response | None:
        if call.running >= lab.users and call.path == _COMPLETIONS:
            return JSONResponse({"error": {"message": "overloaded"}}, 503)
        # Until the others are there.
        if isinstance(call.asked.get("prompt"), list) and call.asked.get("stream"):
            await asyncio.sleep(0.5)
        return None

    return Fault(meet=meet)


def _lets_in(lab: Lab, who: Callable[[Call], bool]) -> Fault:
    return Fault(key=lambda call: lab.key if who(call) else None)


def _silent(lab: Lab) -> Fault:
    async def meet(call: Call) -> Response | None:
        if call.path != _COMPLETIONS or call.key != lab.key:
            return None
        await asyncio.sleep(4 * PATIENCE)
        return Response("", 504)

    return Fault(meet=meet)


def _without_metric(lab: Lab) -> Fault:
    def text(call: Call, found: str) -> str:
        rows = found.splitlines(keepends=True) if call.path == "/metrics" else [found]
        return "".join(row for row in rows if metrics.WAITING not in row)

    return Fault(text=text)


def _frozen_metrics(lab: Lab) -> Fault:
    first: list[str] = []

    def text(call: Call, found: str) -> str:
        if call.path != "/metrics":
            return found
        first.append(found)
        return first[0]

    return Fault(text=text)


# ------------------------------------------------------------ the gateway


@contextlib.contextmanager
def _gateway(lab: Lab, certificate: Certificate, *, trusted: bool = True, opens: tuple[str, ...] | None = ()) -> Any:
    with lab.gateway(certificate, opens) as url:
        yield Asked(base_url=url, trusts=certificate.authority if trusted else None)


def _at_gateway(name: str, fails: str, arrange: Arrange) -> Breakage:
    return Breakage(name, frozenset(fails.split()), arrange, place="gateway")


def _asked_at(url: str) -> Any:
    return contextlib.nullcontext(Asked(base_url=url))


def _in_the_clear(lab: Lab) -> Any:
    return _gateway(lab, Certificate())


def _open_gateway(lab: Lab) -> Any:
    return _gateway(lab, certificate(lab.folder, "open"), opens=None)


def healthy_gateway(lab: Lab) -> Any:
    """Nothing is wrong with it."""
    return _gateway(lab, certificate(lab.folder, "healthy"))


@contextlib.contextmanager
def _without_a_pod(lab: Lab, each: int, patience: float) -> Iterator[Asked]:
    """A gateway that does not find a pod for every so many requests."""
    count = itertools.count(1)

    async def meet(_: Call) -> Response | None:
        return Response("no healthy upstream", 503) if next(count) % each == 0 else None

    made = certificate(lab.folder, "without")
    with lab.gateway(made, (), Fault(meet=meet)) as url:
        yield Asked(base_url=url, trusts=made.authority, patience=patience)


def restless_gateway(lab: Lab) -> Any:
    """One request in 21 fails on its way, as where pods are replaced: fewer than a good service may lose."""
    return _without_a_pod(lab, 21, _PATIENT)


def certificate(folder: Path, name: str, host: str = "127.0.0.1", days_left: int = 60) -> Certificate:
    """A server's certificate of an authority of its own, issued a year ago at most."""
    now, parts = datetime.now(UTC), {}
    keys = {one: ec.generate_private_key(ec.SECP256R1()) for one in ("authority", "server")}
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Test authority {name}")])
    for one, subject in (("authority", issuer), ("server", x509.Name([]))):
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=one == "authority",
            crl_sign=one == "authority",
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(keys[one].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=90))
            .not_valid_after(now + timedelta(days=days_left if one == "server" else 90))
            .add_extension(x509.BasicConstraints(ca=one == "authority", path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(keys[one].public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["authority"].public_key()), critical=False
            )
        )
        if one == "server":
            address = _address(host)
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=True)
        parts[one] = builder.sign(keys["authority"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    files = {one: folder / f"{name}-{one}.pem" for one in ("authority", "server", "key")}
    parts["key"] = keys["server"].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for one, path in files.items():
        path.write_bytes(parts[one])
    return Certificate(files["server"], files["key"], files["authority"])


def _address(host: str) -> x509.GeneralName:
    import ipaddress

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# ------------------------------------------------------------ the cluster


@contextlib.contextmanager
def _changed_by_hand(lab: Lab) -> Iterator[Asked]:
    """Change a field of the live InferenceService, which Argo CD does not see."""
    service = Identity("serving.kserve.io/v1beta1", "InferenceService", lab.namespace, lab.service)
    most = lab.live(service)["spec"]["predictor"]["maxReplicas"]
    with lab.argocd_stopped(f"{lab.service}.{lab.environment}"):
        try:
            lab.cluster.merge(service, {"spec": {"predictor": {"maxReplicas": most + 1}}})
            lab.await_running()
            yield Asked()
        finally:
            lab.cluster.merge(service, {"spec": {"predictor": {"maxReplicas": most}}})
    lab.await_running()


def _is_there(lab: Lab, identity: Identity) -> bool:
    return lab.cluster.get(identity.group_version, identity.kind, identity.name, identity.namespace) is not None


def _pod_label(label: str) -> Arrange:
    @contextlib.contextmanager
    def arrange(lab: Lab) -> Iterator[Asked]:
        (pod,) = lab.pods()
        identity = Identity("v1", "Pod", lab.namespace, pod["metadata"]["name"])
        lab.cluster.merge(identity, {"metadata": {"labels": {label: "somebody-else"}}})
        try:
            yield Asked()
        finally:
            lab.cluster.merge(identity, {"metadata": {"labels": {label: pod["metadata"]["labels"][label]}}})

    return arrange


@contextlib.contextmanager
def _policy_removed(lab: Lab) -> Iterator[Asked]:
    removed = next(one for one in lab.policies.policies if one.name == "single-autoscaler")
    with lab.argocd_stopped("platform-policies"):
        identity = Identity.of(removed.value)
        there = lab.live(identity)
        try:
            lab.cluster.delete(identity)
            lab.wait(lambda: try_tripwires(lab.cluster, lab.policies).silent, "admission forgets the policy")
            yield Asked()
        finally:
            if not _is_there(lab, identity):
                lab.cluster.create(_again(there))
            lab.wait(lambda: not try_tripwires(lab.cluster, lab.policies).silent, "admission knows the policy again")


@contextlib.contextmanager
def _secret_gone(lab: Lab) -> Iterator[Asked]:
    identity = Identity("v1", "Secret", lab.namespace, f"{lab.service}-api-key")
    there = lab.live(identity)
    lab.cluster.delete(identity)
    try:
        yield Asked()
    finally:
        lab.cluster.create(_again(there))


def _again(found: Object) -> Object:
    """An object as it can be created once more."""
    kept = {name: found["metadata"].get(name) for name in ("name", "namespace", "labels", "annotations")}
    rest = {name: value for name, value in found.items() if name not in ("metadata", "status")}
    return {**rest, "metadata": {name: value for name, value in kept.items() if value}}


# ------------------------------------------------------------ the repository


@contextlib.contextmanager
def _merged_and_not_deployed(lab: Lab) -> Iterator[Asked]:
    """Git has other arguments than the cluster."""
    yield Asked(revision=lab.commit(f"{lab.path}/inferenceservice.yaml", "--enforce-eager", "--no-enforce-eager"))


@contextlib.contextmanager
def _merged_and_not_synced(lab: Lab) -> Iterator[Asked]:
    """Git holds the same objects, and Argo CD has not seen the commit."""
    yield Asked(revision=lab.commit(f"{lab.path}/networkpolicy.yaml", "apiVersion:", "# A newer one.\napiVersion:"))


@contextlib.contextmanager
def _never_deployed(lab: Lab) -> Iterator[Asked]:
    """Git has a service that the cluster lacks: an empty namespace is not a healthy one."""
    name = "nowhere-to-be-seen"
    yield Asked(revision=lab.commit_copy(name), service=name)


def _kubeconfig(change: Callable[[Any], None]) -> Arrange:
    @contextlib.contextmanager
    def arrange(lab: Lab) -> Iterator[Asked]:
        found = yaml.safe_load(lab.kubeconfig.read_text(encoding="utf-8"))
        change(found)
        path = lab.folder / "kubeconfig"
        path.write_text(json.dumps(found), encoding="utf-8")
        path.chmod(0o600)
        yield Asked(kubeconfig=path)

    return arrange


def _nobody(found: Any) -> None:
    found["users"] = [{**one, "user": {"token": "not-a-token-of-anybody"}} for one in found["users"]]


def _elsewhere(found: Any) -> None:
    for one in found["clusters"]:
        one["cluster"]["server"] = "https://127.0.0.1:9"


# ------------------------------------------------------------ all of them

_ALL_STREAMS = "streaming longest-prompt first-token concurrent-users metrics-move"
BREAKAGES: tuple[Breakage, ...] = (
    _server("its engine is dead", "health", _meets("/health", 500)),
    _server("it serves another model", "models", _answers(_MODELS, _listed(id="another"))),
    _server("it takes fewer tokens than planned", "models", _answers(_MODELS, _listed(max_model_len=64))),
    _server("it miscounts completions", "completion", _answers(_COMPLETIONS, _miscounted)),
    _server("it miscounts chats", "chat", _answers(_CHAT, _miscounted)),
    _server(
        "it has no chat template",
        "chat garbage",
        _meets(_CHAT, 400, {"error": {"message": "no template"}}),
    ),
    _server("its streams are held back", "streaming", _held_back),
    _server("its streams break off", _ALL_STREAMS, _broken_off),
    _server("it answers nothing", "garbage", _says("")),
    _server("it repeats a token", "garbage", _says("!" * 64)),
    _server("it repeats a few words", "garbage", _says("the model is the best of " * 8)),
    _server("it answers bytes", "garbage", _says("\ufffd\x00\ufffd\x07 \ufffd ok \ufffd")),
    _server("the longest answer does not fit", "longest-prompt", _short_answers),
    _server("it cuts prompts off", "too-long-prompt", _cut_prompts),
    _server("it crashes at too long a prompt", "too-long-prompt", _too_long_is(500, {"error": {"message": "oops"}})),
    _server("it does not say why it refuses", "too-long-prompt", _too_long_is(400, {"error": {"message": "no"}})),
    _server("its first token is late", "first-token", _late),
    _server("it fails under the form's users", "concurrent-users", _few_users),
    _server("it asks nobody for a key", "key-missing key-wrong", lambda lab: _lets_in(lab, lambda call: True)),
    _server("it lets in who shows no key", "key-missing", lambda lab: _lets_in(lab, lambda call: not call.key)),
    _server("it lets in who shows any key", "key-wrong", lambda lab: _lets_in(lab, lambda call: bool(call.key))),
    _server(
        "one of its paths is open",
        "key-missing key-wrong",
        lambda lab: _lets_in(lab, lambda call: call.path == "/v1/responses"),
    ),
    _server(
        "it runs the model for anybody", "keyless-paths", _meets("/invocations", 200, {"choices": [{"text": "Hello"}]})
    ),
    _server("it lacks a metric", "metrics-names", _without_metric),
    _server("its metrics stand still", "metrics-move", _frozen_metrics),
    _server("it has no metrics", "metrics-names metrics-move", _meets("/metrics", 404)),
    _server("it hangs", "completion", _silent, PATIENCE),
    _at_gateway("its address is not encrypted", "tls plain-http", _in_the_clear),
    _at_gateway("its gateway lets in every path", "keyless-paths", _open_gateway),
    _at_gateway(
        "its certificate is nobody's",
        "reachable",
        lambda lab: _gateway(lab, certificate(lab.folder, "stranger"), trusted=False),
    ),
    _at_gateway(
        "its certificate is another host's",
        "reachable",
        lambda lab: _gateway(lab, certificate(lab.folder, "other", host="other.example.com")),
    ),
    _at_gateway("its address is nobody's", "reachable", lambda lab: _asked_at("https://nowhere.invalid")),
    _at_gateway("nothing listens at its address", "reachable", lambda lab: _asked_at("https://127.0.0.1:1")),
    Breakage(
        "its gateway finds no pod of it",
        frozenset(["reachable", "models", "completion", "chat", "streaming", "garbage", "key-missing"]),
        lambda lab: _without_a_pod(lab, 1, PATIENCE),
        place="gateway",
        last=frozenset({"key-wrong"}),
    ),
    _at_gateway(
        "its certificate ends in days",
        "tls",
        lambda lab: _gateway(lab, certificate(lab.folder, "old", days_left=3)),
    ),
    Breakage("somebody changed it by hand", frozenset({"live-object"}), _changed_by_hand),
    Breakage(
        "its pod is charged to others", frozenset({"cost-labels", "live-pods"}), _pod_label("cost-center"), place="pod"
    ),
    Breakage(
        "its pod has another label", frozenset({"live-pods"}), _pod_label("app.kubernetes.io/managed-by"), place="pod"
    ),
    Breakage("a policy is gone", frozenset({"admission"}), _policy_removed, place="policies"),
    Breakage("its key is gone", frozenset({"reachable"}), _secret_gone),
    Breakage(
        "its change was not deployed",
        frozenset({"application", "live-object", "live-pods"}),
        _merged_and_not_deployed,
        place="repository",
    ),
    Breakage("Argo CD has not seen its change", frozenset({"application"}), _merged_and_not_synced, place="repository"),
    Breakage("nothing of it is there", frozenset({"application", "ready", "reachable"}), _never_deployed),
    Breakage("nobody knows who asks", frozenset({"identity"}), _kubeconfig(_nobody), trusted=False),
    Breakage("the API server is down", frozenset({"api-server"}), _kubeconfig(_elsewhere), trusted=False),
)
