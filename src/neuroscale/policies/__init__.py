"""The policies of a repository.

Comes in: the folder `policies/` of one moment. Goes out: policies, their tripwires and the exceptions from them.
"""
