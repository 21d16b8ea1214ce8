"""What commands read from a cluster and bring to it: status, capacity, endpoints and metrics.

Comes in: a kubeconfig. Goes out: verdicts in words, and answers of a served model.
"""
