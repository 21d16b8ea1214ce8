"""Talking to a served model: reaching it, its key, asking it, and its metrics. Nothing else talks to one."""
