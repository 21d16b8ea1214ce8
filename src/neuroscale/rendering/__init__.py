"""Makes files. Planning decides; rendering writes down.

Comes in: a request with its plan, or the settings and the catalog. Goes out: the exact files of a service or a cluster.
"""
