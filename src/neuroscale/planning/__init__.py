"""Chooses an accelerator, replicas and vLLM's arguments. Everything here is pure.

Comes in: a request, the catalog and the settings. Goes out: a plan with its reasons, or what else could be asked for.
"""
