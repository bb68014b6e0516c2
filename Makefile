# Headwater. `make` says what there is; ARGS goes to the program: make test ARGS="-n 0 -k broker"
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench fuzz torture mutants

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv, get Java and the JVM libraries; done again only where something changed
	@$(PYTHON) tools/setup.py

demo: setup ## run the reference project from generator to gold
	@$(BIN)/headwater demo $(ARGS)

test: setup ## run the tests, four files at a time (16 GB)
	@$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

check: setup ## format, lint, types and layers, as in CI
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy headwater
	@$(BIN)/lint-imports

bench: setup ## measure throughput and freshness
	@$(BIN)/python -m bench $(ARGS)

fuzz: setup ## compare random projects with Spark and DuckDB: ten minutes, or ARGS="--minutes 60"
	@PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

torture: setup ## run the long tests with real kills, two files at a time: two hours
	@$(BIN)/pytest -m torture -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

mutants: setup ## plant each defect of tests/mutants in a copy, and see whether the simulator or its test finds it
	@$(BIN)/python -m tests.mutants $(ARGS)
