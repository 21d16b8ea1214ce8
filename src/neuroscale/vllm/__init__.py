"""What a command line of `vllm serve` means.

Comes in: the words that a container runs. Goes out: the values of its arguments, and what vLLM would refuse.
"""
