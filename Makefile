# Everything a person or a CI needs. `make run` and `make test` are the two that matter.
#
#   make run                                 the default experiment, from a fresh clone to the report
#   make run CONFIG=config/presets/ci.yaml   another experiment
#   make run MODEL=timm:vit_small_patch16_224.augreg_in21k   your model next to the zoo's, in my-run.yaml
#   make run ARGS="--dry-run"                any further arguments of snakemake
#   make test                                the test suite
#
# Variables: PYTHON (3.11 or later), VENV (.venv), CONFIG, ARGS, TESTS, JOBS,
# TORCH_INDEX (index of torch builds; empty: none; unset: chosen by what the machine is).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
JOBS ?= logical
TESTS ?= tests
CONFIG ?=
MODEL ?=
ifneq ($(MODEL),)
CONFIG := $(or $(CONFIG),my-run.yaml)
endif
ARGS ?=
REFERENCE := resources/reference/binding_information.csv
CONFIGFILE := $(if $(CONFIG),--configfile=$(CONFIG))

.PHONY: help setup run zoo impostors test test-whole test-presets test-cluster chaos check-models rehearse lint lint-ruff lint-format lint-types lint-snakefmt
.PHONY: lint-snakemake format lock docs docs-serve check-reference write-reference snakemake-report benchmark clean

help:
	@echo "make run       the default experiment: tables, figures and results/report.html"
	@echo "make test      the test suite"
	@echo "More (zoo, impostors, test-whole, test-presets, chaos, check-models, rehearse, lint, format, lock, docs, check-reference, snakemake-report, benchmark, clean):"
	@echo "docs/development.md"

# The environment: made from requirements.lock, and brought up to date when that changes. An
# interrupted set-up has no stamp and starts over, as after a move of the clone or of its Python.
STAMP := $(VENV)/.stamp
LOG := $(VENV)/install.log
HERE := $(CURDIR) $(VENV)
MADE := $(shell [ -x "$(BIN)/python" ] && cat "$(STAMP)" 2>/dev/null)
ifneq ($(MADE),$(HERE))
.PHONY: $(STAMP)
endif
PIP := "$(BIN)/python" -I -m pip --disable-pip-version-check --no-input
# pip would compile 17,000 files, one at a time; what is imported, a small part, compiles itself.
INSTALL := install --no-compile
unexport PIP_USER
# Images of containers often set it. Then every job of a run would compile torch's modules again.
unexport PYTHONDONTWRITEBYTECODE

# On Linux, PyPI's torch brings 2.8 GB of CUDA. Without an NVIDIA device PyTorch's index of CPU
# builds is added, unless pip's own settings (find-links) offer a wheel, or the index does not answer.
CPU_INDEX := https://download.pytorch.org/whl/cpu
NVIDIA := $(shell command -v nvidia-smi || ls -d /proc/driver/nvidia 2>/dev/null)
FIND_INDEX := $(if $(NVIDIA)$(filter-out undefined,$(origin TORCH_INDEX)),,$(filter \
	Linux,$(shell uname)))
OFFERED := $(PIP) --retries 0 --timeout 10 install --quiet --dry-run --no-deps --no-index \
	"$$(grep -o '^torch==[^ ;]*' requirements.lock)" >/dev/null 2>&1
ANSWERS := "$(BIN)/python" -I -c 'import urllib.request; \
	urllib.request.urlopen("$(CPU_INDEX)/torch/", timeout=10)' 2>/dev/null

# One `make` at a time, where there is flock; a second one waits, and then finds it made.
FLOCK := $(shell command -v flock)
setup:
	@$(if $(FLOCK),flock --nonblock "$(CURDIR)" true || echo "Waiting for another make's set-up."; \
	flock "$(CURDIR)") $(MAKE) --silent "$(STAMP)"

$(STAMP): requirements.lock requirements.hashes pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "error: $(if $(PYTHON),$(PYTHON) is not,there is no) Python 3.11 or later" >&2; \
		echo "  remedy: install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@[ ! -e "$(VENV)" ] || [ -e "$(VENV)/pyvenv.cfg" ] || { \
		echo "error: $(VENV) exists and is no virtual environment" >&2; \
		echo "  remedy: move it away, or name another folder: make VENV=<folder> ..." >&2; exit 1; }
ifneq ($(MADE),$(HERE))
	@[ "$(VENV)" = .venv ] || [ ! -e "$(VENV)" ] || [ "$$(cat "$(VENV)/.clone" 2>/dev/null)" = "$(CURDIR)" ] || { \
		echo "error: $(VENV) is an environment that this clone has not made" >&2; \
		echo "  remedy: remove it, or name another folder: make VENV=<folder> ..." >&2; exit 1; }
	rm -rf "$(VENV)"
	"$(PYTHON)" -m venv "$(VENV)"
	@echo "$(CURDIR)" >"$(VENV)/.clone"
endif
	@rm -f "$@"
	@echo "Installing requirements.lock into $(VENV); the first time it takes minutes."
	@index="$(TORCH_INDEX)"; if [ -n "$(FIND_INDEX)" ] && ! $(OFFERED); then \
		if $(ANSWERS); then index="$(CPU_INDEX)"; else \
		echo "$(CPU_INDEX) does not answer: PyPI's torch is taken, 2.8 GB larger."; fi; fi; \
	{ $(PIP) $(INSTALL) --no-deps --require-hashes -r requirements.hashes && \
		$(PIP) $(INSTALL) $${index:+--extra-index-url "$$index"} -r requirements.lock && \
		$(PIP) $(INSTALL) --no-deps --no-build-isolation -e .; } >"$(LOG)" 2>&1 || \
		{ tail -n 20 "$(LOG)" >&2; echo "error: pip stopped, see $(LOG)" >&2; exit 1; }
	@echo "$(HERE)" >"$@"
	@echo "Environment ready: $(VENV)"

