# Two promises, on a machine with nothing but Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin

# The oldest transformers that foveate.vlm takes (its own word), for the tests of what depends on it.
OLDEST := $(shell sed -n 's/^OLDEST = "\([0-9.]*\)".*/\1/p' src/foveate/vlm/attach.py)
OLDEST_TESTS = tests/test_vlm*.py tests/test_projector.py tests/test_masks.py

.PHONY: demo test test-oldest lint clean

demo: .venv/base
	@$(BIN)/foveate demo --out demo

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest
	@$(MAKE) --no-print-directory test-oldest

test-oldest: .venv/transformers-$(OLDEST)
	@test ! -d $< || FOVEATE_TRANSFORMERS=$(OLDEST) PYTHONPATH=$<$${PYTHONPATH:+:$$PYTHONPATH} \
		$(BIN)/python -m pytest $(OLDEST_TESTS)

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

# Beside the environment's packages, none of which it replaces: everything else, torch above all, is theirs.
.venv/transformers-$(OLDEST): .venv/test
	@rm -rf $@ $@.part
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@.part 'transformers==$(OLDEST).*' \
		2> .venv/oldest.log && mv $@.part $@ && touch $@ || { \
		grep -q 'No matching distribution' .venv/oldest.log || { cat .venv/oldest.log >&2; exit 1; }; \
		echo "test-oldest skipped: the package index has no transformers $(OLDEST)"; }

clean:
	rm -rf .venv demo
