"""Reads the policies of a repository.

Input: the folder `policies/` of one moment. Output: policies, their tripwires and the exceptions from them.
"""
