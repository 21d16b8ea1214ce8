"""Set-up: the Python environment, the upstream tools and the schemas.

It runs with the system's Python before anything is installed, so it imports the standard library, and of the package
only modules that do the same.
"""
