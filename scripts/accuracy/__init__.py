"""Measures how accurate planning is.

Input: figures that others measured. Output: the difference between them and planning's figures for the same cases.
"""
