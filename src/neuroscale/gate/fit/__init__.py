"""The fit check: whether vLLM takes the command that a pod runs, and whether the command fits its accelerator."""
