# Every target sets up what it needs: a virtual environment in .venv and the dependency groups
# of pyproject.toml. A machine needs Python 3.11 or newer and make, nothing else.
#
#   make demo      the main job: brokers, clients and routed workers, through real sockets
#   make pipeline  brokers and nodes record, Spark reports: needs Java 17, sets up 0.85 GB
#   make test      every test, with few seeds, walks and examples: about ten minutes on two cores
#   make test-all  all of it, with the coverage gates, and then with many seeds: half an hour
#   make compiled   a wheel with the broker's hot path compiled by mypyc; needs a C compiler
#   make test-compiled   the tests of what is compiled, against that wheel, installed (EVERY=1: all)
#   make release   sdist, pure and compiled wheel, built twice, compared, installed and tried
#   make amqp      the tests of clients of AMQP, with Proton, which a C compiler builds
#   make peers     the tests with other people's clients and brokers, and a table of who met whom
#   make check     formatter, linter, language, two type checkers, documentation
#   make bench     every benchmark, then targets met and missed (make bench-quick: does it run?)
#   make soak      clients and destinations come, go and die for ten minutes (SOAK="--minutes 60", or --cluster)
#   make hostile   a node and a broker under attack for ten minutes, with honest clients beside
#   make simulate  ten thousand seeded runs over a bad network of pipes, or SIMULATE=--cluster, --zones, --owners, --dispatch, --messages, --circuits, --identities
#   make fuzz      random and mutated input through every decoder (FUZZ="--count 10000000")
#   make format    format the code and apply the linter's safe fixes
#   make pages     write into the pages what they show: code, limits, errors, help
#   make docs      build the documentation into site/ (make serve: with live reload)
#   make clean     remove what was made, the virtual environment too

# The first Python on the path that is new enough; or say make PYTHON=/path/to/python3.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo $$python; exit; fi; done)
endif

VENV := .venv
BIN := $(VENV)/bin
SETUP := tools/environment.py
# A wheel that is there already, for `make test-compiled WHEEL=dist/onward-....whl`.
WHEEL ?=
# Workers of the test run: a number, or auto for one on each core.
JOBS ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo pipeline java test test-all amqp compiled test-compiled release peers check bench bench-quick soak hostile simulate fuzz format pages docs serve clean

help:
	@sed -n '/^#   make/s/^#   //p' Makefile

# One stamp for each dependency group. Setup takes a lock, so make -j cannot write twice.
$(VENV)/.%: pyproject.toml $(SETUP)
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Onward needs Python 3.11 or newer: make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" $(SETUP) $(filter-out base,$*)

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

# Java first: what is set up is large, and of no use without.
java:
	@test -n "$(PYTHON)" || \
		{ echo 'Onward needs Python 3.11 or newer: make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" tools/check_java.py

pipeline: java
	@$(MAKE) --no-print-directory $(VENV)/.pipeline
	$(BIN)/python examples/pipeline_demo.py

# `make test` leaves out what is marked as exhaustive, and tries few of what has a count:
# tests/support/counts.py. To measure coverage takes as long again, and more in each process that a
# test starts: the gates are held where there is time, and many tries are a run without it.
#
# Tests start some hundred processes. Their bytecode is kept, also where the environment says not to
# write any: to compile all imports again takes each of them half a second and more.
KEPT := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/build/bytecode
PYTEST := -m pytest --numprocesses=$(JOBS) --dist=worksteal
RUN := $(KEPT) $(BIN)/python $(PYTEST)
# A test that hangs is one that fails, after faulthandler_timeout: another worker does the others.
CHOSEN := -m "not exhaustive" --override-ini=faulthandler_exit_on_timeout=true

# `make test ALL=1` is `make test-all`.
ifdef ALL
test: test-all
else
test: $(VENV)/.test
	$(RUN) $(CHOSEN)
endif

# Proton is built from its source, in a minute or two, where that can be done. Where not, what needs it
# is skipped, and the gate leaves transports/amqp out and says so.
test-all: $(VENV)/.test
	-@$(MAKE) --no-print-directory $(VENV)/.amqp
	@mkdir -p build
	$(BIN)/coverage erase
	ONWARD_TRIES=measured $(RUN) --cov --cov-branch --cov-report=
	$(BIN)/coverage json --quiet -o build/coverage.json
	$(BIN)/python tools/coverage_gates.py build/coverage.json
	ONWARD_TRIES=counted $(RUN)

amqp: $(VENV)/.amqp
	$(RUN) tests/transports/amqp

compiled: $(VENV)/.check
	$(BIN)/python -m tools.compile $(if $(WHEEL),--wheel $(WHEEL))

# The tests of `make test`, in an environment in which `onward` is the installed wheel: it is on the
# path, and the folders of this checkout are no package `onward`. Unless all are asked for, those are
# left out that run nothing compiled, or nothing that others do not run: of most of protocol/ and the
# simulations of it alone, of what is broken on purpose, of the pipeline, which reads files, of tools,
# pages and benchmarks, of the console in a browser, and of other people's clients, which meet the
# broker in test-all.
COMPILED := build/compiled/venv/bin
TESTS_COMPILED := $(if $(EVERY),,tests/test_compiled.py $(addprefix tests/,actors cli pykka scenarios \
	transports) $(addprefix tests/protocol/,broker metrics rsocket) $(wildcard tests/protocol/test_*.py) \
	$(patsubst %,tests/simulated/test_%.py,circuits dispatchers pipes relays sessions) \
	--ignore=tests/transports/admin/test_console.py -k "not broken_on_purpose")
test-compiled: compiled
	$(COMPILED)/onward --version | grep compiled
	$(KEPT) $(COMPILED)/python $(PYTEST) $(CHOSEN) $(TESTS_COMPILED)

release: $(VENV)/.release
	$(BIN)/python -m tools.release $(RELEASE)

peers: $(VENV)/.test
	-@$(MAKE) --no-print-directory $(VENV)/.amqp
	ONWARD_PEERS=1 $(BIN)/python -m pytest tests/peers --verbose --durations=30 \
		--numprocesses=$(JOBS) --dist=worksteal

check: $(VENV)/.check
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/python tools/check_language.py
	$(BIN)/mypy
	$(BIN)/basedpyright
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

bench-quick: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py --quick

soak: $(VENV)/.bench
	$(BIN)/python benchmarks/soak.py $(SOAK)

hostile: $(VENV)/.bench
	$(BIN)/python benchmarks/hostile.py $(HOSTILE)

simulate: $(VENV)/.test
	$(BIN)/python -m tests.simulated $(SIMULATE)

fuzz: $(VENV)/.test
	@for target in fuzz/[a-z]*.py; do echo "$$target"; $(BIN)/python $$target $(FUZZ) || exit 1; done

format: $(VENV)/.check
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

pages: $(VENV)/.test
	$(BIN)/python -m tools.pages

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) .venv.lock build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache \
		.hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
