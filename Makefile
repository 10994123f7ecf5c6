# One environment in .venv serves every target. Options:
#   PYTHON=python3.12 (makes .venv)   CUDA=cu12 (a torch built for CUDA 12)   ARGS="key=value ..." (make train)
#   WORKERS=n and DATA_ROOT=folder (make test: real data sets, one folder each)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
WORKERS ?= 2
GPU_WORKERS ?= 10
# on a machine with an NVIDIA device the compiler of CUDA kernels comes along
CUDA ?= $(if $(wildcard /dev/nvidia0),cu13)
export VIRTUAL_ENV := $(CURDIR)/.venv
export PATH := $(VIRTUAL_ENV)/bin:$(PATH)
READY := .venv/ready
PYTEST := python -m pytest -q -n $(WORKERS) --dist worksteal

.PHONY: help train test beside system lock lint format type imports test-cpu test-gpu \
        test-interpret test-wheel coverage site dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

train: $(READY) ## set everything up and train MinkUNet on SemanticKITTI (simulated without the real set)
	python train.py model=minkunet dataset=kitti $(ARGS)

test: system $(READY)-dev ## set everything up and run all checks and tests
	$(MAKE) --no-print-directory lint imports
	+$(MAKE) --no-print-directory -j2 test-cpu beside
	@echo "all checks passed"

# at low priority: they take the time in which tests wait, and both cores when test-cpu is done
beside:
	+nice -n 10 $(MAKE) --no-print-directory --output-sync=line type site test-wheel test-interpret

# --- the environment: what uv.lock names, by uv; torch by pip, which finds builds for a CPU ---

.venv/bin/python:
	if command -v uv >/dev/null; then uv venv --quiet --seed --python $(PYTHON) .venv; \
	else $(PYTHON) -m venv .venv && (pip install --quiet uv || true); fi

install: $(READY) ## environment for training and use
install-dev: $(READY)-dev ## environment with test tools

$(READY): uv.lock | .venv/bin/python
	.ci/install $(CUDA)
	@touch $@

$(READY)-dev: uv.lock | .venv/bin/python
	.ci/install dev $(or $(CUDA),cu13)
	@touch $@ $(READY)

lock: | .venv/bin/python ## resolve pyproject.toml again to uv.lock
	uv lock --upgrade

system: ## Debian packages that the tests need: installed by root where missing, else named
	@.ci/system

# --- checks ---

lint: $(READY)-dev ## style: ruff check and format
	ruff check .
	ruff format --check .

format: $(READY)-dev ## rewrite the sources in the house style
	ruff check --fix .
	ruff format .

type: $(READY)-dev ## types: mypy, strict for the core
	mypy

imports: $(READY)-dev ## the import contract of docs/architecture.md
	lint-imports --no-cache

# tests/test_wheel.py has a target of its own: it builds and installs
test-cpu: $(READY)-dev ## tests in WORKERS processes (GPU tests skip where there is none)
	$(PYTEST) --durations 10 --ignore tests/test_wheel.py --ignore tests/kernels/triton \
	  $(if $(DATA_ROOT),--data-root $(DATA_ROOT))

# Triton reads TRITON_INTERPRET when it is imported, so these tests have a process of their own
test-interpret: $(READY)-dev ## Triton kernels on the CPU, by Triton's interpreter
	TRITON_INTERPRET=1 $(PYTEST) tests/kernels/triton

test-gpu: $(READY)-dev ## the tests that need a GPU, in GPU_WORKERS processes
	$(PYTEST) -n $(GPU_WORKERS) -m "gpu or multigpu" --durations 10 --ignore tests/test_wheel.py

test-wheel: $(READY)-dev ## build the wheel and use it in an empty environment elsewhere
	python -m pytest -q tests/test_wheel.py

coverage: $(READY)-dev ## lines and branches of pcnn that the tests reach
	coverage erase
	-coverage run -m pytest -q -n $(WORKERS) --dist worksteal --ignore tests/test_wheel.py
	coverage combine --quiet
	coverage report --skip-covered --sort=miss | tail -40

site: $(READY)-dev ## build the documentation in build/site, strictly: every link leads somewhere
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --quiet
	! grep -rlE "<(script|img|link)[^>]* (src|href)=.?https?:" build/site --include=*.html

dist: $(READY)-dev ## write sdist and wheel to dist/: the same commit gives the same bytes
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) hatchling build -d dist

clean: ## remove the environment and all caches (data and logs stay)
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
