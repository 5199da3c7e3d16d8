# Bare `make` prints this list. Each target first installs what it needs into .venv, from the pinned lock files.
# Works with GNU make 3.81 and newer and a POSIX shell.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

# Containers often set it. The tests start many Pythons, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
UV := $(VENV)/bin/uv
STORED := --config-settings=--build-option=--compression=stored
CORE := $(VENV)/.core.stamp
FULL := $(VENV)/.full.stamp
SITE := $(VENV)/.site.stamp
# Another one for another line of Spark (`tests/support/matrix.py`).
ALL := requirements/all.lock

# PYTHON=... names the interpreter to build .venv with; without it the first suitable one is taken.
PYTHONS := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python)
# ensurepip is asked for too: some systems ship Python without it, and then a venv has no pip.
PYTHON_OK := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

CODE := state schemas pipeline jobs benchmarks
# The long ones first: at the end there is something short to do for whoever is done.
LONG_TESTS := $(wildcard tests/property tests/unit/client tests/unit/state tests/unit/storage)
UNIT_TESTS := $(patsubst %/,%,$(sort $(dir $(shell find tests/unit -name 'test_*.py'))))
CORE_TESTS := $(LONG_TESTS) $(filter-out $(LONG_TESTS),$(UNIT_TESTS))
SPARK_TESTS := tests/smoke tests/stream tests/spark
# The machine of CI has two cores. A third process uses them while the other two wait. Of all tests many wait for processes
# and for Spark, so there is one more.
PROCESSES := 3
OF_ALL := 4
# Each file keeps to one process, which may have one session of Spark only, and whose tests may share a world.
BY_FILE := --dist loadfile --no-loadscope-reorder --durations=30

# The same Java that Spark will start: JAVA_HOME first, then PATH.
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
JAVA_OK = v=$$("$(JAVA)" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) && [ "$${v:-0}" -ge 17 ]
JAVA_HELP := Java 17 or newer was not found ($(JAVA)). Install a JDK (Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME.

.PHONY: help
help: ## Print this list
	@echo "delayline: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "PYTHON=... chooses the interpreter for .venv (3.11 or newer)."

# --- environment ---------------------------------------------------------------------------------------------------

# Nothing is compiled beforehand: that takes as long as all the rest, and most modules are never imported.
# Two stamps in one .venv: a change of a lock file installs it again. A .venv whose pip does not run is made again.
$(CORE): requirements/core.lock requirements/uv.lock
	@found=""; if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  for p in $(PYTHONS); do \
	    if "$$p" -c '$(PYTHON_OK)' >/dev/null 2>&1; then found="$$p"; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "No Python 3.11 or newer with venv and pip was found (tried: $(PYTHONS)). Install one (Debian: python3 and python3-venv) or set PYTHON=..." >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	@echo "Installing requirements/core.lock"
	@$(PIP) install --quiet --no-compile --require-hashes -r requirements/uv.lock || true
	$(call install,-r requirements/core.lock)
	@touch $@

# uv takes a quarter of pip's time. It is told of the mirror that pip knows, and takes the certificates of the system. pip
# does it where there is no uv, where uv cannot reach the packages, and where pip may not ask for them (`no-index`).
define install
@told="$$($(PIP) config list)"; \
mirror="$${PIP_INDEX_URL:-$$(echo "$$told" | sed -n "s/^global[.]index-url='\(.*\)'/\1/p")}"; \
case "$$told" in *no-index*) false;; *) \
  env $${mirror:+UV_DEFAULT_INDEX="$$mirror"} $(UV) pip install --quiet --python $(PY) --system-certs --require-hashes $(1);; \
esac || { echo "pip does it, which takes a minute more"; $(PIP) install --quiet --no-compile --use-pep517 --require-hashes $(1); }
endef

# Source packages are built with the setuptools of the core lock, so nothing outside the lock is fetched. One of them is
# Spark, which is half a gigabyte of JARs: to compress them once more would take as long as all the rest of its build.
$(FULL): $(ALL) $(CORE)
	@echo "Installing $(ALL) (Spark is large, the first time may take minutes)"
	$(call install,--no-build-isolation $(STORED) -r $(ALL))
	@touch $@

$(SITE): requirements/site.lock $(FULL)
	@echo "Installing requirements/site.lock"
	$(call install,-r requirements/site.lock)
	@touch $@

