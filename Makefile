# make install   .venv and the jars of the embedded cluster; quick when nothing changed
# make check     format, lint, types (tests too), import rules and unit tests: under a minute
# make test      check, then every test there is
# make simulate SEEDS=n   n runs of the simulation; one again: python -m tests.simulation.replay SEED
# make mutants   small changes of the protocol's files, each of which some test must notice; SAMPLE=n: so
#                many by chance, SEED=n the same again, ONLY="id ..." these
# make faults MINUTES=n   random mixes of faults on real processes, or RUNS=n of them, while users change
#             queries; the history is kept in .faults
# make soak MINUTES=n   memory of every process under a steady load (RATE=rows a second): a table, a plot
# make demo      the whole of Mars on this machine, with data, until Ctrl-C (or DEMO_SECONDS=n)
# make format    write the format and the fixes that are safe
# make docs      site/, the pages as a site that needs no network; wrong links end it
# make pictures  docs/images anew, from real runs: the dashboard, and a reducer that is killed (4 minutes)
# make wheel     dist/*.whl, which holds all that an installation needs
# make lock      new lock files from pyproject.toml
# make clean     everything that make made, but not the data in .mars

SHELL := /bin/bash
.DEFAULT_GOAL := install
.PHONY: install jars check lint unit test simulate mutants faults soak demo format docs pictures wheel lock clean

CODE := $(wildcard mars mapper reducer api bench)
QUICK_TESTS := $(wildcard tests/unit)
# Tests at a time: most wait for servers. Three take two cores for three quarters of the time.
WORKERS ?= 3
ALONE := tests/simulation tests/golden tests/properties
COMPUTED := .pytest_cache/computed.log
VENV := .venv
STAMP := $(VENV)/.installed
RUN := $(VENV)/bin

# Sets of texts in the same order each time: the seed alone tells a run of the simulation.
check unit test mutants: export PYTHONHASHSEED = 0
# As in processes of Mars (mars/process/memory.py); with threads that wait for each other, tests that
# only compute took a third more of the processors.
check unit test mutants: export POLARS_MAX_THREADS = 1
check unit test mutants: export OPENBLAS_NUM_THREADS = 1
# Where a machine asks for no compiled files, each of hundreds of processes compiled all of Mars.
unexport PYTHONDONTWRITEBYTECODE

install: $(STAMP) jars

# The stamp is touched last: a broken install is done again.
$(STAMP): requirements-dev.lock pyproject.toml
	@python=; for candidate in python3.11 python3 python3.14 python3.13 python3.12; do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	    >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Mars needs Python 3.11 or newer with its venv module; install python3.11" \
	    "(Debian and Ubuntu: python3.11-venv) and run make again." >&2; exit 1; \
	fi; \
	[ -x $(RUN)/python ] || $$python -m venv --clear $(VENV)
	@echo "Installing what Mars needs into $(VENV) (some minutes the first time)."
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements-dev.lock
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation -e .
	@touch $@

jars: $(STAMP)
	@$(RUN)/python -m mars.local.jars kafka
	@$(RUN)/python -m mars.local.archive

# The linters keep one core busy and leave the other idle; beside them the tests have both.
check: $(STAMP)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint unit

lint: $(STAMP)
	$(RUN)/ruff format --check $(CODE) tests
	$(RUN)/ruff check $(CODE) tests
	$(RUN)/mypy $(CODE) tests
	$(RUN)/lint-imports

unit: $(STAMP)
	$(RUN)/pytest -q -n $(WORKERS) $(QUICK_TESTS)

# Each worker has its own servers, and a file stays with one worker. In the order of the folders, so
# that the cluster which the acceptance tests share goes down when they are done: idle, but with all
# their tasks, it takes a third of a machine of two cores. These tests mostly wait; those that only
# compute have what they leave of the processors, so each of them may take an hour, and are told of at
# the end.
test: install check
	@$(RUN)/python tests/support/aside.py $(RUN)/pytest $(ALONE) -q -p no:cacheprovider \
	  -n 2 --timeout 3600 > $(COMPUTED) 2>&1 & computing=$$!; \
	trap 'kill $$computing 2>/dev/null' INT TERM; \
	$(RUN)/pytest tests $(addprefix --ignore=,$(QUICK_TESTS) $(ALONE)) \
	  -n $(WORKERS) --dist loadfile --no-loadscope-reorder; others=$$?; \
	wait $$computing; computed=$$?; cat $(COMPUTED); exit $$((others + computed))

SEEDS ?= 1000
simulate: $(STAMP)
	@$(RUN)/python -m tests.simulation.many $(SEEDS)

mutants: install
	@$(RUN)/python -m tests.mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(ONLY),--only $(ONLY))

MINUTES ?= $(if $(RUNS),100000,60)
faults: install
	@$(RUN)/python -m tests.faults.long --minutes $(MINUTES) $(if $(RUNS),--runs $(RUNS)) \
	  $(if $(SEED),--seed $(SEED))

soak: install
	@$(RUN)/mars bench soak --minutes $(MINUTES) --rate $(or $(RATE),6000)

demo: install
	@$(RUN)/mars up --demo

format: $(STAMP)
	$(RUN)/ruff check --fix $(CODE) tests
	$(RUN)/ruff format $(CODE) tests

docs: $(STAMP)
	$(RUN)/python -m zensical build --strict

pictures: install
	$(RUN)/python -m tests.support.pictures

wheel: $(STAMP)
	$(RUN)/python -m hatchling build -t wheel -d dist

# No registry address and no path of this machine may get into a lock.
PIP_COMPILE = $(RUN)/pip-compile --quiet --no-header --no-emit-index-url --no-emit-trusted-host \
  --no-emit-find-links --generate-hashes --strip-extras --allow-unsafe
lock: $(STAMP)
	$(PIP_COMPILE) --extra cluster --output-file requirements.lock pyproject.toml
	$(PIP_COMPILE) --extra cluster --extra dev --constraint requirements.lock \
	  --output-file requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site .cache .pictures
	find $(CODE) tests -name __pycache__ -type d -prune -exec rm -rf {} +
