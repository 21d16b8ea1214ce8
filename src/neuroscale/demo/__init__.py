"""Plays the main job of the platform in a scratch copy of this repository, on a forge and a cluster of its own."""
