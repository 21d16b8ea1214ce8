"""Plays the main job of the platform in a new repository of an example organisation, on its own forge and cluster."""