# Continues after a killed run, and refuses to start beside a live one.
run: setup
	@$(if $(MODEL),"$(BIN)/python" -m bindscope.cli new $(CONFIG) --model $(MODEL))
	@"$(BIN)/python" -m bindscope.commands.run $(CONFIGFILE) $(ARGS)

# Hours of a core, and less on a GPU; one that is interrupted goes on.
zoo: setup
	@"$(BIN)/python" -m bindscope.commands.run $(ARGS) --configfile config/presets/zoo.yaml
	@"$(BIN)/python" -m bindscope.cli zoo

# Each claim of the report on planted representations, over many seeds: minutes.
impostors: setup
	@"$(BIN)/python" tests/impostors/impostors.py $(ARGS)

SUITE := "$(BIN)/python" -m pytest -n $(JOBS) --maxprocesses 8 --dist loadscope --no-loadscope-reorder
test: setup
	$(SUITE) $(TESTS)

# The whole system under more faults, changes and sources than those that stand for them in `test`.
test-whole: setup
	$(SUITE) -m whole $(TESTS)

# Every small preset with few scenes and steps: that each one runs; its numbers mean nothing.
test-presets: setup
	"$(BIN)/python" -m pytest -n $(JOBS) --maxprocesses 8 --dist worksteal -m presets tests/workflow

# Every large preset as it stands, with few scenes and steps, on stand-ins for weights and releases:
#   make rehearse PRESET="same_object natural" DEVICE=cuda
# Writes resources/reference/rehearsals.csv.
PRESET ?=
DEVICE ?= cpu
rehearse: setup
	PYTHONPATH=src "$(BIN)/python" tests/rehearsals/rehearse.py --device $(DEVICE) --table $(PRESET)

# A Slurm of one node on this machine; its programs come from Debian's packages (root only). The
# executor plugin is put beside the environment's packages, so that other runs do not load it.
CLUSTER := $(abspath $(VENV))/cluster
test-cluster: setup
	@{ command -v slurmctld && command -v munged; } >/dev/null || [ "$$(id -u)" != 0 ] || { apt-get update && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge; }
	"$(BIN)/uv" --no-config pip install --quiet --python "$(BIN)/python" --target "$(CLUSTER)" --no-deps \
		--group cluster
	PYTHONPATH="$(CLUSTER)" "$(BIN)/python" -m pytest tests/cluster

# Faults of files, runs and disks, counted by how they end: about 16 seconds of a core a round.
ROUNDS ?= 100
chaos: setup
	"$(BIN)/python" tests/chaos/chaos.py --rounds $(ROUNDS) $(ARGS)

# Every name of timm's plain transformers, families of transformers, and modules that are refused,
# against independent hooks, with tiny random weights: minutes.
check-models: setup
	CHECK_MODELS=all "$(BIN)/python" -m pytest -q tests/models/test_sweep.py \
		tests/models/test_adapters_hf.py tests/models/test_hooked.py $(ARGS)

lint: lint-ruff lint-format lint-types lint-snakefmt lint-snakemake

lint-ruff: setup
	"$(BIN)/ruff" check .

lint-format: setup
	"$(BIN)/ruff" format --check .

lint-types: setup
	"$(BIN)/mypy"

lint-snakefmt: setup
	"$(BIN)/snakefmt" --check Snakefile workflow

lint-snakemake: setup
	"$(BIN)/snakemake" --lint

format: setup
	"$(BIN)/ruff" check --fix .
	"$(BIN)/ruff" format .
	"$(BIN)/snakefmt" Snakefile workflow

# Full pins of everything, tools included, and beside them the hashes of what has one build only. Keeps the pins that still fit; `make lock ARGS=--upgrade`
# moves them. No machine's pip settings may leak into it.
lock: setup
	PIP_FIND_LINKS= PIP_CONFIG_FILE=/dev/null \
		"$(BIN)/uv" pip compile --quiet $(ARGS) pyproject.toml -o requirements.lock
	PIP_FIND_LINKS= PIP_CONFIG_FILE=/dev/null \
		"$(BIN)/uv" --no-config pip compile --quiet --no-deps --generate-hashes --no-annotate \
		--python-version 3.11 --python-platform x86_64-unknown-linux-gnu \
		--custom-compile-command "make lock" --no-emit-package torch --no-emit-package torchvision \
		requirements.lock -o requirements.hashes

# config/README.md and config/schema.json from the configuration models, then the site in build/site.
docs: setup
	"$(BIN)/python" -m bindscope.commands.documentation
	NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build --strict --quiet --site-dir build/site
	@echo "build/site/index.html"

docs-serve: setup
	NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" serve

# The default run's table against the committed one: 0.02 bits across CPU types.
check-reference: setup
	"$(BIN)/python" -m bindscope.tables.compare \
		results/tables/binding_information.parquet $(REFERENCE)

# Only with a commit message that says why the numbers changed.
write-reference: setup
	"$(BIN)/python" -m bindscope.tables.compare --write \
		results/tables/binding_information.parquet $(REFERENCE)

# Snakemake's own archive of the last run: provenance, times, code.
snakemake-report: setup
	"$(BIN)/snakemake" --report results/snakemake-report.html $(CONFIGFILE) $(ARGS)
	@echo "results/snakemake-report.html"

# All benchmarks, or those that ARGS names: make benchmark ARGS="--size ci"
benchmark: setup
	"$(BIN)/python" benchmarks/run.py $(ARGS)

# Results, Snakemake's records of them and caches, unless a run is at work; the environment stays.
clean:
	@[ ! -x "$(BIN)/python" ] || "$(BIN)/python" -m bindscope.commands.run --check
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis
