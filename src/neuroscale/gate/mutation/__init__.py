"""Mutants of policies' test objects and of the policies, and who catches them."""
