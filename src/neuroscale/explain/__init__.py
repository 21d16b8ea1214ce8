"""Explains a server's log: its text, and the state of its pod in words, come in; the cause of its end goes out.

The causes are data: one file each in `causes/`.
"""

from neuroscale.core.masked_secrets import masked
from neuroscale.explain.causes import Cause, Change, load_causes
from neuroscale.explain.diagnosis import Diagnosis, Evidence, diagnose
from neuroscale.explain.log_text import LogLine, read_lines, read_log
from neuroscale.explain.server_facts import ServerFacts, facts_of_log

__all__ = [
    "Cause",
    "Change",
    "Diagnosis",
    "Evidence",
    "LogLine",
    "ServerFacts",
    "diagnose",
    "facts_of_log",
    "load_causes",
    "masked",
    "read_lines",
    "read_log",
]
