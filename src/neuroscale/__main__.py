"""Runs the command line for `python -m neuroscale`."""

from neuroscale.cli.app import main

main()
