"""The pages and the API for people who ask for services, on one server.

In: a platform repository, its forge, and what a cluster answers. Out: plans, and pull requests as the person who asked;
nothing else is written.
"""
