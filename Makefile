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

.PHONY: demo serve-demo test test-quick test-slow dist fuzz lint bench docs clean help

BUDGET ?= 1000
SEED ?= 0
BEFORE ?=

help:
	@echo "make demo   policies for five load levels from a shipped profile, and a placement"
	@echo "make serve-demo  real digits served for ten seconds, beside the promise"
	@echo "make test-quick  tests of every part, in about a minute"
	@echo "make test   the tests, but for the slow ones; it ends with why tests were skipped"
	@echo "make test-slow  the slow ones: long simulations, kills, evaluation scripts"
	@echo "make fuzz   damaged files and odd options: BUDGET of them, from number SEED"
	@echo "make lint   ruff and mypy"
	@echo "make bench  speed and memory, as ratios against references; BEFORE=REVISION: and that code"
	@echo "make docs   the documentation, in docs/_build/html"
	@echo "make dist   wheel and source archive in dist/, and tests of the installed wheel"
	@echo "make clean  remove what these made"

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
	tests/test_public_names.py tests/worker/test_closed_forms.py tests/worker/test_structured.py

test-quick: $(TEST)
	$(BIN)/python -m pytest -n auto -q $(QUICK)

test: $(TEST)
	$(BIN)/python -m pytest -n auto -m "not slow"

test-slow: $(TEST)
	$(BIN)/python -m pytest -n auto -m slow

# TESTS=tests runs all of them with the installed wheel.
TESTS ?= $(QUICK)
dist: $(DIST)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python scripts/test_artefacts.py --dist dist --tests $(TESTS)

fuzz: $(TEST)
	$(BIN)/python -m tests.fuzz --budget $(BUDGET) --seed $(SEED)

lint: $(LINT)
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=scripts $(BIN)/mypy scripts/*.py scripts/live/*.py

bench: $(BENCH)
	BEFORE=$(BEFORE) $(BIN)/python -m pytest tests/bench --benchmark-only -p no:cacheprovider

docs: $(DOCS)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build build dist *.egg-info
