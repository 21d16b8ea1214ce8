"""The command line, with one module for each command: it reads the input, calls the stage, and prints the result."""
