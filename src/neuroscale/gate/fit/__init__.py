"""Holds the fit check: manifests come in; a finding goes out if vLLM refuses a command, or it does not fit."""
