"""Renders Prometheus' configuration: the pods to look at, the metrics to record, and the alerts.

People write the rules in `platform/monitoring/`, in Prometheus' own format. From the rules and the teams this module
renders a PodMonitor and a PrometheusRule for Prometheus' Operator, one folder an environment; for a Prometheus without
the Operator it renders the same choice of pods as a file of scrape configurations. OpenCost reads there, too, which
environment its cluster is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import indent
from typing import Any, Final

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Environment, Settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.manifests.objects import SERVICE
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.repo.snapshot import Snapshot, read_text

FOLDER: Final = "platform/monitoring"
SCRAPE: Final = f"{FOLDER}/scrape.yaml"
RULES: Final = (f"{FOLDER}/recording.yaml", f"{FOLDER}/alerts.yaml")
RUNBOOKS: Final = "docs/runbooks/"
"""The folder of the pages that say what to do about an alert, one for each, by its name."""
JOB: Final = "neuroscale"
"""The label `job` of every sample of a service."""
"""The label that KServe gives the pods of a service; its value is the service's name."""
CONTAINER: Final = "kserve-container"

_INTERVAL = "15s"
_POD = "__meta_kubernetes_pod"
_SERVICE = f"{_POD}_label_serving_kserve_io_inferenceservice"
# Annotations of the runtimes, which KServe copies to the pods.
_PORT = f"{_POD}_annotation_prometheus_kserve_io_port"
_PATH = f"{_POD}_annotation_prometheus_kserve_io_path"

RELABELINGS: Final[tuple[dict[str, Any], ...]] = (
    {"source_labels": [_SERVICE], "regex": ".+", "action": "keep"},
    {"source_labels": [_PORT], "regex": "[0-9]+", "action": "keep"},
    # Keep the server only, once: Prometheus lists a pod for each port of each of its containers.
    {"source_labels": [f"{_POD}_container_name"], "regex": CONTAINER, "action": "keep"},
    {"source_labels": [f"{_POD}_phase"], "regex": "Succeeded|Failed", "action": "drop"},
    {
        "source_labels": ["__address__", _PORT],
        "regex": "(.+?)(?::[0-9]+)?;([0-9]+)",
        "target_label": "__address__",
        "replacement": "$1:$2",
    },
    {"source_labels": [_PATH], "regex": "(/.*)", "target_label": "__metrics_path__"},
    {"target_label": "job", "replacement": JOB},
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": [_SERVICE], "target_label": "service"},
    {"source_labels": [f"{_POD}_name"], "target_label": "pod"},
    {"source_labels": [f"{_POD}_node_name"], "target_label": "node"},
)
"""Choose the pods that Prometheus looks at, their addresses and their labels; in Prometheus' own format."""

_RULE = {"record": {"record", "expr", "labels"}, "alert": {"alert", "expr", "for", "labels", "annotations"}}
_RECORD = re.compile(r"[a-z_]+:[a-z0-9_]+:[a-z0-9_]+")
_COMMAND = re.compile(r"(`neuroscale (?:explain|metrics|status) )(?=\{\{)")
_ALERT = re.compile(r"NeuroScale[A-Za-z]+")


def render(snapshot: Snapshot, catalog: Catalog, settings: Settings) -> dict[str, str]:
    """The files by their path in the repository. Raises InputError if the rules cannot be used."""
    groups = [group for path in RULES for group in read_rules(snapshot, path)]
    chosen = {
        "job": JOB,
        "namespaces": sorted(team.namespace for team in catalog.teams.values()),
        "interval": _INTERVAL,
    }
    files = {SCRAPE: filled("scrape.yaml", relabelings=_below(RELABELINGS, 6), **chosen)}
    for name, environment in settings.environments.items():
        if environment.cluster != "local":
            files[f"{FOLDER}/{name}/cluster-name.yaml"] = filled("cluster-name.yaml", environment=name)
        if not by_operator(environment):
            continue
        namespace = environment.prometheus.namespace
        files[f"{FOLDER}/{name}/podmonitor.yaml"] = filled(
            "podmonitor.yaml",
            namespace=namespace,
            service_label=SERVICE,
            relabelings=_below([_for_operator(one) for one in RELABELINGS], 8),
            **chosen,
        )
        files[f"{FOLDER}/{name}/prometheusrule.yaml"] = filled(
            "prometheusrule.yaml",
            job=JOB,
            namespace=namespace,
            sources=Verbatim(" and ".join(RULES)),
            groups=_below(_of_environment(groups, name, settings), 4),
        )
    return files


