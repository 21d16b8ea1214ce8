"""Holds manifests and requests that several lessons share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

OWNER_POLICY = """
    apiVersion: policies.kyverno.io/v1
    kind: ValidatingPolicy
    metadata: {name: owner}
    spec:
      validationActions: [Deny]
      matchConstraints:
        resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
      validations:
        - expression: "'owner' in object.metadata.?labels.orValue({})"
          message: the pod has no owner
    """
"""A policy that a platform might begin with: a pod must have a label `owner`."""

POD = """
    apiVersion: v1
    kind: Pod
    metadata: {name: chat, namespace: demo, labels: {owner: team-alpha}}
    spec: {containers: [{name: main, image: registry.example.org/chat:1}]}
    """
"""A pod that OWNER_POLICY accepts."""

POD_WITHOUT_OWNER = """
    apiVersion: v1
    kind: Pod
    metadata: {name: stray, namespace: demo}
    spec: {containers: [{name: main, image: registry.example.org/chat:1}]}
    """
"""A pod that OWNER_POLICY refuses."""

GOOD_POD = """
    apiVersion: v1
    kind: Pod
    metadata:
      name: chat
      namespace: demo
      labels: {app.kubernetes.io/owner: team-alpha, cost-center: cc-ml-inference}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 1001, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: main
          image: docker.io/vllm/vllm-openai-cpu:v0.32.0
          command: [sleep, infinity]
          resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
          volumeMounts: [{name: temporary, mountPath: /tmp}]
      volumes: [{name: temporary, emptyDir: {}}]
    """
"""A pod that the gate passes."""


def request_on_one_gpu(service: str, model: str) -> str:
    """A request for a model on one H100, which holds both a 26B and a 31B in 16 bits."""
    expires = datetime.now(UTC).date() + timedelta(days=30)
    override = '{{field: {field}, value: {value}, reason: "The team has this card.", expires: "{expires}"}}'
    overrides = [("accelerator", "nvidia-h100-80gb"), ("accelerator_count", "1")]
    answers = {
        "service": service,
        "model": model,
        "team": "team-alpha",
        "environment": "dev",
        "concurrent_users": "4",
        "longest_prompt_tokens": "4096",
        "longest_answer_tokens": "1024",
        "p95_ttft_seconds": "5",
        "availability": "standard",
    }
    lines = [f"{field}: {value}" for field, value in answers.items()]
    lines += [
        "overrides:",
        *(f"  - {override.format(field=field, value=value, expires=expires)}" for field, value in overrides),
    ]
    return "\n".join(lines) + "\n"
