"""OpenCost's answers as its 1.108 gives them, and a server that answers so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import httpx

from neuroscale.metering.opencost import OpenCost

URL = "http://127.0.0.1:9003"


def costs(total: float, gpu_hours: float = 0.0, **fields: Any) -> dict[str, Any]:
    """One row's figures; a service's cost is that of its GPUs."""
    return {
        "totalCost": total,
        "gpuCost": total,
        "cpuCost": 0,
        "ramCost": 0,
        "gpuHours": gpu_hours,
        "cpuCoreHours": 0,
        "ramByteHours": 0,
        "minutes": 60,
        **fields,
    }


def key(
    service: str,
    cost_center: str,
    *,
    ratio: str = "1",
    owner: str = "owner",
    namespace: str = "",
    cluster: str = "prod",
) -> str:
    """The name of a service's row."""
    return "/".join((cluster, namespace or cost_center, cost_center, owner, service, ratio))


SYSTEM = "prod/kube-system/__unallocated__/__unallocated__/__unallocated__/__unallocated__"
UNMOUNTED = "prod/__unmounted__/__unallocated__/__unallocated__/__unallocated__/__unallocated__"


def envelope(rows: dict[str, Any] | None, **fields: Any) -> str:
    """The whole answer about one step."""
    return json.dumps({"code": 200, "status": "success", "data": [rows], **fields})


def model(
    name: str, namespace: str, cost: float, prompt: int, generation: int, into: float = 0, out: float = 0
) -> dict[str, Any]:
    """One model of an answer of /inferenceCost, as OpenCost's pkg/inferencecost/apitypes.go describes it."""
    return {
        "properties": {"modelName": name, "namespace": namespace},
        "costBasis": "allocation",
        "totalCost": cost,
        "promptTokens": prompt,
        "generationTokens": generation,
        "totalTokens": prompt + generation,
        "costPerMillionTokens": cost / (prompt + generation) * 1e6,
        "inputCost": into,
        "outputCost": out,
        "inputCostPerMillionTokens": into / prompt * 1e6,
        "outputCostPerMillionTokens": out / generation * 1e6,
        "allocationMethod": "compute_time",
    }


def inference_answer(*models: dict[str, Any], **data: Any) -> str:
    """The whole answer of /inferenceCost/total about one step."""
    rows = {f"{one['properties']['modelName']}/{one['properties']['namespace']}": one for one in models}
    return json.dumps({"code": 200, "status": "success", "data": {"inferenceCosts": rows, **data}})


def answering(answer: Callable[[str], httpx.Response]) -> OpenCost:
    """An OpenCost that answers a question's `window` so."""

    def respond(request: httpx.Request) -> httpx.Response:
        return answer(parse_qs(request.url.query.decode())["window"][0])

    http = httpx.Client(transport=httpx.MockTransport(respond))
    return OpenCost(URL, http, first_pause=0)


def saying(*bodies: str, status: int = 200) -> OpenCost:
    """An OpenCost that gives these answers one after the other, and the last one from then on."""
    left = list(bodies)

    def answer(window: str) -> httpx.Response:
        return httpx.Response(status, text=left.pop(0) if len(left) > 1 else left[0])

    return answering(answer)
