# Needs Python >= 3.10 and make, nothing else: .venv is made here on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick lint types check clean

demo: $(VENV)/.installed
	$(BIN)/gdn-ir demo --out demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2

quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 -m "not slow and not torch"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-test
	$(BIN)/mypy

check: lint types test

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
