"""The fit check: whether the command that a pod runs is one that vLLM takes, and fits its accelerator."""
