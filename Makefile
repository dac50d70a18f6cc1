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

.PHONY: demo serve-demo test test-slow fuzz lint bench docs clean help

BUDGET ?= 1000
SEED ?= 0

help:
	@echo "make demo   policies for five load levels from a shipped profile, and a placement"
	@echo "make serve-demo  real digits served for ten seconds, beside the promise"
	@echo "make test   the tests, but for the slow ones"
	@echo "make test-slow  the slow ones: long simulations, kills, evaluation scripts"
	@echo "make fuzz   damaged files and odd options: BUDGET of them, from number SEED"
	@echo "make lint   ruff and mypy"
	@echo "make bench  speed and memory, as ratios against references"
	@echo "make docs   the documentation, in docs/_build/html"
	@echo "make clean  remove what these made"

$(BASE): pyproject.toml
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(TEST): $(BASE)
	$(PIP) -e '.[test,plot,serve]'
	@touch $@

$(LINT): $(BASE)
	$(PIP) -e '.[lint,plot,serve]'
	@touch $@

$(BENCH): $(BASE)
	$(PIP) -e '.[test,bench,serve]'
	@touch $@

$(DOCS): $(BASE)
	$(PIP) -e '.[docs]'
	@touch $@

$(SERVE): $(BASE)
	$(PIP) -e '.[serve,measure]'
	@touch $@

serve-demo: $(SERVE)
	$(BIN)/python scripts/serve_demo.py

demo: $(BASE)
	$(BIN)/ramsis generate --profiles digits-cpu --slo-ms 25 --workers 4 \
		--load 400,800,1600,3200,6400 --out policies_out/demo
	@echo
	$(BIN)/ramsis place digits --out policies_out/placement.json

test: $(TEST)
	$(BIN)/python -m pytest -n auto -m "not slow"

test-slow: $(TEST)
	$(BIN)/python -m pytest -n auto -m slow

fuzz: $(TEST)
	$(BIN)/python -m tests.fuzz --budget $(BUDGET) --seed $(SEED)

lint: $(LINT)
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(BENCH)
	$(BIN)/python -m pytest tests/bench --benchmark-only -p no:cacheprovider

docs: $(DOCS)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build build dist *.egg-info
