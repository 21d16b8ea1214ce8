"""What a change costs, worked out of the Kubernetes objects themselves: decimals only, nothing read or written."""
