"""Runs git, and names the folders and files of a platform repository.

Input: a work tree or a commit. Output: the files of one moment, and the paths that have a meaning.
"""
