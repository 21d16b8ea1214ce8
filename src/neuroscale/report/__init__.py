"""Writes verdicts, plans and fits for people and programs: Markdown, JSON, JUnit, annotations, terminal, pictures.

Input: a value of another stage. Output: text or a picture.
"""
