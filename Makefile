# Two commands are enough: `make run` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN_READY := $(VENV)/.ready-run
SLOW_READY := $(VENV)/.ready-slow
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
FUZZ_VENV := .venv-fuzz
FUZZ_READY := $(FUZZ_VENV)/.ready
MPICH_VENV := .venv-mpich
MPICH_READY := $(MPICH_VENV)/.ready
SITE_VENV := .venv-site
SITE_READY := $(SITE_VENV)/.ready
DIST_VENV := .venv-dist
DIST_READY := $(DIST_VENV)/.ready

# compiled modules are kept, whatever the shell says: without them torch takes three times as long to import,
# and the tests start hundreds of processes that import it
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test lint types imports browser hosts gate containers pytest test-slow test-deploy fuzz bench docs results site dist format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup: $(READY) ## make .venv and install everything with the pinned versions

# heroes with some extras in .venv; what is imported is compiled then, which is a small part of torch
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "heroes needs Python 3.11 or newer; say make PYTHON=python3.11"; exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(1)]'
	@touch $(RUN_READY)
endef

$(RUN_READY): pyproject.toml constraints.txt
	$(call install,report)

$(READY): pyproject.toml constraints.txt
	$(call install,dev)
	@touch $(READY)

$(SLOW_READY): $(READY)
	@echo "adding MLflow, Weights & Biases and Jupyter's kernel to $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev-slow]'
	@touch $(SLOW_READY)

run: $(RUN_READY) ## train a Heroes federation on the bundled digits
	@$(BIN)/heroes run digits --report

test: lint ## lint, type-check, check the import rules, run the tests
	@$(MAKE) --no-print-directory -j 3 types imports pytest  # beside each other: the checks keep one core busy

lint: setup ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup ## mypy --strict
	@$(BIN)/mypy

imports: setup ## the import rules
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log 2>&1 || { cat $(VENV)/imports.log; exit 1; }
	@tail -n 1 $(VENV)/imports.log

browser: ## Chromium, in which the tests open the report page
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] || { echo "the tests need Chromium: as root say apt-get install -y chromium"; exit 1; }; \
		echo "installing chromium"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; }

pytest: setup browser ## the tests alone
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow and not deploy"  # three on two cores: many tests wait for processes

test-slow: setup $(SLOW_READY) ## the tests that take long
	@$(BIN)/python -m pytest -n 2 -m slow

test-deploy: setup hosts gate containers $(MPICH_READY) ## deployed federations: TLS, node keys, machines that die, cut links
	@$(BIN)/python -m pytest -m deploy

hosts: ## iproute2, by which the tests make hosts with addresses of their own
	@command -v ip > /dev/null || { [ "$$(id -u)" = 0 ] || { echo "the tests need iproute2: as root say apt-get install -y iproute2"; exit 1; }; \
		echo "installing iproute2"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iproute2 > /dev/null; }

gate: ## nginx, which the tests put before a SuperLink
	@command -v nginx > /dev/null || { [ "$$(id -u)" = 0 ] || { echo "the tests need nginx: as root say apt-get install -y nginx-light"; exit 1; }; \
		echo "installing nginx"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nginx-light > /dev/null; }

containers: ## Docker and a Debian to build images from; without them, or without root, that test is skipped
	@{ command -v dockerd && command -v docker-compose && command -v debootstrap; } > /dev/null || [ "$$(id -u)" != 0 ] || { \
		echo "installing docker"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker.io docker-compose debootstrap > /dev/null; }

$(MPICH_READY): constraints.txt
	@echo "setting up $(MPICH_VENV)"
	@$(PYTHON) -m venv $(MPICH_VENV)
	@$(MPICH_VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt mpich
	@touch $(MPICH_READY)

fuzz: $(FUZZ_READY) ## fuzz the readers of files by atheris, FUZZ_RUNS=10000 inputs each
	@FUZZ_RUNS=$(or $(FUZZ_RUNS),10000) $(FUZZ_VENV)/bin/python tools/fuzz.py $(FUZZ)

$(FUZZ_READY): pyproject.toml constraints.txt tools/fuzz-requirements.txt
	@echo "setting up $(FUZZ_VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(FUZZ_VENV)
	@$(FUZZ_VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -r tools/fuzz-requirements.txt
	@touch $(FUZZ_READY)

bench: $(BENCH_READY) ## measure speed beside other tools; BENCH=limit measures one thing (see benchmarks/)
	@$(BENCH_VENV)/bin/python -m benchmarks $(BENCH)

$(BENCH_READY): pyproject.toml constraints.txt benchmarks/requirements.txt
	@echo "setting up $(BENCH_VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	@touch $(BENCH_READY)

docs: setup ## write the pages that are made from the code
	@$(BIN)/python tools/config_page.py > docs/config.md
	@$(BIN)/python tools/cite_page.py > docs/cite.md

site: $(SITE_READY) ## build the documentation site into build/site, from docs/ and the docstrings; needs no network
	@$(SITE_VENV)/bin/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

$(SITE_READY): pyproject.toml constraints.txt tools/site-requirements.txt
	@echo "setting up $(SITE_VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(SITE_VENV)
	@$(SITE_VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -r tools/site-requirements.txt
	@touch $(SITE_READY)

dist: $(DIST_READY) ## build wheel and sdist, check them, and use the wheel in an empty environment
	@$(DIST_VENV)/bin/python tools/dist.py $(DIST_VENV)/empty

$(DIST_READY): tools/dist-requirements.txt
	@echo "setting up $(DIST_VENV)"
	@$(PYTHON) -m venv $(DIST_VENV)
	@$(DIST_VENV)/bin/pip install --quiet --disable-pip-version-check -r tools/dist-requirements.txt
	@touch $(DIST_READY)

results: setup ## write the pages and pictures that are made from results/
	@$(BIN)/heroes reproduce page --out .

format: setup ## lay the code out
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean: ## remove what make made
	rm -rf $(VENV) $(BENCH_VENV) $(FUZZ_VENV) $(MPICH_VENV) $(SITE_VENV) $(DIST_VENV) .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/*.egg-info
