"""Describes a model: its architecture, its tensors and what its layers keep in the KV cache.

Input: a config.json and the headers of safetensors files. Output: facts about the model, and how sure they are.
"""
