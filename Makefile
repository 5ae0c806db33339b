# Every target sets up .venv by itself. All logic is in gen; only the search for a Python is here.

# Run, not looked up: version managers put a python3 on the path that exists and fails.
PYTHONS = python3 python3.14 python3.13 python3.12 python3.11
SUITS = import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help setup generate tune types test test-all test-pythons test-gpu sanitize bench docs check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/installed ## install gen and its tools into .venv

generate: .venv/gen ## write the kernels of the catalogue to out/
	.venv/bin/gen generate

tune: .venv/gen ## generate, compile, prove; with a GPU: find the fastest
	.venv/bin/gen tune

types: .venv/installed ## check the types
	.venv/bin/mypy

test: .venv/installed ## run the tests on all cores, but for those marked exhaustive or further
	.venv/bin/pytest -n auto --dist worksteal

# MARKS='not further' leaves out what .ci/run does.
MARKS =
test-all: .venv/installed ## run all tests that need no GPU
	.venv/bin/pytest -n auto --dist worksteal -m '$(MARKS)'

test-pythons: ## run the tests on each Python from 3.11 to 3.14 that is here, each in an environment of its own
	@for version in 3.11 3.12 3.13 3.14; do \
	  own=.venv/pythons/$$version; \
	  if ! python$$version -c '$(SUITS)' >/dev/null 2>&1; then echo "python$$version is not here, or does not run."; continue; fi; \
	  echo "Python $$version"; [ -e .venv ] || { mkdir .venv && touch .venv/made-by-make; }; { [ -e $$own ] || python$$version -m venv $$own; } && \
	  $$own/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' && \
	  $$own/bin/python -m pytest -n auto --dist worksteal || exit 1; \
	done

test-gpu: .venv/installed ## run the tests that need a GPU; they fail without one
	.venv/bin/pytest tests/gpu -n 4 --dist worksteal

sanitize: .venv/installed ## run every algorithm under compute-sanitizer, on a GPU
	.venv/bin/python -m bench.sanitize

bench: .venv/installed ## time gen itself, on any machine
	.venv/bin/python bench/host.py

docs: .venv/installed ## make the pages of docs/ HTML, in docs/_build
	.venv/bin/sphinx-build -W --keep-going -q -b html docs docs/_build

check: .venv/installed ## all that a change must pass: format, lint, layers, types, out/ up to date, docs, all tests
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/lint-imports --no-logo
	.venv/bin/gen generate --check
	@$(MAKE) -j 2 types docs test-all # mypy takes half a minute of one core: beside the tests none is idle

clean: ## remove what these targets made: .venv and caches
	@[ Makefile -ef '$(firstword $(MAKEFILE_LIST))' ] || { echo "Run make clean in gen's own folder." >&2; exit 1; }
	@[ ! -e .venv/made-by-make ] || rm -rf .venv
	rm -rf docs/_build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache out/.cache out/local/.cache
	@for folder in $(wildcard gen tests bench); do \
	  find $$folder -name __pycache__ -type d -prune -exec rm -rf {} +; \
	done

# gen alone, which is a third of all that its tests and pages need.
.venv/gen: pyproject.toml
	@if [ -e .venv ] && [ ! -e .venv/made-by-make ]; then echo "Using the .venv that is here."; exit; fi; \
	for python in $(PYTHONS); do \
	  if $$python -c '$(SUITS)' >/dev/null 2>&1; then \
	    echo "Setting up .venv with $$python: about a minute, once."; \
	    mkdir -p .venv && touch .venv/made-by-make && $$python -m venv .venv; exit; \
	  fi; \
	done; \
	echo "gen needs Python 3.11 or newer with venv. None of these runs: $(PYTHONS)." >&2; \
	echo "On Debian and Ubuntu: apt install python3 python3-venv." >&2; \
	exit 1
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@! nvidia-smi >/dev/null 2>&1 || .venv/bin/python -m pip install --quiet --disable-pip-version-check nvidia-ml-py
	@! nvidia-smi >/dev/null 2>&1 || ! nvcc --version >/dev/null 2>&1 || \
	  .venv/bin/python -m pip install --quiet --disable-pip-version-check pycuda || \
	  echo "PyCUDA cannot be built here: cuda-bindings loads and times kernels instead, as gen doctor says." >&2
	@touch $@

.venv/installed: .venv/gen
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
