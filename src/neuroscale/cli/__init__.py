"""The command line: one module a command. It reads the input, calls the stage, and prints the result."""
