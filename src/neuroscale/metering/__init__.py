"""Divides the metered costs of services, from OpenCost, among cost centres or owners.

Input: OpenCost's answers, and the services' plans in Git. Output: a statement whose rows add up to the bill.
`opencost` uses the network; `showback` divides idle and shared costs, `allocation` weights by active parameters.
"""
