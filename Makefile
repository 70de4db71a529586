PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
PIP = $(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt
HYDRA_TESTS := $(patsubst %,tests/test_%.py,cells patterns places typos working_conf checkpoints not_ours protocol plan)
RESULTS := $(CURDIR)/test-long.jsonl

.PHONY: demo test test-long test-hydra docs install lint clean gpu-proof

# The main job: 7 embedded models on 2 embedded corpora, the table of results and the fitted laws.
demo: $(RUNS)
	$(RUN) -m rbptrack demo

# Lint, types, then every test. With CI set, a skipped test fails.
test: lint
	$(RUN) -m pytest

# What others get: the wheel with its dependencies in a fresh environment outside the checkout, where the tutorials' commands
# must work and print what their pages say.
fresh: $(STAMP)
	$(RUN) -m tools.fresh_environment

# What takes hours: kills, lost nodes, fuzzing, full disks, bad servers, endurance (docs/reliability.md). Continues where it stopped.
test-long: $(STAMP) test-hydra
	$(RUN) -m tools.fresh_environment --sdist
	$(RUN) -m tools.versions --suite --write
	RBPTRACK_RESULTS=$(RESULTS) $(RUN) -m pytest -n 1 -m long
	RBPTRACK_RESULTS=$(RESULTS) $(RUN) -m pytest -n 1 tests/test_flipped_bits.py
	$(RUN) -m pytest -n 1 --hypothesis-profile=long tests/test_properties.py
	$(RUN) -m tools.real_models compare
	$(RUN) -m tests.campaigns all $(RESULTS)

# The tests of configs and command lines with Hydra's newest release candidate, over the packages that are installed.
test-hydra: $(STAMP)
	$(RUN) -m venv --clear $(VENV)/hydra
	$(RUN) -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" > "$$($(VENV)/hydra/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/installed.pth"
	$(VENV)/hydra/bin/python -m pip install --quiet --disable-pip-version-check --pre --no-deps 'hydra-core>=1.4.0rc3,<1.5' 'omegaconf>=2.4.1rc1,<2.5'
	$(VENV)/hydra/bin/python -m pytest -n 0 $(HYDRA_TESTS)

# Kernels, speed, memory and ranks on one GPU, offline: gpu-proof.json, gpu-proof.md. Not yet run on a GPU.
DEVICE := cuda
gpu-proof: $(RUNS)
	$(RUN) -m tools.gpu_proof --device $(DEVICE)

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo

# The reference from the code, then the documentation as a site in site/; a broken link is an error.
docs: $(STAMP)
	$(RUN) -m tools.reference
	DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict

install: $(STAMP)

# What the demo needs and no more; what the tests need besides is installed after it.
$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rbptrack needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(STAMP): $(RUNS)
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
