"""Talks to a served model, and nothing else does: a service and a question come in; an answer or metrics go out."""
