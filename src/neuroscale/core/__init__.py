"""What every stage stands on: errors, files, values, YAML, printable text, and where built tools lie.

Comes in: files, environment variables. Goes out: typed values, or an error that a user can act on.
"""
