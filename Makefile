# Every target does its own set-up: a virtual environment in .venv, installed from the lock files.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo
PAGE   := src/qbull/ui/.built
NODE   := ui/node_modules/.package-lock.json
NODE_TESTS := tests/node/node_modules/.package-lock.json
BROWSER := $(VENV)/.browser
GET_TOOLS := tests/ui/get_browser.sh tests/ui/get_nginx.sh tests/deploy/get_renderer.sh tests/deploy/get_promtool.sh
SUITES := $(VENV)/.suites/.fetched
TOOLS  := $(VENV)/.tools
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
# All but "allocator": tbb is proprietary, so it is installed only if somebody asks for it.
EXTRAS := $(addprefix --extra ,alerts api encryption fsspec oidc otel postgres)
ALLOCATOR ?=
ARGS   ?=
PEERS  ?=
SECONDS ?= 60
MINUTES ?= 10
TOPOLOGY ?= single
SEED   ?= 1
JOBS   ?= 0
FAULTS ?= 0
STEPS  ?= 0
DURABILITY ?=
# The pure rules, the golden files, and one page of the guide and two verbs on a real server.
QUICK  := tests/house tests/core tests/net tests/guide/test_first_steps.py tests/store/test_enqueue.py tests/store/test_settle.py
ONLY   ?=
# Of `make matrix`: what tests/release/pythons.py and matrix.py find and run without these.
PYTHONS ?=
SERVERS ?=
TESTS  ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test matrix quick check house format bench chaos proofs fuzz saboteurs soak diagrams manifests docs site dist audit sbom pin lock clean

help: ## show what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(STAMP) $(PAGE)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "qbull needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(STAMP): $(BIN)/python pyproject.toml requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP) $(DEMO)

# Only what qbull itself needs: the demo starts in half of the time that a full set-up takes.
$(DEMO): $(BIN)/python requirements/run.txt
	@echo "installing qbull's dependencies into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/run.txt
	@touch $(DEMO)

$(PAGE): hatch_build.py $(shell find ui -path ui/node_modules -prune -o -type f -print)
	@echo "building the dashboard"
	@$(PYTHON) hatch_build.py

# Tests without their tool are skipped, so a tool that could not be installed stops nobody; the next run tries again.
$(BROWSER): $(STAMP) $(GET_TOOLS)
	@all=yes; for script in $(GET_TOOLS); do sh $$script $(BIN) || all=no; done; test $$all = no || touch $(BROWSER)

$(NODE): ui/package-lock.json
	@command -v npm >/dev/null || { echo "npm was not found: the dashboard's types are not checked" >&2; exit 0; }; cd ui && npm ci --no-audit --no-fund --loglevel=error

$(NODE_TESTS): tests/node/package-lock.json
	@command -v npm >/dev/null || { echo "npm was not found: the tests against BullMQ are skipped" >&2; exit 0; }; cd tests/node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

$(SUITES): $(STAMP) tests/suites/sdists.py
	@$(BIN)/python tests/suites/sdists.py && touch $(SUITES)

run: ## run the demo; ARGS="--once" ends by itself with a summary
	@$(MAKE) --no-print-directory -j2 $(DEMO) $(PAGE)
	PYTHONPATH=src $(BIN)/python -m qbull demo $(ARGS)

