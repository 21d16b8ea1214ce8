"""Says what each part of set-up takes: seconds on two quiet cores, and bytes of disk while and after it is made."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.core.units import GIB


@dataclass(frozen=True)
class Costs:
    """What a tool's build takes: seconds on two cores without other load; GiB that it adds to Go's modules and compiled
    packages, after the builds before it; GiB of the tool's own folder."""

    seconds: float
    built: float
    stays: float


# Measured in this order, from empty caches on two cores.
TOOLS = {
    "kubeconform": Costs(20, 0.2, 0.01),
    "gitleaks": Costs(25, 0.2, 0.02),
    "kyverno": Costs(220, 4.2, 0.25),
    "etcd": Costs(20, 0.3, 0.02),
    "kube-apiserver": Costs(180, 2.5, 0.11),
    "gitea-runner": Costs(20, 0.3, 0.02),
    "gitea": Costs(240, 2.3, 0.12),
    "kube-controller-manager": Costs(60, 0.7, 0.1),
    "kube-scheduler": Costs(10, 0.1, 0.08),
    "kwok": Costs(50, 0.7, 0.06),
    "kserve-controller": Costs(110, 2.2, 0.1),
    "kyverno-controller": Costs(35, 0.3, 0.14),
    "argocd": Costs(150, 2.5, 0.16),
    "helm": Costs(50, 0.6, 0.06),
    "caddy": Costs(55, 1.1, 0.05),
    "prometheus": Costs(90, 1.5, 0.07),
    "actionlint": Costs(5, 0.1, 0.01),
    "alertmanager": Costs(85, 0.6, 0.04),
    "amtool": Costs(10, 0.1, 0.02),
    "promtool": Costs(20, 0.1, 0.05),
    "kube-state-metrics": Costs(60, 1.0, 0.05),
    "opencost": Costs(115, 2.7, 0.07),
}
FETCHED = 0.05  # of the seconds of a build: a tool out of a bundle, by a line of 5 MB/s
SCHEMAS = Costs(20, 1.2, 0.01)
# Bytes that stay.
GO = 0.25 * GIB
SERVING = 6.5 * GIB
BENCH = 0.45 * GIB
BACKSTAGE = 1.3 * GIB
PACKAGES = 2 * GIB  # `.venv`, and what uv keeps of the packages
