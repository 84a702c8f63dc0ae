# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check unit lint types layers bench build clean

demo: $(STAMP)  ## run the main job: plain DDP against balanced, on real data and unequal workers
	$(BIN)/lbbsp demo --out lbbsp-demo

test: $(STAMP) lint types layers unit  ## everything that must pass before a change lands

check: test

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest

build: $(STAMP)  ## a wheel and an sdist in dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) dist build lbbsp-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
