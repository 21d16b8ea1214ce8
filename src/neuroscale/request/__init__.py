"""What somebody asks for: the form's answers.

Comes in: the text of a request.yaml. Goes out: a checked request, or every mistake in it.
"""
