"""Says in which direction a change of a setting, or of a field of the catalog, loosens a rule or moves a fact.

The tables hold what a notice must tell a reviewer. A change of a field that no row names is listed with its values, and
no more: `LISTED` names those fields, and a test demands that every field stands in one of the two. Rows are read in
their order; the first that matches counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

Path = tuple[str | int, ...]


class Direction(StrEnum):
    """The changes of a field that a reviewer must see.

    `HIGHER`, `LOWER`: of a number; a missing one is the least. `LIMIT`: a higher number; a missing one limits nothing.
    `LATER`: a later day. `LEVEL`: a step down in `LEVELS`, such as from `block` over `warn` to `off`.
    `MORE`, `FEWER`: an item that is new, or gone, at this place or below it, also where another takes its place.
    `GONE`: an item without another in its place. `ANY`: any change at this place or below it. `ADDED`, `REMOVED`: the
    place itself.
    """

    HIGHER = "higher"
    LOWER = "lower"
    LIMIT = "limit"
    LATER = "later"
    LEVEL = "level"
    MORE = "more"
    FEWER = "fewer"
    GONE = "gone"
    ANY = "any"
    ADDED = "added"
    REMOVED = "removed"


DEEP = frozenset((Direction.MORE, Direction.FEWER, Direction.GONE, Direction.ANY))
"""The directions that count below the place that a row names, too."""
LEVELS = (("off", "warn", "block"), ("Ignore", "Fail"), ("standard", "high"), ("replace", "surge"), (False, None, True))


class Notice(StrEnum):
    """The names of the notices, the most dangerous first."""

    REMOVED_POLICY = "removed-policy"
    WEAKER_POLICY = "weaker-policy"
    REMOVED_ENVIRONMENT = "removed-environment"
    WEAKER_RULE = "weaker-rule"
    OWN_FACTS = "own-facts"
    WIDER_ACCESS = "wider-access"
    CHANGED_SOURCE = "changed-source"
    NOT_COMPARED = "not-compared"
    CHANGED_POLICY = "changed-policy"
    NEW_EXCEPTION = "new-exception"
    RAISED_BUDGET = "raised-budget"
    RAISED_QUOTA = "raised-quota"
    LOWERED_PRICE = "lowered-price"
    MOVED_FACT = "moved-fact"
    WEAKER_TEST = "weaker-test"


@dataclass(frozen=True)
class Row:
    """A place in an entry (`*` is any name; a leading `**` is any path; "" is the whole entry), and what to tell."""

    place: str
    direction: Direction
    notice: Notice

    def matches(self, path: Path) -> bool:
        """Whether the row is about this path."""
        parts = self.place.split()
        if parts[:1] == ["**"]:
            # Anywhere, with everything below it if the direction is a deep one.
            wanted = parts[1:]
            starts = range(len(path) - len(wanted) + 1)
            if self.direction not in DEEP:
                starts = starts[-1:]
            return any(_alike(wanted, path[start : start + len(wanted)]) for start in starts)
        deep = self.direction in DEEP
        return (len(parts) <= len(path) if deep else len(parts) == len(path)) and _alike(parts, path[: len(parts)])


def _alike(parts: list[str], path: Path) -> bool:
    return len(parts) == len(path) and all(part in ("*", str(key)) for part, key in zip(parts, path, strict=True))


def _rows(notice: Notice, direction: Direction, *places: str) -> Iterator[Row]:
    for place in places:
        yield Row(place, direction, notice)


# Where weights come from, and what metrics and showback believe.
_SOURCES = (
    *("cluster", "domain", "certificate", "charts"),
    *("models hub", "models store", "models store_kind", "prometheus", "opencost"),
)
_RIGHTS = ("workload_identity", "service_account", "dns", "secret_store")
_FACTS = ("accelerators", "node_selector", "typical_share", "bench_after_merge", "models throughput_mib_s * value")

SETTINGS_ROWS: tuple[Row, ...] = (
    *_rows(Notice.WEAKER_RULE, Direction.HIGHER, "exceptions longest_days", "reconciliation *"),
    *_rows(Notice.WEAKER_RULE, Direction.LEVEL, "costs large_change level"),
    *_rows(Notice.WEAKER_RULE, Direction.LIMIT, "costs large_change *"),
    *_rows(Notice.REMOVED_ENVIRONMENT, Direction.FEWER, "production environments"),
    *_rows(Notice.WEAKER_RULE, Direction.LEVEL, "costs *", "production *"),
    *_rows(Notice.CHANGED_SOURCE, Direction.ANY, "repository", "domain", "certificates", "tool_bundle"),
    *_rows(Notice.WIDER_ACCESS, Direction.ANY, "owners *"),
    # Without a list, a policy's file alone says what is allowed.
    *_rows(Notice.WEAKER_RULE, Direction.MORE, "registries", "storage"),
    *_rows(Notice.REMOVED_ENVIRONMENT, Direction.REMOVED, "environments *"),
    *_rows(Notice.WIDER_ACCESS, Direction.ADDED, "environments *"),
    # A cheaper list that comes first lowers every price, too.
    *_rows(Notice.WEAKER_RULE, Direction.ANY, "environments * price_lists"),
    *_rows(Notice.WEAKER_RULE, Direction.HIGHER, "environments * max_replicas", "environments * max_cpu_per_pod"),
    # A slower service keeps a lower speed.
    *_rows(Notice.WEAKER_RULE, Direction.LOWER, "environments * tokens_per_second_per_user"),
    # A longer wait hides a change that hangs.
    *_rows(Notice.WEAKER_RULE, Direction.HIGHER, "environments * node_wait_minutes"),
    *_rows(Notice.WEAKER_RULE, Direction.LEVEL, "environments * default_availability", "environments * rollout *"),
    *_rows(Notice.WEAKER_RULE, Direction.ANY, "environments * certainty"),
    *_rows(Notice.CHANGED_SOURCE, Direction.ANY, *(f"environments * {name}" for name in _SOURCES)),
    *_rows(Notice.WIDER_ACCESS, Direction.ANY, "environments * token_secret", "environments * alerting"),
    # The cloud's rights of pods, and the addresses beside the Internet that they may call.
    *_rows(Notice.WIDER_ACCESS, Direction.ANY, *(f"environments * {name}" for name in _RIGHTS)),
    # Which of two alike accelerators a pod asks for, how many replicas there are, how long a startup probe waits, and
    # whether a bench takes an accelerator for some minutes after each merge.
    *_rows(Notice.MOVED_FACT, Direction.ANY, *(f"environments * {name}" for name in _FACTS)),
    *_rows(
        *(Notice.WIDER_ACCESS, Direction.MORE),
        *("environments * ingress_namespaces", "environments * monitoring_namespaces"),
    ),
)
"""Of `catalog/settings.py`. Levels of production and of cost are all `LEVEL`, also those of later rules."""

_SOURCE = ("weights kind", "weights path", "weights revision", "weights license")
_SIZES = ("download", "resident", "host_memory")
_STORED = ("dtype", "quantization", "quantization_group_size")
_STARTS = ("start", "compile_layer", "capture_layer")
_SERVED = ("multimodal", "minimum_vllm_version", "tool_call_parser", "reasoning_parser", "chat_template")
CATALOG_ROWS: Mapping[str, tuple[Row, ...]] = {
    "models": (
        *_rows(Notice.CHANGED_SOURCE, Direction.ANY, *_SOURCE),
        # A smaller size fits where the model does not, and a larger one takes dearer accelerators.
        *_rows(Notice.MOVED_FACT, Direction.ANY, *(f"checkpoint {name}_gib value" for name in _SIZES)),
        *_rows(Notice.MOVED_FACT, Direction.ANY, "config", "variant_of", *(f"checkpoint {name}" for name in _STORED)),
        *_rows(Notice.MOVED_FACT, Direction.ANY, "parameters published_total", "parameters published_active"),
        *_rows(Notice.MOVED_FACT, Direction.ANY, "weights gated", *(f"serving {name}" for name in _SERVED)),
        *_rows(Notice.MOVED_FACT, Direction.MORE, "serving families"),
        # A measurement decides how many users a plan promises a first token in time.
        *_rows(Notice.MOVED_FACT, Direction.ANY, "measurements"),
    ),
    "accelerators": (
        *_rows(Notice.MOVED_FACT, Direction.HIGHER, "memory_gib value", "bandwidth_gb_s value", "bf16_tflops value"),
        *_rows(Notice.MOVED_FACT, Direction.HIGHER, "pcie_gb_s value", "interconnect_gb_s value"),
        *_rows(Notice.MOVED_FACT, Direction.HIGHER, "fp8_tflops value", "int8_tflops value", "fp4_tflops value"),
        *_rows(Notice.MOVED_FACT, Direction.LOWER, "used_gib value"),
        *_rows(Notice.MOVED_FACT, Direction.MORE, "quantizations", "kv_cache_dtypes", "dtypes"),
        # By these the gate knows which accelerator a pod asks for, and so what it costs and whether it fits.
        *_rows(
            Notice.MOVED_FACT, Direction.ANY, "resource", "node_selector", "asked_for", "clusters", "counts", "family"
        ),
        *_rows(Notice.MOVED_FACT, Direction.ADDED, ""),
    ),
    "prices": (
        *_rows(Notice.LOWERED_PRICE, Direction.LOWER, "vcpu_hour", "memory_gib_hour"),
        *_rows(Notice.LOWERED_PRICE, Direction.LOWER, "prices * usd", "prices * vcpu_hour", "prices * memory_gib_hour"),
        *_rows(Notice.LOWERED_PRICE, Direction.MORE, "prices * includes"),
        *_rows(Notice.LOWERED_PRICE, Direction.REMOVED, "", "prices *"),
        # It takes the place of a dearer price for other counts, or in a later list.
        *_rows(Notice.LOWERED_PRICE, Direction.ADDED, "prices *"),
        *_rows(Notice.LOWERED_PRICE, Direction.ANY, "prices * instance", "prices * unit"),
        # A later date makes an old price a fresh one.
        *_rows(Notice.MOVED_FACT, Direction.LATER, "date", "prices * date"),
    ),
    "runtimes": (
        *_rows(Notice.CHANGED_SOURCE, Direction.ADDED, ""),
        *_rows(Notice.CHANGED_SOURCE, Direction.ANY, "image", "digest", "version", "args", "environment", "only_for"),
        *_rows(Notice.CHANGED_SOURCE, Direction.ANY, "family", "uid", "gid"),
        *_rows(Notice.WEAKER_RULE, Direction.LEVEL, "read_only_root value"),
        *_rows(Notice.MOVED_FACT, Direction.HIGHER, "memory_utilization"),
        # Too short, and a probe ends a server that starts; too long, and it hides one that hangs.
        *_rows(Notice.MOVED_FACT, Direction.ANY, *(f"{name}_seconds value" for name in _STARTS)),
    ),
    "teams": (
        # Alerts tell an address of a service's faults; without one they reach others.
        *_rows(Notice.WIDER_ACCESS, Direction.ANY, "alerts"),
        *_rows(Notice.WIDER_ACCESS, Direction.ANY, "group", "namespace", "owner", "cost_center"),
        *_rows(Notice.RAISED_QUOTA, Direction.HIGHER, "quota *", "quota accelerators *"),
    ),
    "budgets": (
        *_rows(Notice.RAISED_BUDGET, Direction.HIGHER, "monthly_usd"),
        *_rows(Notice.RAISED_BUDGET, Direction.REMOVED, ""),
        *_rows(Notice.RAISED_BUDGET, Direction.ANY, "cost_center", "owner"),
    ),
    "exceptions": (
        *_rows(Notice.NEW_EXCEPTION, Direction.ADDED, ""),
        *_rows(Notice.NEW_EXCEPTION, Direction.LATER, "expires"),
        *_rows(Notice.NEW_EXCEPTION, Direction.HIGHER, "monthly_usd"),
        *_rows(Notice.NEW_EXCEPTION, Direction.ANY, "policy", "rule", "subject", "kind", "namespace", "name"),
        *_rows(Notice.NEW_EXCEPTION, Direction.ANY, "approved_by"),
    ),
}
"""Of the entries below `platform/catalog/`, by their folder; `exceptions` are those from policies and from budgets."""

_FOR_PEOPLE = ("title", "** source")
LISTED: Mapping[str, tuple[str, ...]] = {
    # Commands that people start read the number of open pull requests, and the gate judges each of them.
    "settings": ("schema_version", "organization", "registry", "upgrades open_at_once", "** source"),
    "models": (
        *_FOR_PEOPLE,
        "family",
        "good_at text",
        "weights read_on",
        "config_source",
        "** active_excludes_embedding",
    ),
    "accelerators": (*_FOR_PEOPLE, "support_source"),
    "prices": ("** source", "region", "tier"),
    "runtimes": _FOR_PEOPLE,
    "teams": ("contact",),
    "budgets": (),
    "exceptions": ("reason",),
}
"""The fields without a row, by the folder of their entries: they are for people, and plans, costs, rendered pods and
what runs after a merge are the same whatever they say. An entry's name is what its entry is found by."""
