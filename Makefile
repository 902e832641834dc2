# The tasks of the project. Each works in a fresh clone with nothing but Python >= 3.11.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: demo install check test bench clean

demo: $(VENV)/run-stamp        ## set up and run the bundled experiment
	$(BIN)/arcsim simulate --config h200_ragged

install: $(VENV)/dev-stamp     ## set up for working on the code

check: $(VENV)/dev-stamp       ## lint, types, layout
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layout.py

test: $(VENV)/dev-stamp        ## set up and pass the tests
	$(BIN)/pytest -q -n auto --dist worksteal

bench: $(VENV)/run-stamp       ## CPU time and memory of simulations
	$(BIN)/python bench/speed.py
	$(BIN)/python bench/decode.py

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/run-stamp: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "arcsim needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt --editable .
	touch $@

$(VENV)/dev-stamp: $(VENV)/run-stamp constraints.txt
	$(PIP) install --constraint constraints.txt $(shell $(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"])')
	touch $@
