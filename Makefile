# One environment in .venv serves every target; `make help` lists them.
# Options: PYTHON=python3.12 (makes .venv), ARGS="key=value ..." (make train),
#          CUDA_EXTRA=cu12 (with a torch built for CUDA 12),
#          BUILD=cpu or cuda (make install-locked),
#          DATA_ROOT=folder (make test: real data sets, one folder each), WORKERS=n (make test).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
# resolves in half the time of the pip of Python 3.11, which serves where this one is absent
PIP := 26.3
PY := $(VENV)/bin/python
CPU_INDEX := https://download.pytorch.org/whl/cpu
CUDA_EXTRA ?= cu13
DEV_EXTRAS := dev,$(CUDA_EXTRA)
WORKERS ?= 2
GPU_WORKERS ?= 10
ARGS ?=
DATA_ROOT ?=
FUZZ_SEED ?= 1
FUZZ_SECONDS ?= 3600
# tests start Python many times: what one process has compiled, the next ones read
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help train test beside install install-dev install-locked lock three sbom libraries browser lint format type imports test-cpu test-gpu \
        test-interpret test-wheel coverage bench site docs dist fuzz clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | while IFS= read -r line; do \
	  printf '  make %-15s %s\n' "$${line%%:*}" "$${line##*## }"; done

train: install ## set everything up and run the main job: MinkUNet on SemanticKITTI (simulated streets without the real set)
	$(PY) train.py model=minkunet dataset=kitti $(ARGS)

test: libraries browser install-dev ## set everything up and run all checks and tests
	$(MAKE) --no-print-directory lint imports
	+$(MAKE) --no-print-directory -j2 test-cpu beside
	@echo "all checks passed"

# at low priority: they take the time in which tests wait, and both cores when test-cpu is done
beside:
	+nice -n 10 $(MAKE) --no-print-directory --output-sync=line type site test-wheel test-interpret

install: $(VENV)/installed ## environment for training and use

install-dev: $(VENV)/installed-dev ## environment with test tools and Open3D

# --- set-up: nothing is reinstalled while pyproject.toml and constraints.txt stay as they are ---

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "pcnn needs Python 3.10-3.13, but $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	       "Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments with pip. On Debian and Ubuntu:" \
	       "apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	-$(PY) -m pip install --quiet --disable-pip-version-check pip==$(PIP)

# Without an NVIDIA device, pip is also shown PyTorch's CPU index when it answers within 3 s:
# its builds sort above the CUDA builds of the same version, which are several GB larger.
# With one, the compiler of CUDA kernels comes along; the tests compile them everywhere.
# pip compiles to bytecode in one process; here all cores do it, but for a quarter of the code that
# next to nothing imports. Packages hold templates and files of other versions that are no Python of
# this one, so its exit code says nothing.
define pip_install
@index=""; extras="$(1)"; \
if [ ! -e /dev/nvidia0 ] && ! command -v nvidia-smi >/dev/null 2>&1; then \
  if timeout 3 $(PY) -c 'import urllib.request as r; r.urlopen("$(CPU_INDEX)/torch/", timeout=3)' \
     >/dev/null 2>&1; then index="--extra-index-url $(CPU_INDEX)"; fi; \
else extras="$${extras:-$(CUDA_EXTRA)}"; fi; \
set -x; $(PY) -m pip install --disable-pip-version-check --no-compile $$index -c constraints.txt \
  -e ".$${extras:+[$$extras]}"; \
$(PY) -m compileall -qq -j 0 -x '/(tests?|testing|plotly|dash|debugpy)/' $(VENV)/lib || true
@touch $@
endef

$(VENV)/installed: pyproject.toml constraints.txt | $(PY)
	$(call pip_install,)

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(PY)
	$(call pip_install,$(DEV_EXTRAS))
	@touch $(VENV)/installed

# --- locked: every file by its hash; requirements/README.md says what no hash covers ---

BUILD ?= $(if $(wildcard /dev/nvidia0),cuda,cpu)
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
LOCK_ENV := .venv-lock
LOCK := $(LOCK_ENV)/bin/uv pip compile pyproject.toml -c constraints.txt --universal \
  --python-version 3.10 --extra dev --extra cu13 --generate-hashes \
  --no-annotate --no-config --custom-compile-command "make lock" --quiet

install-locked: | $(PY) ## environment of the lock, file by file with hashes (BUILD=cpu or cuda)
	$(PY) -m pip install --disable-pip-version-check --require-hashes --no-deps \
	  -r requirements/$(BUILD).lock
ifeq ($(BUILD),cpu)
	$(PY) -m pip install --disable-pip-version-check --no-deps --index-url $(CPU_INDEX) \
	  torch==$(TORCH)+cpu
endif
	$(PY) -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(VENV)/installed $(VENV)/installed-dev

