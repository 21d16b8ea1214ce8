"""Points webhooks at processes of this machine instead of Services of the cluster."""

from __future__ import annotations

import base64
import copy
from urllib.parse import urlsplit

from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Identity, Object

WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
GROUP_VERSION = "admissionregistration.k8s.io/v1"
# Only root may listen there, so a webhook that points there fails, open or closed by its own failure policy.
_NOWHERE = 1


def at_port(configuration: Object, port: int, authority: str) -> Object:
    """The configuration with a loopback port in place of its Services; `authority` (PEM) signed the port's certificate.

    All other fields, such as the failure policy, stay as upstream sets them.
    """
    found = copy.deepcopy(configuration)
    bundle = base64.b64encode(authority.encode()).decode()
    for webhook in found["webhooks"]:
        path = webhook["clientConfig"]["service"].get("path", "")
        webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
    # This annotation lets cert-manager fill in the authority.
    found["metadata"].get("annotations", {}).pop("cert-manager.io/inject-ca-from", None)
    return found


def hold(cluster: Cluster, labels: str) -> None:
    """Point the webhooks that a program registered itself to nowhere until it registers them again.

    A program that has just started may answer before it has read its policies, and then allows everything. Until it has
    registered itself, the API server refuses objects that must not pass unjudged.
    """
    for kind in WEBHOOK_KINDS:
        for found in cluster.list(GROUP_VERSION, kind, labels=labels):
            webhooks = found.get("webhooks", [])
            for webhook in webhooks:
                address = webhook["clientConfig"].get("url")
                if address:
                    webhook["clientConfig"]["url"] = f"https://{LOOPBACK}:{_NOWHERE}{urlsplit(address).path}"
            if webhooks:
                cluster.merge(Identity.of(found), {"webhooks": webhooks})


def registered(cluster: Cluster, kind: str, name: str) -> list[tuple[str, str, str]]:
    """The name and address of each webhook of a configuration, and the authority (PEM) that must have signed it."""
    found = cluster.get(GROUP_VERSION, kind, name) or {}
    return [
        (
            webhook["name"],
            webhook["clientConfig"].get("url", ""),
            base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode(),
        )
        for webhook in found.get("webhooks", [])
    ]
