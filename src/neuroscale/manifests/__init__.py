"""Reads Kubernetes objects: their fields, the pods that they make, and the resources that those pods ask for.

Input: YAML. Output: objects with their lines, pods, quantities, accelerators and replica counts.
"""
