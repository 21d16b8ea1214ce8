"""`python -m neuroscale`."""

from neuroscale.cli import main

main()
