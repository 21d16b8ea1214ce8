"""Computes the cost of a change, in decimals. Nothing is read or written here.

Input: the workloads of both sides of a change, and price lists. Output: US dollars per month, before and after.
"""
