"""What a model is: its architecture, its tensors and what its layers keep in the KV cache.

Comes in: a config.json and the headers of safetensors files. Goes out: facts about the model, with how sure they are.
"""