def _of_environment(groups: list[dict[str, Any]], environment: str, settings: Settings) -> list[dict[str, Any]]:
    """The groups, with the environment in the commands that annotations name, since a service's name alone may be that
    of several environments; and with the address of each page of the repository that `runbook_url` names."""

    def told(key: str, text: str) -> str:
        if key == "runbook_url" and text.startswith(RUNBOOKS):
            return settings.page(text)
        return _COMMAND.sub(lambda found: f"{found[1]}{environment}/", text)

    return [
        {
            **group,
            "rules": [
                {**rule, "annotations": {key: told(key, text) for key, text in rule["annotations"].items()}}
                if "annotations" in rule
                else rule
                for rule in group["rules"]
            ],
        }
        for group in groups
    ]


def by_operator(environment: Environment) -> bool:
    """Whether objects of the Operator configure the environment's Prometheus."""
    return environment.cluster != "local" and environment.prometheus.operator


def read_rules(snapshot: Snapshot, path: str) -> list[dict[str, Any]]:
    """The groups of a file of rules. Raises InputError, but leaves it to promtool to check the PromQL."""
    document = read_mapping(read_text(snapshot, path), path)
    groups = document.value.get("groups")
    if set(document.value) != {"groups"} or not isinstance(groups, list) or not groups:
        raise InputError.at(path, "groups", "is not a list of groups", "Write Prometheus' own format.")
    problems: list[Problem] = []
    names: set[str] = set()
    for at, group in enumerate(groups):
        rules = group.get("rules") if isinstance(group, Mapping) else None
        if not isinstance(rules, list) or not rules or not isinstance(group.get("name"), str):
            problems.append(Problem(path, f"groups[{at}]", "holds no rules", "Give it a name and a list of rules."))
            continue
        for number, rule in enumerate(rules):
            if told := _wrong(rule, names):
                line = document.line("groups", at, "rules", number)
                problems.append(Problem(path, f"groups[{at}].rules[{number}]", *told, line))
    if problems:
        raise InputError(problems)
    return groups


def _wrong(rule: Any, names: set[str]) -> tuple[str, str] | None:
    """What is wrong with a rule, and what to write; adds its name to `names`."""
    kinds = [kind for kind in _RULE if isinstance(rule, Mapping) and isinstance(rule.get(kind), str)]
    if len(kinds) != 1 or not isinstance(rule.get("expr"), str):
        return "is not a rule", "Write `record` or `alert`, and `expr`."
    (kind,) = kinds
    name = rule[kind]
    if unknown := sorted(set(rule) - _RULE[kind]):
        return f"has the field {unknown[0]!r}", f"Keep {', '.join(sorted(_RULE[kind]))}."
    if not (_RECORD if kind == "record" else _ALERT).fullmatch(name):
        return f"{name!r} is not a name in this repository's form", "Write service:METRIC:OPERATION, or NeuroScaleWhat."
    if name in names:
        return f"{name!r} stands twice", "Give each rule a name of its own."
    names.add(name)
    if kind == "alert" and not {"summary", "next"} <= set(rule.get("annotations") or {}):
        return f"{name} does not say what to do", "Add the annotations `summary` and `next`."
    return None


def _for_operator(relabeling: Mapping[str, Any]) -> dict[str, Any]:
    """A relabelling as the Operator writes it."""
    return {re.sub("_(.)", lambda found: found[1].upper(), key): value for key, value in relabeling.items()}


def _below(value: Any, spaces: int) -> Verbatim:
    return Verbatim(indent(dump(list(value)).rstrip("\n"), " " * spaces))
