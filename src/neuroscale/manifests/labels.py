"""Names the labels of services and of their pods: who pays, which service a pod belongs to, and facts of its model."""

from __future__ import annotations

from typing import Final

OWNER: Final = "app.kubernetes.io/owner"
COST_CENTER: Final = "cost-center"
SERVICE: Final = "serving.kserve.io/inferenceservice"
"""KServe writes it on the pods of an InferenceService."""
ARCHITECTURE: Final = "model-architecture"
RATIO: Final = "active-param-ratio"
TOTAL: Final = "total-params"
