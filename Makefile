PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
PIP = $(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-all fresh processors lint docs install constraints gpu-proof vllm clean

help:
	@echo "make demo      install into .venv, measure 7 embedded models on 2 corpora, print the laws"
	@echo "make test      lint, types and the tests of numbers and data (4 minutes on two cores)"
	@echo "make test-all  in addition: servers, browser, SLURM, kills, tools, other processors, the wheel in a fresh environment"
	@echo "make lint      ruff, mypy and the rooms' import contracts"
	@echo "make docs      the documentation as a site in site/; a broken link is an error"
	@echo "make vllm      tests with a real vLLM server on this CPU (half an hour, 4 GB)"
	@echo "make clean     remove .venv and all that was built"

demo: $(RUNS)
	$(RUN) -m rbptrack demo

test: lint
	$(RUN) -m pytest

test-all: test fresh processors
	$(RUN) -m pytest -m system

# The tests of numbers with the kernels of other processors and with other versions of pandas, NumPy, SciPy and lmfit.
processors: $(STAMP)
	$(RUN) -m tools.processors

# What others get: the wheel with its dependencies in an environment of its own, where the tutorials' commands must work.
fresh: $(STAMP)
	$(RUN) -m tools.fresh_environment

# A real vLLM server on this machine's CPU: it takes 4 GB of disk, and half an hour on two cores.
vllm: $(STAMP)
	$(RUN) -m tools.vllm_environment
	$(RUN) -m pytest -n 0 -m system tests/system/test_vllm.py

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo

docs: $(STAMP)
	$(RUN) -m tools.reference
	$(RUN) -m mkdocs build --strict

# Scoring, memory and ranks on one GPU, offline: gpu-proof.json.
DEVICE := cuda
gpu-proof: $(RUNS)
	$(RUN) -m tools.gpu_proof --device $(DEVICE)

install: $(STAMP)

# The exact versions that the tests ran with, from the environment that they ran in.
constraints: $(STAMP)
	$(RUN) -m pip list --format freeze --exclude rbptrack --exclude pip --exclude setuptools | sed 's/+cpu//' > constraints.txt

# What the demo needs and no more; what the tests need besides is installed after it.
$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rbptrack needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(PIP) -e .
	touch $@

$(STAMP): $(RUNS)
	$(PIP) --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache
