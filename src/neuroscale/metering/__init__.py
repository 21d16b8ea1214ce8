"""What services did cost, as OpenCost metered it, divided among those who pay.

Comes in: OpenCost's answers, and what Git knows of the services. Goes out: a statement whose rows add up to the bill.
`opencost` speaks to the network; `allocation`, `cents`, `weighting` and `showback` compute alone.
"""
