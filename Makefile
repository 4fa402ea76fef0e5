# Two commands do everything: `make demo` (the main job) and `make test`. Both set up what they need in $(VENV).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
JOBS   ?= 2
# Our own sources win over an installed copy, so that a shared VENV can serve several checkouts.
export PYTHONPATH := $(CURDIR)/src$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: help demo test test-all check format lint types layers unit docs bench clean setup
help:
	@echo "make demo    recommend a recipe, train its smoke run on 2 processes and on 1, prove the same loss"
	@echo "make test    the test suite (no GPU needed)"
	@echo "make test-all  the test suite with the tests marked slow"
	@echo "make check   format, lint, types, import layers, unit and docs tests"
	@echo "make bench   every benchmark in bench/, each printing its table"

$(VENV)/bin/python:
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=..."; exit 3; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.train: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "== installing autorecipe[train] into $(VENV)"
	@$(PIP) install -q -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/.test: $(VENV)/.train pyproject.toml constraints.txt
	@echo "== installing the test dependencies into $(VENV)"
	@$(PIP) install -q -c constraints.txt -e '.[train,hf,catalog,web,mcp,dev]'
	@touch $@

setup: $(VENV)/.test

demo: $(VENV)/.train
	@bash scripts/demo.sh $(BIN)

test: $(VENV)/.test
	@echo "== tests (make test-all adds those marked slow)"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow"

test-all: $(VENV)/.test
	@echo "== tests, the slow ones too"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

check: format lint types layers unit docs

format: $(VENV)/.test
	@$(BIN)/ruff format --check .
lint: $(VENV)/.test
	@$(BIN)/ruff check .
types: $(VENV)/.test
	@$(BIN)/mypy
layers: $(VENV)/.test
	@$(BIN)/lint-imports
unit: $(VENV)/.test
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup tests/unit tests/property tests/repo -m "not slow"
docs: $(VENV)/.test
	@$(BIN)/python -m pytest -q tests/docs
bench: $(VENV)/.test
	@for f in bench/*.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done
clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache demo-output
