# The single entry: every target makes what it needs first, so that on a fresh machine
# `make up` and `make test` are the only two commands.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help up down test test-fast test-kube test-e2e test-long check format bench lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(VENV)/ready: requirements/dev.txt pyproject.toml local/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "slurm-operator needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making the virtual environment $(VENV) (about a minute, once)"
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e local
	@touch $@

up: $(VENV)/ready ## bring a real cluster up and run a first job on it
	@$(BIN)/slurm-operator up

down: $(VENV)/ready ## remove every trace of it
	@$(BIN)/slurm-operator down

check: $(VENV)/ready ## format, lint, types, layers and the table of scenarios
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests bench
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.scenarios

# How many objects the admission rules, and then the webhook, are fuzzed with: a taste in the inner loop, more in CI.
FUZZ_CASES ?= 1000
export FUZZ_CASES

test-fast: $(VENV)/ready ## unit and simulation rings: the inner loop
	@$(PYTEST) tests/unit tests/simulation -n 2

test-kube: $(VENV)/ready ## the ring on a real kube-apiserver
	@$(PYTEST) tests/kube

test-e2e: $(VENV)/ready ## the ring on the real stage
	@$(PYTEST) tests/e2e

test: FUZZ_CASES = 5000
test: check test-fast test-kube test-e2e ## every ring; what CI runs

# `make test-long NAME` is short for `make test-long NAME=NAME`: the second goal is a part of the tests' names.
ifeq ($(firstword $(MAKECMDGOALS)),test-long)
ifneq ($(word 2,$(MAKECMDGOALS)),)
NAME ?= $(word 2,$(MAKECMDGOALS))
.PHONY: $(word 2,$(MAKECMDGOALS))
$(word 2,$(MAKECMDGOALS)): ; @:
endif
endif

test-long: $(VENV)/ready ## tests too long for CI, resumed where a run stopped (NAME=..., FRESH=1)
	@$(PYTEST) tests --long -q -o console_output_style=classic $(if $(FRESH),--fresh) $(if $(NAME),-k '$(NAME)')

bench: $(VENV)/ready ## the performance table
	@$(BIN)/python -m bench

lock: $(VENV)/ready ## resolve the dependencies anew, with hashes and without any registry's address
	@$(BIN)/python requirements/lock.py

format: $(VENV)/ready ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove the virtual environment and caches of the tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
