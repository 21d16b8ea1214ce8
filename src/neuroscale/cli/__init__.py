"""The command line, with one module for each command: options come in, and a text and an exit status go out."""
