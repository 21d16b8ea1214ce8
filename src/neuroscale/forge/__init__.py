"""Manages pull requests, comments and statuses on GitHub, GitHub Enterprise, Gitea and Forgejo.

Input: files of a service, a verdict, or results of smoke tests. Output: branches, pull requests and comments.
Branches go through git, everything else through REST. One interface (`interface.Forge`), one adapter for each kind.
"""
