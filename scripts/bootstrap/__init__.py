"""Set-up: the Python environment, the upstream tools and the schemas.

It runs with the system's Python before anything is installed, so it imports only the standard library, and only those
modules of the package that do the same.
"""
