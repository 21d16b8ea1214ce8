"""Makes files. Planning decides; rendering writes down.

Input: a request with its plan, or the settings and the catalog. Output: the exact files of a service or a cluster.
"""
