"""Runs the node of this machine: it makes processes of the pods that the cluster binds to it, as a kubelet makes
containers.

It runs only vLLM servers, and has neither images nor containers. A pod that asks for something else waits with a
kubelet's reason. A pod is Ready only when its own probes succeed.
"""
