"""Chooses an accelerator, replicas and vLLM's arguments. Everything here is pure.

Input: a request, the catalog and the settings. Output: a plan with its reasons, or changes of the request that work.
"""