.PHONY: lock
lock: $(FULL) ## Write the lock files again after a change of pyproject.toml (UPGRADE=1 takes newer versions)
	$(UV) pip compile pyproject.toml --all-extras -o requirements/all.lock $(LOCK_FLAGS)
	$(UV) pip compile pyproject.toml --extra test --extra lint --extra build -o requirements/core.lock $(LOCK_FLAGS) -c requirements/all.lock
	$(UV) pip compile --group install -o requirements/uv.lock $(LOCK_FLAGS)
	$(UV) pip compile --group site -o requirements/site.lock $(LOCK_FLAGS) -c requirements/all.lock
	for spark in $(OTHER_SPARKS); do echo "pyspark==$$spark" | \
	  $(UV) pip compile - -o requirements/spark-$${spark%.*}.lock $(LOCK_FLAGS); done
	$(PY) -m tests.support.jars lock

# The newest of the other lines, for `make test-matrix`.
OTHER_SPARKS := 4.0.5 4.1.4
# One lock for all systems and Pythons, with hashes and without addresses.
LOCK_FLAGS := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $(if $(UPGRADE),--upgrade)

# --- tests -----------------------------------------------------------------------------------------------------------

# With Java all of them are one run, in a process with a session of Spark and three without (`tests/support/sharing.py`).
.PHONY: test
test: ## Run all tests; without Java 17 the Spark tests are left out
	@if $(JAVA_OK); then $(MAKE) --no-print-directory test-all; \
	else $(MAKE) --no-print-directory test-core && echo "Spark tests left out: $(JAVA_HELP)"; fi

.PHONY: test-all
test-all: compiled $(FULL) jars
	$(PY) -m pytest -n $(OF_ALL) $(BY_FILE) $(SPARK_TESTS) $(CORE_TESTS)

# Each process of the tests compiles the modules that it meets first. While Spark is installed a core has time for that.
.PHONY: compiled
compiled: $(CORE)
	@([ -e $(FULL) ] || { $(PY) -m compileall -q $(CODE); $(COLLECT) $(SPARK_TESTS) $(CORE_TESTS); }) >/dev/null 2>&1 &

# A file whose packages are not installed yet fails here. By then it is compiled, which is all that is wanted.
COLLECT = $(PY) -m pytest -q --collect-only --noconftest -p no:cacheprovider

# Beside the first tests. Who needs them waits; what fails here is done and told then.
.PHONY: jars
jars: $(FULL)
	@$(PY) -m tests.support.jars >/dev/null 2>&1 &

.PHONY: test-core
test-core: $(CORE) ## Run the unit and property tests (no Java, no Spark)
	$(PY) -m pytest -n $(PROCESSES) --dist worksteal --durations=30 $(CORE_TESTS)

.PHONY: test-spark
test-spark: java $(FULL) ## Run the Spark, stream and smoke tests (Java 17 or newer)
	$(PY) -m pytest -n $(PROCESSES) $(BY_FILE) $(SPARK_TESTS)

# The environments of the other lines are made in .matrix, which takes minutes the first time.
.PHONY: test-matrix
test-matrix: java $(FULL) ## Run the Spark, stream and smoke tests on Spark 4.0, 4.1 and 4.2, and move a warehouse between them
	$(PY) -m tests.support.matrix $(ARGS)

.PHONY: soak
soak: java $(FULL) ## Run the long tests: kill -9, parked messages, an outage, the command and the demo, the long property search
	$(PY) -m pytest -s tests/soak
	$(PY) -m pytest -m soak tests/unit tests/smoke tests/stream tests/spark
	HYPOTHESIS_PROFILE=soak $(PY) -m pytest tests/property
	HYPOTHESIS_PROFILE=soak $(PY) -m pytest -m "hypothesis and not soak" tests/unit

.PHONY: check
check: java lint types site test ## What CI runs: lint, types, pages and `make test`; fails without Java

.PHONY: java
java:
	@$(JAVA_OK) || { echo "$(JAVA_HELP)" >&2; exit 1; }

# --- code ------------------------------------------------------------------------------------------------------------

.PHONY: lint
lint: $(CORE) ## Check rules and format with ruff
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

.PHONY: types
types: compiled $(FULL) ## Check types with mypy, strict (installs Spark: its types are needed)
	$(PY) -m mypy $(CODE) tests

