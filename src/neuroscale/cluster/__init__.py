"""What commands ask of a cluster, and bring to it."""
