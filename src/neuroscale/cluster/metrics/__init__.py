"""Reads metrics of a cluster's Prometheus: a service and a time come in, and figures for a table or a chart go out."""
