"""Writes verdicts, plans and fits for people and programs: Markdown, JSON, JUnit, annotations, terminal, pictures.

Comes in: a value of another stage. Goes out: text or a picture.
"""
