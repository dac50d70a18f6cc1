PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

# Each stamp stands for "the environment has these extras, as pyproject.toml asks for them now".
BASE := $(VENV)/.base
TEST := $(VENV)/.test
LINT := $(VENV)/.lint
BENCH := $(VENV)/.bench
DOCS := $(VENV)/.docs
SERVE := $(VENV)/.serve
DIST := $(VENV)/.dist
OLDEST := $(VENV)/oldest.txt
REFEREE := $(VENV)/.referee

.PHONY: demo serve-demo test test-newest test-oldest test-quick test-slow referee dist fuzz lint bench docs tables clean help

BUDGET ?= 1000
N ?= 100
SEED ?= 0
BEFORE ?=

help:
	@echo "make demo   policies for five load levels from a shipped profile, and a placement"
	@echo "make serve-demo  real digits served for ten seconds, beside the promise"
	@echo "make test-quick  tests of every part, in about a minute"
	@echo "make test   the tests, but for the slow ones; it ends with why tests were skipped"
	@echo "make test-newest  demo and test with the newest Python here; PYTHON=... VENV=...: with any"
	@echo "make test-oldest  the quick tests with the oldest dependencies that are allowed"
	@echo "make test-slow  the slow ones: long simulations, further cases, kills, most pages, scripts"
	@echo "make referee  solvers, simulator and server beside Storm, QuantEcon, Ciw and a schema"
	@echo "make fuzz   damaged files and odd options: BUDGET of them, from number SEED; then whole"
	@echo "            commands under random numbers: N settings; then tests with other examples"
	@echo "make lint   ruff and mypy"
	@echo "make bench  speed and memory, as ratios against references; BEFORE=REVISION: and that code"
	@echo "make docs   the documentation, in docs/_build/html"
	@echo "make tables  the tables of clusters in the docs, and of sharing, some hours"
	@echo "make dist   wheel and source archive in dist/, and tests of the installed wheel"
	@echo "make clean  remove what these made"

# Neighbours run in one process, so that what several tests of a file need is made once. A process
# more than there are cores saves a tenth of the time, and makes measurements of times late.
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal

INSTALLING = @echo "Installing $(1) into $(VENV) (a minute or so, the first time only) ..."

$(BASE): pyproject.toml
	@rm -rf $(VENV)
	$(call INSTALLING,ramsis and what it needs)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(TEST): $(BASE)
	$(call INSTALLING,what the tests need)
	@$(PIP) -e '.[test,plot,serve]'
	@touch $@

$(LINT): $(BASE)
	$(call INSTALLING,ruff and mypy)
	@$(PIP) -e '.[lint,plot,serve]'
	@touch $@

$(BENCH): $(BASE)
	$(call INSTALLING,what the benchmarks need)
	@$(PIP) -e '.[test,bench,serve]'
	@touch $@

$(DOCS): $(BASE)
	$(call INSTALLING,Sphinx)
	@$(PIP) -e '.[docs]'
	@touch $@

$(DIST): $(BASE)
	$(call INSTALLING,what builds archives)
	@$(PIP) -e '.[dist]'
	@touch $@

# Of MLServer the text of the protocol is read; what it needs itself is not.
$(REFEREE): $(TEST)
	$(call INSTALLING,the referees)
	@$(PIP) -e '.[test,referee]'
	@$(PIP) --no-deps 'mlserver>=1.7,<2'
	@touch $@

$(SERVE): $(BASE)
	$(call INSTALLING,what the server needs)
	@$(PIP) -e '.[serve,measure]'
	@touch $@

serve-demo: $(SERVE)
	$(BIN)/python scripts/serve_demo.py

demo: $(BASE)
	$(BIN)/ramsis generate --profiles digits-cpu --slo-ms 25 --workers 4 \
		--load 400,800,1600,3200,6400 --out policies_out/demo
	@echo
	$(BIN)/ramsis place digits --out policies_out/placement.json

# Some of every part, a minute of one core together.
QUICK := tests/arrivals/test_trace_formats.py tests/bounds/test_fluid_bound.py \
	tests/central/test_central_problem.py tests/cli/test_bound_cli.py tests/cli/test_main_cli.py \
	tests/cluster tests/mdp/test_textbook_mdps.py tests/placement/test_check.py \
	tests/policy/test_policy_file.py tests/profiles/test_latency_table.py \
	tests/profiles/test_profile_file.py tests/profiles/test_run_importers.py \
	tests/report/test_panels.py tests/runtime/test_load_monitor.py tests/runtime/test_lookup.py \
	tests/runtime/test_policy_set.py tests/sim/test_batching_schemes.py tests/sim/test_engine.py \
	tests/test_public_names.py tests/mdp/test_closed_forms.py tests/worker/test_structured.py

test-quick: $(TEST)
	$(PYTEST) -q -m "not slow" $(QUICK)

test: $(TEST)
	$(PYTEST) -m "not slow"

# The newest Python that runs: of what pyenv puts on the path only the selected versions do.
NEWEST = $(shell for v in 3.14 3.13 3.12; do for python in python$$v ~/.pyenv/versions/$$v.*/bin/python; do \
	$$python -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null && exit; done; done)

test-newest:
	$(if $(NEWEST),$(MAKE) demo test PYTHON=$(NEWEST) VENV=.venv-newest,@echo "No newer Python.")

# The lowest version of each that pyproject.toml allows, with the newest of what those need.
$(OLDEST): $(BASE)
	@$(PIP) 'uv>=0.5,<1'
	@$(BIN)/uv pip compile --quiet --python $(BIN)/python --resolution lowest-direct \
		--extra test --extra plot --extra serve --output-file $@ pyproject.toml

# An older numba would replace the compiled kernels beside the sources, and the newer one those anew.
test-oldest: $(OLDEST)
	NUMBA_CACHE_DIR=$(abspath .venv-oldest/kernels) PIP_CONSTRAINT=$(abspath $<) $(MAKE) test-quick VENV=.venv-oldest

test-slow: $(TEST)
	$(PYTEST) -m slow

referee: $(REFEREE)
	$(PYTEST) tests/referee

# TESTS=tests runs all of them with the installed wheel.
TESTS ?= $(QUICK)
dist: $(DIST)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python scripts/test_artefacts.py --dist dist --tests $(TESTS)

fuzz: $(TEST)
	$(BIN)/python -m tests.fuzz --budget $(BUDGET) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.numbers --count $(N) --seed $(SEED)
	$(PYTEST) -q -m hypothesis --hypothesis-profile drawn

lint: $(LINT)
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=scripts $(BIN)/mypy scripts/*.py scripts/live/*.py

bench: $(BENCH)
	BEFORE=$(BEFORE) $(BIN)/python -m pytest tests/bench --benchmark-only -p no:cacheprovider

docs: $(DOCS)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

tables: $(TEST)
	@$(PIP) -e '.[torch]'
	$(BIN)/python scripts/tables.py
	$(BIN)/python scripts/clockwork_rl.py --kept --rows docs/results/clockwork-rl.csv --docs docs
	$(BIN)/python scripts/paper.py
	$(BIN)/python scripts/texts.py

clean:
	rm -rf $(VENV) .venv-newest .venv-oldest docs/_build docs/reference build dist tables_out *.egg-info
