"""The platform on this machine: its processes, their supervisor, and what they start with.

Comes in: a state folder and the repository. Goes out: a forge, a cluster and Argo CD that answer on the loopback.
"""
