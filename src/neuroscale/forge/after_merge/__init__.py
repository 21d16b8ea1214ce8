"""Acts on a merge's smoke test: comments on the pull request, and opens a revert if the service fails."""
