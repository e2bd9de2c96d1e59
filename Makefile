VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Where it is set, as in containers, each of the suite's processes would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit test coverage lint types docs versions clean

audit: $(VENV)/installed
	$(BIN)/privfed audit --out audit --overwrite

# One process more than there are cores: some tests wait for other processes.
WORKERS = $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')

# One thread each for linear algebra, or processes would wait for each other's.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: $(VENV)/developing
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile $(OPTIONS)

# The suite, and which share of the code's branches it takes; the figure is the last line.
coverage: OPTIONS = --cov --cov-report=
coverage: test
	$(BIN)/python -m coverage html -q -d build/coverage
	@$(BIN)/python -m coverage report --format=total | sed 's/^/branch coverage, per cent: /'

lint: $(VENV)/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/developing
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks

# The documentation as a site, in build/site/index.html; a broken link or an example that fails ends it.
docs: $(VENV)/documenting
	$(BIN)/sphinx-build -q -W --keep-going docs build/site

# The sites of this tree (dev) and of all released versions, in build/versions; each links to the others.
VERSIONS = dev $(shell git tag --list 'v*' --sort=-version:refname)
versions: $(VENV)/documenting
	set -e; for version in $(VERSIONS); do tree=.; \
	  if [ $$version != dev ]; then tree=build/trees/$$version; mkdir -p $$tree; \
	    git archive $$version | tar -x -C $$tree; fi; \
	  PYTHONPATH=$$tree $(BIN)/sphinx-build -q -W --keep-going -A versions="$(VERSIONS)" \
	    -A this_version=$$version $$tree/docs build/versions/$$version; done

# All depend on pyproject.toml: entry points go stale when it changes.
$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	touch $@

$(VENV)/developing: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e ".[dev]"
	touch $@ $(VENV)/installed

$(VENV)/documenting: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e ".[docs,sign]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info audit
