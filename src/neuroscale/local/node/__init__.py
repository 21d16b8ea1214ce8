"""The node of this machine: pods that the cluster binds to it become processes, as a kubelet would make containers.

It runs vLLM servers alone, and has neither images nor containers. What a pod asks for and cannot get here, it waits for
with a kubelet's word for it: a pod is Ready when its own probes say so, and never otherwise.
"""
