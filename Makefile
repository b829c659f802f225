# Needs Python 3.11+ with venv; everything else is installed into .venv, pinned and hashed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCK   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
          --custom-compile-command "make lock"
PEERS  := $(patsubst requirements/peers/%.txt,.peers/%/.installed,$(wildcard requirements/peers/*.txt))
ARGS   ?=
# npm with the machine's Node, or with that from PyPI where there is none; each folder's stamp says that all is there.
NPM    := $(BIN)/python hatch_build.py npm
WEB    := web/node_modules/.installed
AI_SDK := $(patsubst %/package-lock.json,%/node_modules/.installed,$(wildcard web/conformance/*/package-lock.json))
# Tests wait about as often as they work: for servers that start, processes that die, leases that end.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))

# Where a machine says so, no program keeps what it has compiled of Python, and each compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup peers run test test-full kill9 check fmt bench web docs lock clean interop sbom audit

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Pass arguments on with ARGS="...", choose an interpreter with PYTHON=...'

setup: $(VENV)/.dev ## install everything needed to work on accord

run: $(VENV)/.runtime ## start a server with agents that show everything
	$(BIN)/accord demo $(ARGS)

test: $(VENV)/.dev $(PEERS) $(WEB) $(AI_SDK) ## run the tests that every change needs
	$(NPM) web run --silent test
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not full" $(ARGS)

test-full: test ## run every test: also peers, crashes, deployments, guides, upgrades, PostgreSQL everywhere
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "full or hypothesis" $(ARGS)

kill9: $(VENV)/.runtime ## kill a server in mid-stream, start it again, and see that nothing is lost
	$(BIN)/python examples/kill9/run.py

check: $(VENV)/.dev $(WEB) ## format, lint, types, layers, sizes, known vulnerabilities
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(NPM) web run --silent typecheck
	$(NPM) web run --silent lint
	$(BIN)/pytest -q tests/test_sizes.py
	$(BIN)/python -m requirements.audit

fmt: $(VENV)/.dev ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## measure, side by side with the official SDK and DBOS, and write docs/performance.md
	$(BIN)/python -m bench $(ARGS)

interop: $(VENV)/.dev $(PEERS) $(AI_SDK) ## let every peer talk to accord, and write docs/interop.md
	$(BIN)/python -m interop $(ARGS)

sbom: $(VENV)/.dev ## list what accord is made of, in dist/
	$(BIN)/python -m requirements.sbom

audit: $(VENV)/.dev ## ask whether what accord needs has known vulnerabilities
	$(BIN)/python -m requirements.audit $(ARGS)

web: $(VENV)/.dev $(WEB) ## build the console's pages into the package, and the types that they are written with
	$(BIN)/python -m accord.console.routes > web/openapi.json
	$(NPM) web run --silent types
	$(BIN)/python hatch_build.py build
	$(BIN)/python -m requirements.notices

docs: $(VENV)/.dev ## build the documentation into site/; a dead link fails
	$(BIN)/python docs/check_links.py
	$(BIN)/python docs/llms.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

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
	$(LOCK) $(ARGS) --group peer-langgraph-api -o requirements/peers/langgraph-api.txt

clean: ## remove what the commands above made
	rm -rf web/node_modules web/conformance/*/node_modules
	rm -rf $(VENV) .peers dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests docs bench examples interop requirements -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

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

%/node_modules/.installed: %/package-lock.json | $(VENV)/.dev
	$(NPM) $* ci --ignore-scripts --no-audit --no-fund
	@touch $@
