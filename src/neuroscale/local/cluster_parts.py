"""Sets up the parts that the cluster's programs share: a namespace, definitions of kinds, an account, and rights."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from neuroscale.core import schemas
from neuroscale.kube.client import Object
from neuroscale.kube.control_plane import ControlPlane

_RBAC = "rbac.authorization.k8s.io"


def namespace(name: str) -> Object:
    """A namespace of the platform itself."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def definitions(groups: Collection[str], kinds: Collection[str] = ()) -> list[Object]:
    """The custom resource definitions of some groups (and kinds). Raises UntrustedError if set-up lacks them."""
    return [
        definition
        for definition in schemas.find().crds()
        if definition["spec"]["group"] in groups and (not kinds or definition["spec"]["names"]["kind"] in kinds)
    ]


def rights(user: str, role: str, rules: Sequence[Object]) -> list[Object]:
    """The objects that give a user of the cluster the rules of a role, in every namespace."""
    metadata = {"name": role}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
        },
    ]


def add_service_account(plane: ControlPlane, name: str, place: str, account: str) -> Path:
    """The kubeconfig of a program that acts as a pod with that service account.

    So the program has exactly the roles that upstream's chart binds to the account.
    """
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{place}")
    return plane.add_user(name, f"system:serviceaccount:{place}:{account}", groups)
