"""What a change costs, in decimals. Nothing is read or written here.

Comes in: the workloads of both sides of a change, and price lists. Goes out: US dollars per month, before and after.
"""
