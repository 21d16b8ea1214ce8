"""The forge: pull requests, comments and statuses on GitHub, GitHub Enterprise, Gitea and Forgejo.

Branches go through git, everything else through REST. One interface (`model.Forge`), one adapter for each kind.
"""
