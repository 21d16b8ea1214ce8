"""vLLM as its command line tells it: the arguments that a version accepts, and the values that they resolve to."""
