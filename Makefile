# Every verb of calyx-orch's yard; `make help` lists them. On a fresh Debian or Ubuntu `make demo` and `make test` do all
# set-up (tools/bootstrap): packages where root or sudo allows, a virtual environment in .venv, the build.
# Stamps in .venv make a second run quick; what was changed in native/ or agent/src/ is built anew.

VENV := .venv
BIN := $(VENV)/bin
PYTHON_VENV := $(BIN)/python
PIP := $(PYTHON_VENV) -m pip --disable-pip-version-check --quiet
SETUP := $(VENV)/.stamp-setup
BUILT := $(VENV)/.stamp-built
DEV := $(VENV)/.stamp-dev
CMAKE = $(shell [ -x $(BIN)/cmake ] && echo $(BIN)/cmake || echo cmake)
CTEST = $(shell [ -x $(BIN)/ctest ] && echo $(BIN)/ctest || echo ctest)
GENERATOR = $(shell if [ -x $(BIN)/ninja ] || command -v ninja >/dev/null; then echo Ninja; else echo 'Unix Makefiles'; fi)
# What the compiled parts are made of; a changed list of the package's files (new, gone) builds anew as well.
SOURCES := CMakeLists.txt pyproject.toml $(shell find native agent/src -type f 2>/dev/null) $(wildcard agent/calyx_agent/*.py)
FILES := $(VENV)/.stamp-files
C_FILES = $(shell git ls-files '*.c' '*.h')
DEMO_ARGS ?=
FUZZ_SECONDS ?= 20
PYTEST_ARGS ?=

export PATH := $(CURDIR)/$(BIN):$(PATH)
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build dev demo test test-slow test-qemu test-native test-native-tsan test-agent-asan fuzz check format bench agents lab docs clean FORCE

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

$(SETUP): tools/bootstrap
	tools/bootstrap
	@touch $@

$(FILES): FORCE | $(SETUP)
	@find orchestrator agent/calyx_agent dashboards inventories -name '*.py' -o -name '*.yaml' -o -name '*.j2' | sort >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(BUILT): $(SETUP) $(SOURCES) $(FILES)
	$(PIP) install --group build
	$(PIP) install --no-build-isolation --editable . --config-settings=build-dir=build/package
	$(CMAKE) --install build/package --prefix agent >/dev/null  # beside the sources, where an editable install looks
	@touch $@

$(DEV): $(BUILT) pyproject.toml
	$(PIP) install --group dev
	@touch $@

build: $(BUILT) ## set up, then build the package and the agent into .venv

dev: $(DEV) ## build, and the tools of the checks and tests

demo: build ## run a fleet of loopback guests end to end and say where its report lies
	$(BIN)/calyx-orch demo $(DEMO_ARGS)

test: dev test-native ## the everyday tests: C and Python
	$(PYTHON_VENV) -m pytest -m 'not slow and not qemu' $(PYTEST_ARGS)

test-slow: dev ## the tests beyond the everyday ones
	$(PYTHON_VENV) -m pytest -m 'slow and not qemu' $(PYTEST_ARGS)

test-qemu: dev ## two real kernels under QEMU, three minutes; images are kept in $CALYX_LAB, else ~/.cache/calyx-orch-lab
	$(PYTHON_VENV) -m pytest -m qemu $(PYTEST_ARGS)

test-native: $(SETUP) ## the C tests, plain and under ASan and UBSan
	$(CMAKE) -S . -B build/native -G '$(GENERATOR)' -DCMAKE_BUILD_TYPE=Release -DCALYX_TESTS=ON
	$(CMAKE) --build build/native
	$(CTEST) --test-dir build/native --output-on-failure
	$(CMAKE) -S . -B build/native-asan -G '$(GENERATOR)' -DCMAKE_BUILD_TYPE=Debug -DCALYX_TESTS=ON -DCALYX_SANITIZE=address,undefined
	$(CMAKE) --build build/native-asan
	$(CTEST) --test-dir build/native-asan --output-on-failure

# Fixed addresses: the sanitizer of older compilers gives up where the kernel spreads them too far.
test-native-tsan: $(SETUP) ## the C tests under TSan
	$(CMAKE) -S . -B build/native-tsan -G '$(GENERATOR)' -DCMAKE_BUILD_TYPE=Debug -DCALYX_TESTS=ON -DCALYX_AGENT=OFF -DCALYX_SANITIZE=thread
	$(CMAKE) --build build/native-tsan
	setarch --addr-no-randomize $(CTEST) --test-dir build/native-tsan --output-on-failure

test-agent-asan: dev ## the tests of the agent with one under ASan and UBSan
	$(CMAKE) -S . -B build/native-asan -G '$(GENERATOR)' -DCMAKE_BUILD_TYPE=Debug -DCALYX_TESTS=ON -DCALYX_SANITIZE=address,undefined
	$(CMAKE) --build build/native-asan --target calyx-agent
	CALYX_AGENT_BIN=$(CURDIR)/build/native-asan/calyx-agent-$(shell uname -m) $(PYTHON_VENV) -m pytest tests/agent $(PYTEST_ARGS)

fuzz: ## histogram, command lines and jobs against clang's libFuzzer, FUZZ_SECONDS each
	tools/fuzz $(FUZZ_SECONDS)

check: dev ## formatting, lint, types, import directions, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(PYTHON_VENV) tools/unfinished.py
	$(PYTHON_VENV) tools/cli_reference.py --check
	$(PYTHON_VENV) -m pytest tests/unit/test_docs.py

format: dev ## lay out Python and C as the checks want it
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

docs: build ## write the generated pages of docs/ anew
	$(PYTHON_VENV) tools/cli_reference.py
	$(BIN)/calyx-orch schema >docs/inventory.schema.json

bench: build ## the benchmarks, shortened; ratios against peers
	@set -e; for program in $(sort $(wildcard benchmarks/*.py)); do echo "== $$program"; $(PYTHON_VENV) $$program --quick; done

agents: $(SETUP) ## static agents for x86_64 and aarch64 (zig as the C compiler, 100 MB of download)
	$(PIP) install 'ziglang>=0.13'
	tools/agents

lab: dev ## the suites that need root: loop devices, cgroups, throttled disks
	$(PYTHON_VENV) -m pytest -m root $(PYTEST_ARGS)

clean: ## remove what was built; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -f $(BUILT) $(FILES) agent/calyx_agent/bin/calyx-agent-* agent/calyx_agent/_engine*.so
