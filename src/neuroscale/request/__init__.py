"""Reads and checks the request for a service: the form's answers.

Input: the text of a request.yaml. Output: a checked request, or every mistake in it.
"""
