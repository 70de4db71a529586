PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test docs install lint clean

# The main job: 7 embedded models on 2 embedded corpora, the table of results and the fitted laws.
demo: $(STAMP)
	$(RUN) -m rbptrack -m 'model=nano/*' dataset=stdlib,pydocs

# Lint, types, then every test. With CI set, a skipped test fails.
test: lint
	$(RUN) -m pytest

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo

# The documentation as a site in site/; a broken link is an error.
docs: $(STAMP)
	DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rbptrack needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
