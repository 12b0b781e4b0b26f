# Every target uses .venv, which `make setup` makes from constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: setup demo test test-long check format bench-append bench-read bench-acks bench-spark clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Holdfast needs Python 3.11 or newer; this is %s. Name one with: make PYTHON=python3.11 ..." % sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[spark,delta,test,check,bench]'
	@touch $@

demo: setup
	$(BIN)/holdfast demo --seconds 20

check: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

test: setup
	$(BIN)/pytest -n 2 --dist worksteal

test-long: setup
	$(BIN)/pytest -n 2 --dist worksteal -m "long or not long" --timeout 3600

bench-append: setup
	$(BIN)/python bench/append.py

bench-read: setup
	$(BIN)/python bench/read.py

bench-acks: setup
	$(BIN)/python bench/acks.py

bench-spark: setup
	$(BIN)/python bench/on_spark.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