$(LOCK_ENV)/bin/uv:
	$(PYTHON) -m venv $(LOCK_ENV)
	$(LOCK_ENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9

lock: $(LOCK_ENV)/bin/uv ## resolve requirements/cuda.lock and requirements/cpu.lock
	$(LOCK) -o requirements/cuda.lock
	$(LOCK) --excludes requirements/not_cpu.txt --no-emit-package torch -o requirements/cpu.lock

three: ## bundle what the viewer takes of three.js (needs node; requirements/three)
	cd requirements/three && npm ci --no-audit --no-fund && node bundle.mjs

sbom: install-dev ## write dist/sbom.json (CycloneDX): the packages of the environment
	$(PYTHON) -m venv $(LOCK_ENV)
	$(LOCK_ENV)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.3.0
	mkdir -p dist
	$(LOCK_ENV)/bin/cyclonedx-py environment --pyproject pyproject.toml -o dist/sbom.json $(PY)

# Open3D's wheel expects these of the system (library:Debian package)
OPEN3D_NEEDS := libusb-1.0.so.0:libusb-1.0-0 libGL.so.1:libgl1 libEGL.so.1:libegl1 libgomp.so.1:libgomp1

libraries: ## system libraries of Open3D: installed where permitted, else named
	@missing=""; \
	for need in $(OPEN3D_NEEDS); do \
	  PATH="$$PATH:/sbin:/usr/sbin" ldconfig -p | grep -F "$${need%%:*}" >/dev/null \
	    || missing="$$missing $${need##*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	root=no; \
	if [ "$$(id -u)" = 0 ]; then root=""; \
	elif sudo -n true 2>/dev/null; then root="sudo -n"; fi; \
	if [ "$$root" = no ] || ! command -v apt-get >/dev/null; then \
	  echo "Open3D needs these Debian packages, which are absent:$$missing" \
	       "(install them to run the tests that use it)" >&2; exit 0; \
	fi; \
	set -x; \
	$$root apt-get update -qq; \
	$$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing

# without one the tests of pages in a browser skip, and say so
browser: ## Chromium, which tests of pages use: installed where permitted
	@if command -v chromium chromium-browser google-chrome >/dev/null; then exit 0; fi; \
	root=no; \
	if [ "$$(id -u)" = 0 ]; then root=""; \
	elif sudo -n true 2>/dev/null; then root="sudo -n"; fi; \
	if [ "$$root" = no ] || ! command -v apt-get >/dev/null; then \
	  echo "no chromium here: the tests of pages in a browser skip" >&2; exit 0; \
	fi; \
	set -x; \
	{ $$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "chromium cannot be installed: the tests of pages in a browser skip" >&2

# --- checks ---

lint: install-dev ## style: ruff check and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: install-dev ## rewrite the sources in the house style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

type: install-dev ## types: mypy, strict for the core
	$(PY) -m mypy

imports: install-dev ## the import contract of docs/architecture.md
	$(VENV)/bin/lint-imports --no-cache

# tests/test_wheel.py has a target of its own: it builds and installs
test-cpu: install-dev ## tests in two processes (GPU tests skip where there is none)
	$(PY) -m pytest -q -n $(WORKERS) --dist worksteal --durations 10 --ignore tests/test_wheel.py \
	  --ignore tests/kernels/triton $(if $(DATA_ROOT),--data-root $(DATA_ROOT))

# Triton reads TRITON_INTERPRET when it is imported, so these tests have a process of their own
test-interpret: install-dev ## Triton kernels on the CPU, by Triton's interpreter
	@if ! ls tests/kernels/triton/test_*.py >/dev/null 2>&1; then echo "no Triton kernels to interpret"; \
	else set -x; \
	  TRITON_INTERPRET=1 $(PY) -m pytest -q -n $(WORKERS) --dist worksteal tests/kernels/triton; fi

coverage: install-dev ## lines and branches of pcnn that the tests reach (WORKERS=n)
	$(PY) -m coverage erase
	-$(PY) -m coverage run -m pytest -q -n $(WORKERS) --dist worksteal --ignore tests/test_wheel.py \
	  --ignore tests/kernels/triton
	-TRITON_INTERPRET=1 $(PY) -m coverage run -m pytest -q -n $(WORKERS) tests/kernels/triton
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --skip-covered --sort=miss | tail -40

# compiled kernels stay on disk: a second run is quicker
test-gpu: install-dev ## the tests that need a GPU, in GPU_WORKERS processes
	$(PY) -m pytest -q -m "gpu or multigpu" -n $(GPU_WORKERS) --dist worksteal --durations 10 \
	  --ignore tests/test_wheel.py

fuzz: install-dev ## damaged files of every kind for an hour (FUZZ_SEED, FUZZ_SECONDS)
	FUZZ_SEED=$(FUZZ_SEED) FUZZ_SECONDS=$(FUZZ_SECONDS) \
	  $(PY) -m pytest -q -s tests/fuzz/test_fuzz.py

test-wheel: install-dev ## build the wheel and use it in an empty environment elsewhere
	$(PY) -m pytest -q tests/test_wheel.py

bench: install ## time a few reference layers on generated scenes
	$(VENV)/bin/pcnn bench layers --engine reference --layers 16:16:3,32:32:3,64:64:3

# nothing is fetched: the site opens from a disk, and search works there
site: install-dev ## build the documentation in build/site, strictly: every link leads somewhere
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	! grep -rlE "<(script|img|link)[^>]* (src|href)=.?https?:" build/site --include=*.html

docs: site ## build the documentation and check it: links, commands, examples
	$(PY) -m pytest -q tests/documentation

dist: install-dev ## write sdist and wheel to dist/: the same commit gives the same bytes
	$(PY) release/distributions.py dist

clean: ## remove the environment and all caches (data and logs stay)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
