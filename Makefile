# `make demo` is the shortest way in; `make test` is what CI runs.
#
#   make demo                          digits as a nearest-neighbour graph
#   make demo DATA=Cora ROOT=folder    a Planetoid or Amazon graph found there
#   make test                          lint, types, tests and doctests
#   make docs                          the pages, in docs/_build/index.html
#   make test-lowest, test-newest      the tests with other versions of what it needs
#   make bench                         accuracy and speed, printed
#   make reproduce                     the paper's tables and figures, docs/results.md
#   make clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# The raw graphs lie beside the checkout where they lie anywhere.
SHARED := $(abspath ../shared/data)
export SKTIFA_DATA ?= $(if $(wildcard $(SHARED)),$(SHARED),)

.PHONY: demo test lint docs bench reproduce clean
.DELETE_ON_ERROR:

# One venv; each target installs the extra it needs. The constraints name one torch,
# so that pip takes the same build for all of them.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[$*]'
	@touch $@

demo: $(VENV)/.installed-plot
	$(BIN)/python -m sktifa demo --force $(if $(DATA),--data $(DATA)) $(if $(ROOT),--root $(ROOT))

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# Environments of their own. torch stays the one of constraints.txt.
test-lowest: VERSIONS := .ci/lowest
test-newest: VERSIONS := grep ^torch== constraints.txt
test-lowest test-newest:
	$(PYTHON) -m venv .venv-$@
	$(VERSIONS) > .venv-$@/constraints.txt
	.venv-$@/bin/pip install --quiet --upgrade -c .venv-$@/constraints.txt -e '.[test]'
	.venv-$@/bin/python -m pytest

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.speed.epoch
	$(BIN)/python -m benchmarks.speed.propagation
	$(BIN)/python -m benchmarks.accuracy table1 --graphs Cora

# An interrupted run goes on where it was; REPRODUCE names tables and options.
reproduce: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.accuracy $(or $(REPRODUCE),all --device auto)
	$(BIN)/python -m benchmarks.accuracy.page

clean:
	rm -rf $(VENV) .venv-test-* build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	rm -rf docs/_build docs/auto_examples docs/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
