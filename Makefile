# Two promises, on a machine with nothing but Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test lint clean

demo: .venv/base
	@$(BIN)/foveate demo --out demo

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

lint: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The stamps are files inside .venv, made last: an installation that was cut off is done again.
.venv/base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foveate needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/test: .venv/base constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

clean:
	rm -rf .venv demo
