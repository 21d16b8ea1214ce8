"""Speaking to a Kubernetes API server, and running one: shared by the gate, the local platform and the commands."""
