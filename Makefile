# The two commands of the README are `make demo` and `make test`; each builds .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LIGHT := .venv/.light

.PHONY: wheel docs demo test test-slow test-cpus check lint types layers format clean
.DEFAULT_GOAL := test

$(LIGHT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"Python 3.11 or newer is needed; {v.major}.{v.minor} was found. Try: make PYTHON=python3.12 ...") if v < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(READY): $(LIGHT)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,eval,transformers,lm-eval,data,tensorboard,molecules,correction-bench,match,docs]'
	@touch $@

demo: $(LIGHT)
	$(BIN)/dsl demo

test: check

check: lint types layers
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m slow

# What is computed must hold with the kernels of other CPUs too: plain ones, and those of AVX2.
NUMERICAL := models likelihoods samplers families training apps/zoo core
test-cpus: $(READY)
	ATEN_CPU_CAPABILITY=default $(BIN)/pytest -n 2 --dist worksteal -m "not slow" $(NUMERICAL:%=tests/%)
	if grep -qs avx512f /proc/cpuinfo; then \
	  ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/pytest -n 2 --dist worksteal -m "not slow" $(NUMERICAL:%=tests/%); \
	else echo "no AVX-512 here: make test has used the kernels of AVX2"; fi

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/zensical build --strict --clean

wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation
	alone=$$(mktemp -d) && trap "rm -rf $$alone" EXIT && \
	  $(PYTHON) -m venv $$alone/venv && \
	  $$alone/venv/bin/pip install --quiet --constraint constraints.txt dist/*.whl && \
	  cd $$alone && venv/bin/dsl demo

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist site
