"""Manifests that several lessons share."""

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
"""A policy of the kind that a platform begins with: a pod has a label `owner`."""

POD = """
    apiVersion: v1
    kind: Pod
    metadata: {name: chat, namespace: demo, labels: {owner: team-alpha}}
    spec: {containers: [{name: main, image: registry.example.org/chat:1}]}
    """
"""A pod that OWNER_POLICY lets pass."""

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
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    """
"""A pod that the gate passes."""
