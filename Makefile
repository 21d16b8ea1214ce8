# Two commands on a fresh machine: `make demo` and `make test`. The scripts do the work.
BIN := .venv/bin
# The interpreter that .venv was made with, once it is there: another one would make it anew.
# One that somebody committed, or of which git cannot say so, is not run.
PYTHON ?= $(shell test -e $(BIN)/python && tracked="$$(git -c safe.directory='*' ls-files .venv 2>&1)" && test -z "$$tracked" && echo $(BIN)/python || echo python3)
SET_UP = command -v $(PYTHON) >/dev/null || { echo "set-up: $(PYTHON) is not installed. Install Python 3.11 or newer."; exit 1; }; $(PYTHON) scripts/setup.py
# Tests start Python some thousand times; without its compiled modules each start would compile them again.
unexport PYTHONDONTWRITEBYTECODE
# More workers than processors: many tests wait for a cluster, a model or an answer.
WORKERS ?= 4
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --durations=25 --durations-min=10 --junit-xml .state/tests.xml -m "not browser"

# Some of these wait for a process that they started: three workers for two processors. Each collects all tests first.
QUICK_WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores > 4 ? 8 : (3 * cores + 1) / 2)))
QUICKLY := NEUROSCALE_TEST_QUICK=1 $(BIN)/pytest --quiet --numprocesses $(QUICK_WORKERS) -m "not tools and not platform and not live and not slow"

# Playwright lies beside .venv, which set-up keeps as its own lock says; its browser is the machine's.
BROWSER := .state/browser

# Types are checked beside the tests; when one of the two fails, the other still says what it found.
BESIDE_TYPES := $(MAKE) --no-print-directory --jobs 2 types

.DEFAULT_GOAL := help
.PHONY: help setup bundle demo milestones check test test-all portal-test lint style types workflows quick-tests every-test lock clean

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

setup: ## Install and build what is missing; does nothing where all is there
	@$(SET_UP)

bundle: ## Pack the tools that the pinned Go built, so that other machines need not (see README.md)
	@$(SET_UP) --for check
	@$(BIN)/python scripts/bundle.py $(ARGUMENTS)

demo: ## Set up, then the main job, from a form's answers to a service in a cluster
	@$(SET_UP) --for demo
	@$(BIN)/neuroscale demo

milestones: setup ## Set up, then run every lesson: each failure with the real tool, and how it is prevented
	@$(BIN)/neuroscale milestones

check: ## Check style and types, and run the tests that need no cluster, model or network: before each commit
	@$(SET_UP) --for check
	@$(MAKE) --no-print-directory style
	@$(BESIDE_TYPES) quick-tests

test: setup ## Set up, check style, types and workflows, run every test
	@$(MAKE) --no-print-directory style workflows
	@$(BESIDE_TYPES) every-test

test-all: export NEUROSCALE_TEST_ALL := 1
test-all: test ## The same with every long comparison in full, as it runs by night

lint: ## Check style, types and workflows
	@$(SET_UP) --for lint
	@$(MAKE) --no-print-directory style types workflows

style:
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-cache --no-logo

workflows:
	@$(BIN)/python scripts/lint-workflows

types:
	@$(BIN)/mypy
	@$(BIN)/mypy smoke-tests

quick-tests:
	@$(QUICKLY)

every-test:
	@$(PYTEST)

portal-test: setup ## Set up, also Backstage (1.2 GB), and go through it and the pages in Chromium (apt-get install chromium)
	@command -v chromium >/dev/null || { echo "portal-test: Chromium is missing. Install it: apt-get install chromium"; exit 1; }
	@$(BIN)/uv pip install --quiet --require-hashes --target $(BROWSER) --requirement requirements/browser.txt
	@$(SET_UP) --for portal
	@PYTHONPATH=$(BROWSER) $(BIN)/pytest --quiet tests/portal -m browser

lock: ## Renew requirements/*.txt from pyproject.toml (UPGRADE=--upgrade: newest versions)
	@$(SET_UP) --for check
	@$(BIN)/python scripts/lock.py $(UPGRADE)

clean: ## Remove what set-up and the tests left in this folder; the tool cache stays
	rm -rf .venv .state tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src scripts milestones tests -name __pycache__ -type d -prune -exec rm -rf {} +
