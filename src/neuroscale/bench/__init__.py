"""Measures how fast an endpoint answers: cells of a load come in, guidellm runs each, a checked result goes out."""
