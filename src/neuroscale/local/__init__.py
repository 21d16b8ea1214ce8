"""Runs the platform on this machine: its processes, their supervisor, and their first content.

Comes in: a state folder and the repository. Goes out: a forge, a cluster and Argo CD that answer on the loopback.
"""
