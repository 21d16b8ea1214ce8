"""What a model is: its architecture, its tensors and what its layers keep in the KV cache."""