.PHONY: format
format: $(CORE) ## Format the code and fix what ruff can fix
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: bench
bench: java $(FULL) ## Run a short version of every benchmark; table, and a report in benchmarks/out
	$(PY) -m benchmarks.everything $(ARGS)

.PHONY: bench-full
bench-full: java $(FULL) ## The full sizes of every benchmark: hours
	$(PY) -m benchmarks.everything --full $(ARGS)

.PHONY: bench-index
bench-index: $(CORE) ## Measure the index beside its baselines (ARGS=--full: 10 million messages)
	$(PY) -m benchmarks.index $(ARGS)

.PHONY: bench-outstanding
bench-outstanding: $(CORE) ## Measure the state of settling: a hundred million outstanding, and holes
	$(PY) -m benchmarks.outstanding $(ARGS)

.PHONY: bench-stages
bench-stages: java $(FULL) ## Measure the stages on Spark beside plain applications (ARGS=--full: the full sizes)
	$(PY) -m benchmarks.stages $(ARGS)

.PHONY: bench-backlog
bench-backlog: java $(FULL) ## Measure what messages that wait cost (ARGS=--full: a hundred million)
	$(PY) -m benchmarks.backlog $(ARGS)

.PHONY: bench-day
bench-day: java $(FULL) ## Measure long steady load with maintenance (ARGS=--full: a day in 288 instants)
	$(PY) -m benchmarks.day $(ARGS)

.PHONY: bench-live
bench-live: java $(FULL) ## Measure lateness, release and idling on the wall clock (ARGS="steady --full": one, full size)
	$(PY) -m benchmarks.live $(ARGS)

.PHONY: docs
docs: $(FULL) ## Write docs/settings.md and the tables of docs/policies.md from the code
	$(PY) -m tests.support.settings_page
	$(PY) -m tests.support.policies_page

# The page of the API is made of the package as it is installed.
.PHONY: site
site: $(SITE) ## Build the pages into build/site, with search; a link that leads nowhere fails
	@rm -rf build/site build/package && $(PY) setup.py -q build --build-base build/package >/dev/null
	@PYTHONPATH=build/package/lib $(PY) -m sphinx -q -W -c docs/site -b html -d build/doctrees docs build/site
	@rm -rf build/package && echo "build/site/index.html"

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# What spark-submit may be given to run.
MAINS := deliver ingest schedule dispatch settle maintain rebuild
DIST := dist/delayline-$(VERSION).zip
PACKAGED := pyproject.toml setup.py README.md $(shell find state schemas pipeline jobs conf -type f -not -path '*/__pycache__/*')

# --- use -------------------------------------------------------------------------------------------------------------

INSTALLED := $(VENV)/.install.stamp

# As a user installs it, and not as a link to the tree: what runs is what is shipped.
$(INSTALLED): $(PACKAGED) $(FULL)
	@rm -rf build && $(PIP) install --quiet --no-deps --no-build-isolation --force-reinstall . && rm -rf build
	@touch $@

.PHONY: install
install: $(INSTALLED) ## Put the command `delayline` into .venv/bin
	@echo "$(VENV)/bin/delayline is ready"

.PHONY: demo
demo: java $(INSTALLED) ## Delayed messages live, then the flights of 2013 replayed (Java 17 or newer)
	$(VENV)/bin/delayline demo

.PHONY: demo-kafka
demo-kafka: java $(FULL) ## Orders in a topic of Kafka, their timeouts in another one 10 s later; starts a broker of its own
	$(PY) -m benchmarks.demo_kafka

.PHONY: clean
clean: ## Remove built files and caches; .venv stays
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# --- packaging -------------------------------------------------------------------------------------------------------

.PHONY: dist
dist: $(DIST) ## Build the wheel, and from it the zip and the mains for spark-submit
# Executors find `delayline` in the zip, and spark-submit starts one of the mains beside it.
$(DIST): $(PACKAGED) $(CORE)
	@rm -rf build $(@D) && $(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir $(@D) . && rm -rf build
	@cd $(@D) && $(abspath $(PY)) -m zipfile -e delayline-$(VERSION)-*.whl unpacked \
	  && $(abspath $(PY)) -m zipfile -c $(@F) unpacked/delayline && mkdir jobs \
	  && mv $(MAINS:%=unpacked/delayline/jobs/%.py) jobs && rm -rf unpacked
	@echo "$@"
