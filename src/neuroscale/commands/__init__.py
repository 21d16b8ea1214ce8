"""The commands of the command line: read the input, call the stage, write or print the result."""
