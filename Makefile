# Everything runs in .venv, made on first use from the tested versions in constraints.txt.
PYTHON ?= python3
TORCH_ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
# Idle workers take tests from busy ones; neighbours stay together, because they share fixtures.
PARALLEL := --numprocesses logical --maxprocesses 4 --dist worksteal

.PHONY: demo test test-slow test-browser static check format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	# torch first and alone, so that TORCH_ARGS can point to an index with CPU builds.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(TORCH_ARGS) torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[trl,dev]'
	touch $(STAMP)

demo: $(STAMP)  ## Teach the embedded policy to act; under six minutes on two cores.
	$(BIN)/python examples/demo.py

test: $(STAMP)  ## The test suite without the long learning tests.
	$(BIN)/python -m pytest $(PARALLEL)

test-slow: $(STAMP)  ## The learning tests.
	$(BIN)/python -m pytest -m slow $(PARALLEL)

# Needs Chromium: `apt-get install chromium`, or any build of it named in CHROMIUM=/path.
test-browser: $(STAMP)  ## The report in headless Chromium.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	$(BIN)/python -m pytest -m browser

static: $(STAMP)  ## Format, lint, types.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: static test  ## What every change must pass.

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
