# Everything a person or a CI needs. `make run` and `make test` are the two that matter.
#
#   make run                                 the default experiment, from a fresh clone to the report
#   make run CONFIG=config/presets/ci.yaml   another experiment
#   make run ARGS="--dry-run"                any further arguments of snakemake
#   make test                                the whole test suite
#
# Variables: PYTHON (3.11 or later), VENV (.venv), CONFIG, ARGS, TESTS, JOBS, PRESETS,
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
PRESETS ?=
ARGS ?=
REFERENCE := resources/reference/binding_information.csv
CONFIGFILE := $(if $(CONFIG),--configfile $(CONFIG))

.PHONY: help setup run test test-cluster lint lint-ruff lint-format lint-types lint-snakefmt
.PHONY: lint-snakemake presets-small presets-quick format lock docs check-reference write-reference snakemake-report benchmark clean

help:
	@echo "make run       the default experiment: tables, figures and results/report.html"
	@echo "make test      the whole test suite"
	@echo "More (presets-small, presets-quick, lint, format, lock, docs, check-reference, snakemake-report, benchmark, clean):"
	@echo "docs/development.md"

# The environment: made once from requirements.lock, made anew when that changes.
setup:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "error: $(or $(PYTHON),no python3 on PATH) is not Python 3.11 or later" >&2; \
		echo "  remedy: install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@PYTHONPATH=src "$(PYTHON)" -m bindscope.commands.environment "$(VENV)"

run: setup
	@"$(BIN)/python" -m bindscope.commands.launch $(ARGS) $(CONFIGFILE)

# Every small preset in turn, or those that PRESETS names; results/presets/<name> keeps its figures.
presets-small: setup
	@"$(BIN)/python" -m bindscope.commands.presets $(PRESETS) $(if $(ARGS),-- $(ARGS))

# The same with few scenes and steps: that every one of them runs, in minutes; numbers mean nothing.
presets-quick: setup
	@"$(BIN)/python" -m bindscope.commands.presets --quick $(PRESETS) $(if $(ARGS),-- $(ARGS))

test: setup
	"$(BIN)/python" -m pytest -n $(JOBS) --maxprocesses 8 --dist loadscope --no-loadscope-reorder $(TESTS)

# A Slurm of one node on this machine; its programs come from Debian's packages (root only). The
# executor plugin is put beside the environment's packages, so that other runs do not load it.
CLUSTER := $(abspath $(VENV))/cluster
test-cluster: setup
	@{ command -v slurmctld && command -v munged; } >/dev/null || [ "$$(id -u)" != 0 ] || { apt-get update && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge; }
	"$(BIN)/uv" --no-config pip install --quiet --python "$(BIN)/python" --target "$(CLUSTER)" --no-deps \
		--group cluster
	PYTHONPATH="$(CLUSTER)" "$(BIN)/python" -m pytest tests/cluster

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

# Full pins of everything, tools included. Keeps the pins that still fit; `make lock ARGS=--upgrade`
# moves them. No machine's pip settings may leak into it.
lock: setup
	PIP_FIND_LINKS= PIP_CONFIG_FILE=/dev/null \
		"$(BIN)/uv" pip compile --quiet $(ARGS) pyproject.toml -o requirements.lock

# config/README.md and config/schema.json, from the configuration models.
docs: setup
	"$(BIN)/python" -m bindscope.commands.documentation

# The default run's table against the committed one: 0.02 bits across CPU types. Models that the run
# trains end at other weights there; their measured numbers are not compared, and the output says so.
check-reference: setup
	"$(BIN)/python" -m bindscope.tables.compare --config config/config.yaml \
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

# Results, Snakemake's records of them and caches; the environment stays.
clean:
	@if [ -x "$(BIN)/python" ]; then \
		"$(BIN)/python" -c 'import pathlib; \
		from bindscope.commands.launch import refuse_second; \
		refuse_second(pathlib.Path.cwd())'; fi
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis
