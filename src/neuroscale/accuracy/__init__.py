"""How right planning is.

Comes in: figures that others measured. Goes out: the difference between them and what planning says of the same cases.
"""
