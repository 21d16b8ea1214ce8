"""What a cluster's Prometheus knows of a service."""
