"""The platform on this machine: its processes, their supervisor, and what they start with."""
