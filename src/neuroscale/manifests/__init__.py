"""Kubernetes objects as text and as meaning: what they hold, which pods they make, and what those pods ask for.

Input: YAML. Output: objects with their lines, pods, quantities, accelerators and replica counts.
"""
