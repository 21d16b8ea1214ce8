"""Says which changes of policies and of a cluster's files a reviewer must be told, in the form of `directions`."""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.catalog.directions import Direction, Notice, Row

POLICY_ROWS: tuple[Row, ...] = (
    Row("", Direction.REMOVED, Notice.REMOVED_POLICY),
    Row("kind", Direction.ANY, Notice.WEAKER_POLICY),
    Row("spec validationActions", Direction.FEWER, Notice.WEAKER_POLICY),
    Row("spec failurePolicy", Direction.LEVEL, Notice.WEAKER_POLICY),
    Row("spec matchConstraints matched", Direction.FEWER, Notice.WEAKER_POLICY),
    # Selectors, conditions and exclusions narrow what a policy judges.
    *(
        Row(f"spec {place}", Direction.ANY, Notice.WEAKER_POLICY)
        for place in (
            *("matchConditions", "evaluation", "autogen", "paramKind", "matchConstraints namespaceSelector"),
            *("matchConstraints objectSelector", "matchConstraints excludeResourceRules"),
            *("matchConstraints resourceRules", "matchConstraints matchPolicy"),
        )
    ),
    Row("spec validations", Direction.GONE, Notice.WEAKER_POLICY),
    # Whether another expression refuses less cannot be told from its text.
    Row("spec validations", Direction.ANY, Notice.CHANGED_POLICY),
    Row("spec variables", Direction.ANY, Notice.CHANGED_POLICY),
)
"""Of a policy, whose rules stand by what they match, and whose validations as text."""

_ACCESS = Notice.WIDER_ACCESS
_BY_KIND: Mapping[str, tuple[Row, ...]] = {
    "ResourceQuota": (
        Row("", Direction.REMOVED, Notice.RAISED_QUOTA),
        Row("spec hard *", Direction.LIMIT, Notice.RAISED_QUOTA),
        Row("spec scopes", Direction.ANY, Notice.RAISED_QUOTA),
        Row("spec scopeSelector", Direction.ANY, Notice.RAISED_QUOTA),
    ),
    "NetworkPolicy": (Row("", Direction.REMOVED, _ACCESS), Row("spec", Direction.ANY, _ACCESS)),
    "Namespace": (Row("metadata labels", Direction.ANY, _ACCESS),),
    "LimitRange": (Row("", Direction.REMOVED, Notice.RAISED_QUOTA), Row("spec", Direction.ANY, Notice.RAISED_QUOTA)),
    "ClusterServingRuntime": (Row("spec containers", Direction.ANY, Notice.CHANGED_SOURCE),),
    # What Argo CD may apply, and how requests come in.
    **dict.fromkeys(
        ("AppProject", "Gateway", "GatewayClass", "HTTPRoute", "BackendTrafficPolicy", "ClusterIssuer", "Certificate"),
        (Row("spec", Direction.ANY, _ACCESS),),
    ),
    **dict.fromkeys(
        ("Application", "ApplicationSet"),
        # What Argo CD applies, and what of it. Values of charts are only listed, unless a row below is about them.
        (
            *(Row("", direction, Notice.CHANGED_SOURCE) for direction in (Direction.ADDED, Direction.REMOVED)),
            *(
                Row(f"{spec} {place}", Direction.ANY, Notice.CHANGED_SOURCE)
                for spec in ("spec", "spec template spec")
                for place in (
                    *("source path", "source directory", "sources", "destination", "project"),
                    *("syncPolicy", "ignoreDifferences", "generators", "templatePatch"),
                )
            ),
        ),
    ),
    **dict.fromkeys(
        ("RoleBinding", "ClusterRoleBinding"),
        (
            Row("subjects", Direction.MORE, _ACCESS),
            Row("roleRef", Direction.ANY, _ACCESS),
        ),
    ),
    **dict.fromkeys(
        ("Role", "ClusterRole"),
        (
            Row("rules", Direction.ANY, _ACCESS),
            Row("aggregationRule", Direction.ANY, _ACCESS),
        ),
    ),
    **dict.fromkeys(
        ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        (Row("", Direction.REMOVED, Notice.REMOVED_POLICY), Row("spec", Direction.ANY, Notice.WEAKER_POLICY)),
    ),
}
_SOURCES_OF_CHARTS = (
    # Argo CD's configuration: who may log in, what it compares, and when it calls an object healthy.
    Row("configs", Direction.ANY, _ACCESS),
    # The program that refuses: with no replica, or with other arguments, it may refuse nothing.
    Row("** admissionController", Direction.ANY, Notice.CHANGED_POLICY),
)
_EVERY_OBJECT = (
    *(
        Row(f"** {name}", Direction.ANY, Notice.CHANGED_SOURCE)
        for name in ("repoURL", "repository", "targetRevision", "chart", "version", "image", "server")
    ),
    # Argo CD's own rights, and the namespaces and objects that Kyverno leaves alone.
    Row("** rbac", Direction.ANY, _ACCESS),
    *(Row(f"** {name}", Direction.ANY, _ACCESS) for name in ("oidc.config", "dex.config", "admin.enabled")),
    *(
        Row(f"** {name}", Direction.MORE, Notice.WEAKER_POLICY)
        for name in (
            *("webhooks namespaceSelector", "webhooks objectSelector", "resourceFilters", "resourceFiltersInclude"),
            *("excludeGroups", "excludeUsernames", "excludeRoles", "excludeClusterRoles"),
        )
    ),
    Row("** resourceFiltersExclude", Direction.FEWER, Notice.WEAKER_POLICY),
    Row("** features", Direction.ANY, Notice.CHANGED_POLICY),
    Row("** failurePolicy", Direction.LEVEL, Notice.WEAKER_POLICY),
)


def rows_of_object(kind: str) -> tuple[Row, ...]:
    """The rows of an object of a cluster by its kind, and of the sources that it is rendered from ("")."""
    if not kind:
        return (*_SOURCES_OF_CHARTS, *_EVERY_OBJECT)
    # Argo CD applies whatever is new in these folders, with all rights. Two kinds only limit what others may.
    new = () if kind in ("ResourceQuota", "LimitRange") else (Row("", Direction.ADDED, _ACCESS),)
    return (*_BY_KIND.get(kind, ()), *_EVERY_OBJECT, *new)
