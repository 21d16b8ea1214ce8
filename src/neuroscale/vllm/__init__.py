"""Reads command lines of `vllm serve`, and judges them.

Input: the words that a container runs. Output: the values of its arguments, and the faults that vLLM would refuse.
"""
