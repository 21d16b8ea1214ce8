"""Estimates the speed of one replica under a load: time to the first token, time between tokens, tokens per second."""

from neuroscale.planning.speed.load import Coverage, Estimate, Load, ReplicaSpeed, SpeedUnderLoad

__all__ = ["Coverage", "Estimate", "Load", "ReplicaSpeed", "SpeedUnderLoad"]