test: $(STAMP) $(PAGE) $(BROWSER) $(NODE_TESTS) $(SUITES) ## run the tests; ARGS="-k name" picks some
	$(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

matrix: $(STAMP) $(PAGE) $(BROWSER) $(NODE_TESTS) ## run the tests on every Python here and on Redis 7.0; TESTS="tests/core" runs a part, PYTHONS="python3.12" SERVERS="embedded redis-7.0" choose
	PYTHONS="$(PYTHONS)" SERVERS="$(SERVERS)" $(BIN)/python tests/release/matrix.py $(TESTS) $(ARGS)

quick: $(STAMP) ## what to run while you work, in less than a minute: lint, types, layers, fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@PYTHONPATH=tools $(BIN)/python -m house
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(QUICK) $(ARGS)

check: $(STAMP) $(NODE) ## lint, types, layers, the counts of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file pyproject.toml tests/guide/typing_contract.py
	$(BIN)/lint-imports
	@PYTHONPATH=tools $(BIN)/python -m house
	@test ! -x ui/node_modules/.bin/tsc || { echo tsc; ui/node_modules/.bin/tsc --noEmit -p ui && ui/node_modules/.bin/tsc --noEmit -p clients/typescript; }

house: $(STAMP) ## count the faults of the house; ARGS="units" lists them, ARGS=--lower lowers the ceilings
	@PYTHONPATH=tools $(BIN)/python -m house $(ARGS)

format: $(STAMP) ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure against the hand-written floor; PEERS="streaq …" adds peers, ALLOCATOR=tbb installs Intel's tbb first
	$(if $(filter tbb,$(ALLOCATOR)),$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/allocator.txt)
	$(BIN)/python -m bench $(ARGS) $(if $(PEERS),--peers "$(PEERS)")

chaos: $(STAMP) ## a fault campaign with a table at its end; MINUTES=10 TOPOLOGY=single|sentinel|cluster SEED=1, or PEER=rq
ifdef PEER
	PYTHONPATH=.:tests:tests/chaos $(BIN)/python tests/chaos/peer.py --peer $(PEER) --minutes $(MINUTES) --seed $(SEED) $(ARGS)
else
	PYTHONPATH=tests:tests/chaos $(BIN)/python tests/chaos/campaign.py --minutes $(MINUTES) --topology $(TOPOLOGY) --seed $(SEED) \
		--jobs $(JOBS) --faults $(FAULTS) --steps $(STEPS) --durability "$(DURABILITY)" --only "$(ONLY)" $(ARGS)
endif

proofs: $(STAMP) ## schedules and the PostgreSQL bridge: everybody is killed or restarted for SECONDS=60 each, then figures
	QBULL_CHAOS_SECONDS=$(SECONDS) $(BIN)/python -m pytest -s tests/postgres tests/worker/test_ticks.py -k "killed or restarted_in or emptied_in or database_are_restarted"
	QBULL_LONG=yes $(BIN)/python -m pytest -s tests/examples -k other_numbers
	PYTHONPATH=tests:tests/postgres $(BIN)/python tests/postgres/figures.py
	$(BIN)/python tests/ui/million.py

fuzz: $(STAMP) ## made-up requests to every operation of the REST API for MINUTES=10: no 500, no answer over 2 s, bounded memory; SEED=1
	QBULL_FUZZ_SECONDS=$$(( $(MINUTES) * 60 )) QBULL_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -s tests/api/test_contract.py -k schemathesis $(ARGS)

saboteurs: $(STAMP) ## break the code in every way of a catalogue and see that the tests catch it; ARGS="train lane"
	$(BIN)/python tests/saboteurs/run.py $(ARGS)

soak: MINUTES = 60
soak: $(STAMP) $(PAGE) ## steady load for MINUTES=60; memory, descriptors, connections and names must stay flat
	PYTHONPATH=tests:tests/soak $(BIN)/python tests/soak/soak.py --minutes $(MINUTES) $(ARGS)

$(TOOLS): $(STAMP) requirements/tools.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.txt
	@touch $(TOOLS)

diagrams: $(STAMP) ## draw the diagrams of the documentation from docs/diagrams
	@PYTHONPATH=tools $(BIN)/python -m diagrams

manifests: $(STAMP) ## render deploy/kubernetes from the Helm chart; needs Helm, or Debian's Go with Sprig
	@PYTHONPATH=tools $(BIN)/python -m manifests

docs: $(TOOLS) ## build the site into build/site, links checked
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/site/make_site.py

site: $(TOOLS) ## build main and the newest releases side by side into build/published, with a version picker
	$(BIN)/python docs/site/versions.py

dist: $(TOOLS) $(PAGE) ## build the wheel and the source distribution twice, compare, and run each in an empty environment without Node
	@rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	@rm -rf build/again $(PAGE)
	$(BIN)/python -m hatchling build -d build/again
	@for file in dist/qbull-*; do cmp "$$file" "build/again/$${file#dist/}" || exit 1; done; echo "two builds, equal bytes"
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/release/empty.py

audit: ## ask the OSV database for known faults of everything that is locked; needs a network
	@$(PYTHON) requirements/audit.py

sbom: ## write what is in it, with hashes, to dist/qbull.cdx.json (CycloneDX)
	@$(PYTHON) requirements/sbom.py

pin: ## renew the digests of the images in deploy/ from the registry; needs a network
	@$(PYTHON) requirements/images.py

lock: ## renew the lock files from pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) $(EXTRAS) --group dev pyproject.toml requirements/build.in -o requirements/dev.txt
	$(COMPILE) $(EXTRAS) pyproject.toml -o requirements/run.txt
	$(COMPILE) --extra allocator -c requirements/run.txt pyproject.toml -o requirements/allocator.txt
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) --group docs --group release -c requirements/dev.txt -o requirements/tools.txt

clean: ## remove what the other targets made
	rm -rf $(VENV) .qbull bench/out.json build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis ui/node_modules tests/node/node_modules src/qbull/ui
