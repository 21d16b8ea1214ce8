"""Judges whether a NetworkPolicy opens more than the platform's own ones do.

The platform's NetworkPolicies (`platform/tenancy/`, `templates/llm-inference-service/skeleton/networkpolicy.yaml`) deny
everything, and then let in the pods of the service's namespace and of namespaces that they name, and let out requests
to the cluster's DNS, and over HTTPS to addresses outside private networks. NetworkPolicies add up: one that opens more
undoes all others, on whatever ports. Where the settings of an environment declare a metadata server, or a DNS server
with a link-local address, a service there may also call exactly that address, on that port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from neuroscale.core.yaml_io import Path

RULE = "open-network"

_MOST = {4: 2 ** (32 - 15), 6: 2 ** (128 - 47)}
"""The most addresses that blocks may hold together, by the version of IP: those of an IPv4 /15 or an IPv6 /47. An
office, a database or the probes of a load balancer have fewer (Google's come from 35.191.0.0/16 and 130.211.0.0/22); a
cluster's pods, or the Internet, more."""
_PRIVATE = (
    *("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    *("fc00::/7", "fe80::/10"),
)
"""The networks to which the platform lets nothing out (RFC 1918, 6598, 3927, 4193 and 4291)."""
_METADATA = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
"""The addresses at which clouds give a node's own credentials to any caller."""
_SHARED = ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "pod-security.kubernetes.io/")
"""Prefixes of labels that have the same value on many namespaces."""

_CALLERS = (
    "Name the callers: a podSelector in the policy's own namespace, or a namespace by kubernetes.io/metadata.name."
)
_GOALS = (
    "Name the pods or namespaces that its pods call; for the Internet, allow TCP port 443 to 0.0.0.0/0 and except the "
    "private networks, as the template's NetworkPolicy does."
)


_DECLARED = (
    "Remove it. For the cloud's metadata server or such a DNS server, write workload_identity or dns into the settings "
    "of the service's environment; once they are on main, renew the plan: `neuroscale replan`."
)

Answering = Collection[tuple[str, str, int]]
"""Link-local addresses that a service may call, each with a protocol and a port."""


class OpenRule(NamedTuple):
    """A rule of a NetworkPolicy that opens too much: its place in the object, the fault, and what to write instead."""

    place: Path
    told: str
    fix: str


class _Range(NamedTuple):
    version: int
    first: int
    last: int


def open_rules(spec: Mapping[str, Any], answering: Answering = ()) -> Iterator[OpenRule]:
    """The rules of a NetworkPolicy's spec that open more than the platform's own. `answering`: the link-local addresses
    that its environment declares."""
    types = spec.get("policyTypes")
    if not types or "Ingress" in types:
        yield from _ingress(_rules(spec, "ingress"))
    # Without policyTypes, Kubernetes reads the rules for what goes out if there are any.
    if not types or "Egress" in types:
        yield from _egress(_rules(spec, "egress"), answering)


def _rules(spec: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    rules = spec.get(field)
    return [rule if isinstance(rule, dict) else {} for rule in rules] if isinstance(rules, list) else []


def _ingress(rules: Sequence[Mapping[str, Any]]) -> Iterator[OpenRule]:
    blocks: list[_Range] = []
    first: Path = ()
    for index, rule in enumerate(rules):
        place: Path = ("spec", "ingress", index)
        peers = rule.get("from")
        if not peers or not isinstance(peers, list):
            yield OpenRule(
                place, f"spec.ingress[{index}] lets everybody in, whatever other policies keep out", _CALLERS
            )
            continue
        for number, peer in enumerate(peers):
            at = f"spec.ingress[{index}].from[{number}]"
            if (block := _block(peer)) is not None:
                if isinstance(block, str):
                    yield OpenRule((*place, "from", number), f"{at}.ipBlock cannot be read: {block}", _CALLERS)
                    continue
                blocks += block
                first = first or (*place, "from", number)
            elif _any_namespace(peer):
                told = f"{at} lets in pods of namespaces that it does not name: every team can run such a pod"
                yield OpenRule((*place, "from", number), told, _CALLERS)
    if too_many := _too_many(blocks):
        yield OpenRule(first, f"spec.ingress lets in {too_many}, whatever other policies keep out", _CALLERS)


def _egress(rules: Sequence[Mapping[str, Any]], answering: Answering) -> Iterator[OpenRule]:
    inside: list[_Range] = []  # that no rule may open in large parts
    first: Path = ()
    for index, rule in enumerate(rules):
        place: Path = ("spec", "egress", index)
        peers = rule.get("to")
        if not peers or not isinstance(peers, list):
            yield OpenRule(place, f"spec.egress[{index}] lets its pods call every address", _GOALS)
            continue
        for number, peer in enumerate(peers):
            at = f"spec.egress[{index}].to[{number}]"
            if (block := _block(peer)) is not None:
                here: Path = (*place, "to", number)
                if isinstance(block, str):
                    yield OpenRule(here, f"{at}.ipBlock cannot be read: {block}", _GOALS)
                    continue
                if _size(_common(block, _networks(_METADATA))):
                    if _answers(block, rule.get("ports"), answering):
                        continue
                    told = f"{at}.ipBlock holds link-local addresses, where clouds give a node's credentials to any pod"
                    yield OpenRule(here, told, _DECLARED)
                    continue
                inside += _common(block, _networks(_PRIVATE)) if _only_https(rule.get("ports")) else block
                first = first or here
            elif _any_namespace(peer) and not _demands_a_value(peer.get("podSelector")):
                told = f"{at} lets its pods call every pod of namespaces that it does not name"
                yield OpenRule((*place, "to", number), told, _GOALS)
    if too_many := _too_many(inside):
        told = f"spec.egress lets its pods call {too_many}: in private networks, or on other ports than TCP 443"
        yield OpenRule(first, told, _GOALS)


def _answers(block: Sequence[_Range], ports: Any, answering: Answering) -> bool:
    """Whether a block is one address, and the ports are those alone at which the settings say that it answers."""
    if len(block) != 1 or block[0].first != block[0].last or not isinstance(ports, list) or not ports:
        return False
    address = str((ipaddress.IPv4Address if block[0].version == 4 else ipaddress.IPv6Address)(block[0].first))
    return all(
        isinstance(port, dict)
        and isinstance(port.get("port"), int)
        and port.get("endPort") in (None, port["port"])
        and (address, port.get("protocol") or "TCP", port["port"]) in answering
        for port in ports
    )


def _only_https(ports: Any) -> bool:
    """Whether the ports of a rule are TCP 443 alone."""
    return isinstance(ports, list) and bool(ports) and all(_is_https(one) for one in ports)


def _is_https(port: Any) -> bool:
    return (
        isinstance(port, dict)
        and port.get("protocol") in (None, "TCP")
        and port.get("port") == 443
        and port.get("endPort") in (None, 443)
    )


def _any_namespace(peer: Any) -> bool:
    """Whether a peer holds pods of namespaces that it does not name."""
    if not isinstance(peer, dict):
        return True
    selector = peer.get("namespaceSelector")
    if selector is None:
        return peer.get("podSelector") is None  # otherwise pods of the policy's own namespace
    return not _demands_a_value(selector, _SHARED)


def _demands_a_value(selector: Any, but: tuple[str, ...] = ()) -> bool:
    """Whether a selector demands that a label has one of the values that it lists. Labels by prefixes of `but` do not
    count."""
    if not isinstance(selector, dict):
        return False
    labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    demanded = [str(key) for key in labels] if isinstance(labels, dict) else []
    demanded += [
        str(one.get("key"))
        for one in (expressions if isinstance(expressions, list) else ())
        if isinstance(one, dict) and one.get("operator") == "In"
    ]
    return any(not key.startswith(but) for key in demanded)


def _block(peer: Any) -> list[_Range] | str | None:
    """The addresses of a peer's block, the fault of one that cannot be read, or None for a peer without a block."""
    block = peer.get("ipBlock") if isinstance(peer, dict) else None
    if block is None:
        return None
    if not isinstance(block, dict):
        return "it is not a mapping"
    try:
        found = _networks([str(block.get("cidr"))])
        excepted = block.get("except")
        for one in _networks([str(one) for one in excepted] if isinstance(excepted, list) else []):
            found = [left for whole in found for left in _without(whole, one)]
    except ValueError:
        return "its addresses are not written as a network, such as 192.0.2.0/24"
    return found


def _networks(texts: Sequence[str]) -> list[_Range]:
    networks = [ipaddress.ip_network(text, strict=False) for text in texts]
    return [_Range(one.version, int(one.network_address), int(one.broadcast_address)) for one in networks]


def _without(whole: _Range, taken: _Range) -> Iterator[_Range]:
    if whole.version != taken.version or taken.last < whole.first or taken.first > whole.last:
        yield whole
        return
    if whole.first < taken.first:
        yield whole._replace(last=taken.first - 1)
    if taken.last < whole.last:
        yield whole._replace(first=taken.last + 1)


def _common(some: Sequence[_Range], others: Sequence[_Range]) -> list[_Range]:
    return [
        _Range(one.version, max(one.first, other.first), min(one.last, other.last))
        for one in some
        for other in others
        if one.version == other.version and one.first <= other.last and other.first <= one.last
    ]


def _too_many(ranges: Sequence[_Range]) -> str:
    """The number of addresses in words if it is beyond the limit of their version of IP, otherwise an empty text."""
    for version, most in _MOST.items():
        if (size := _size([one for one in ranges if one.version == version])) > most:
            return f"{size:,} addresses" if version == 4 else "a large part of the addresses of IPv6"
    return ""


def _size(ranges: Sequence[_Range]) -> int:
    """The number of addresses in ranges, each counted once."""
    total, reached = 0, (0, -1)
    for version, first, last in sorted(ranges):
        end = reached[1] if reached[0] == version else -1
        total += max(0, last - max(first, end + 1) + 1)
        reached = (version, max(end, last))
    return total
