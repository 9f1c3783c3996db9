# Everything a fresh machine needs: Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV := .venv
EVO := $(VENV)/bin/evo
BUDGET ?= 60s
OPERATORS ?= softmax matrix_mul
# Three processes a core of a small machine: beside other work they get a fair share of it, and cost seconds on an idle one.
# Of the ways to share tests out only `worksteal` and `load` come to an end when a process of pytest dies.
PYTEST_ARGS ?= --numprocesses 6 --dist worksteal
# Tests start hundreds of Python processes, which are to find their byte code.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: search test test-all lint clean

search: $(VENV)/.installed
	$(EVO) run $(OPERATORS) --target cpu --budget $(BUDGET)

test: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-all: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest --slow -o faulthandler_timeout=1800 $(PYTEST_ARGS)

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; try: make PYTHON=python3.12 ..."; exit 1; }
	@command -v g++ >/dev/null || { echo "g++ is missing; install it first (Debian, Ubuntu: apt-get install g++)"; exit 1; }
	@echo "Installing into $(VENV), which takes some minutes."
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
