"""Holds what every stage uses: errors, files, values, YAML, printable text, and the places of built tools.

Input: files, environment variables. Output: typed values, or an error that a user can act on.
"""
