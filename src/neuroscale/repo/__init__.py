"""Git and the layout of a platform repository.

Comes in: a work tree or a commit. Goes out: the files of one moment, and the paths that have a meaning.
"""
