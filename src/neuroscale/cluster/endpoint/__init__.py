"""Talks to a served model: reaches it, reads its key, asks it, and reads its metrics. No other code talks to one."""
