# Needs Python 3.11+ with venv; everything else is installed into .venv, pinned and hashed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCK   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
          --custom-compile-command "make lock"
PEERS  := $(patsubst requirements/peers/%.txt,.peers/%/.installed,$(wildcard requirements/peers/*.txt))
ARGS   ?=
# Tests wait about as often as they work: for servers that start, processes that die, leases that end.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.DEFAULT_GOAL := help
.PHONY: help setup peers run test check fmt bench web docs lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Pass arguments on with ARGS="...", choose an interpreter with PYTHON=...'

setup: $(VENV)/.dev ## install everything needed to work on accord

run: $(VENV)/.runtime ## start the server
	$(BIN)/accord serve $(ARGS)

test: $(VENV)/.dev $(PEERS) ## run every test
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

check: $(VENV)/.dev ## format, lint, types, layers, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/test_sizes.py

fmt: $(VENV)/.dev ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## measure, side by side with the official SDK and DBOS
	$(BIN)/python -m bench $(ARGS)

web: ## build the console's front end
	@echo "Nothing to build yet: the front end arrives with the console."

docs: ## check the links of the documentation
	$(PYTHON) docs/check_links.py

peers: $(PEERS) ## install other A2A implementations that tests talk to

lock: $(VENV)/.uv ## pin the dependencies again (newest: ARGS=--upgrade)
	$(LOCK) $(ARGS) --group uv -o requirements/uv.txt
	$(LOCK) $(ARGS) --group build -o requirements/build.txt
	$(LOCK) $(ARGS) pyproject.toml -o requirements/runtime.txt
	$(LOCK) $(ARGS) pyproject.toml --group dev -c requirements/build.txt -c requirements/runtime.txt \
	    -o requirements/dev.txt
	$(LOCK) $(ARGS) pyproject.toml --group peer-a2a-sdk-03 -o requirements/peers/a2a-sdk-03.txt
	$(LOCK) $(ARGS) --group peer-agentvault -o requirements/peers/agentvault.txt
	$(LOCK) $(ARGS) pyproject.toml --group peer-crewai -o requirements/peers/crewai.txt
	$(LOCK) $(ARGS) --group peer-dbos -o requirements/peers/dbos.txt
	$(LOCK) $(ARGS) pyproject.toml --group peer-google-adk -o requirements/peers/google-adk.txt

clean: ## remove what the commands above made
	rm -rf $(VENV) .peers dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests docs bench examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Peers that are hosted by accord have it in their environment.
.PHONY: accord-in-peer
accord-in-peer:
	$(BIN)/uv pip install --quiet --python $(PEER)/bin/python --require-hashes -r requirements/build.txt
	$(BIN)/uv pip install --quiet --python $(PEER)/bin/python --no-deps --no-build-isolation --editable .

# Environments. Each file below is the stamp of one finished step.

$(VENV)/.uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "accord needs Python 3.11 or newer with venv, and '$(PYTHON)' is not that." \
	    "On Debian: apt-get install python3-venv. To use another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.runtime: $(VENV)/.uv requirements/build.txt requirements/runtime.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

.peers/%/.installed: requirements/peers/%.txt pyproject.toml $(VENV)/.uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --require-hashes -r $<
	@if grep -q '^apsw==' $<; then $(MAKE) --no-print-directory PEER=$(@D) accord-in-peer; fi
	@touch $@
