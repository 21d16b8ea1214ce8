"""Runs the platform on this machine: its processes, their supervisor, and their first content.

Input: a state folder and the repository. Output: a forge, a cluster and Argo CD that answer on the loopback.
"""
