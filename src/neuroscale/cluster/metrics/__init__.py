"""Reads a service's metrics from a cluster's Prometheus."""
