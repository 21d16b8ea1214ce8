# Two commands on a fresh machine: `make demo` and `make test`. The scripts do the work.
BIN := .venv/bin
# The interpreter that .venv was made with, once it is there: another one would make it anew.
PYTHON ?= $(shell test -e $(BIN)/python && echo $(BIN)/python || echo python3)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint lock clean

help: ## Say what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

setup: ## Install and build what is missing; does nothing where all is there
	@command -v $(PYTHON) >/dev/null || { echo "set-up: $(PYTHON) is not installed. Install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) scripts/setup.py

demo: ## Set up, then the main job, from a form's answers to a service in a cluster
	@command -v $(PYTHON) >/dev/null || { echo "set-up: $(PYTHON) is not installed. Install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) scripts/setup.py --for demo
	@$(BIN)/neuroscale demo

test: lint ## Set up, check style and types, run every test
	@$(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --durations=40 --durations-min=10

lint: setup ## Check style and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/mypy smoke-tests

lock: setup ## Renew requirements/*.txt from pyproject.toml (UPGRADE=--upgrade: newest versions)
	@$(BIN)/python scripts/lock.py $(UPGRADE)

clean: ## Remove what set-up and the tests left in this folder; the tool cache stays
	rm -rf .venv .state tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
