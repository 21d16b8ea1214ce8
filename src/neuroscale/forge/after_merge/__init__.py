"""What follows from a merge's smoke test: a comment on the pull request, and a revert where the service fails."""
