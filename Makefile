# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
# Each installs what it needs (scripts/setup) and builds under build/; nothing else is touched.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_REPEATS ?= 20
DEMO_MODEL ?= tests/data/golden/small-bf16

# Compiled objects are shared between checkouts: ccache sees paths relative to this folder.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CTEST_PARALLEL_LEVEL := $(JOBS)

BATON := build/release/bin/baton
# $(call configure,PRESET,OPTIONS): by Ninja where it is installed; decided when the recipe runs, since scripts/setup may just have installed it.
configure = if command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi; cmake --preset $(1) $(2) >build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }

.PHONY: help demo serve install build test docs browser lint format tidy fuzz storm soak bench asan tsan cuda clean

help:
	@echo 'make demo    install what is missing, build, generate tokens from the small checkpoint in tests/data, serve it and chat with it'
	@echo 'make serve   the same server, left running (DEMO_MODEL=folder, PORT=8000)'
	@echo 'make test    install what is missing, build, lint, and run every test'
	@echo 'make install  the program, its library and documentation into PREFIX=$(PREFIX)'
	@echo 'make build   the release build only, in build/release'
	@echo 'make docs    write the pages of settings and metrics and the dashboard anew, from the tables in the program'
	@echo 'make browser the web page in Chromium, which is installed if it is missing (large)'
	@echo 'make lint    layers, sizes, names, words, formatting; make format applies the formatting'
	@echo 'make asan    build and test with the address and undefined-behaviour sanitizers; make tsan with the thread sanitizer'
	@echo '             (TARGETS=... builds only these, TESTS=regex runs only these)'
	@echo 'make cuda    build with the CUDA backend (needs nvcc)'
	@echo 'make fuzz    every fuzzer for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make storm   the whole server, of the thread sanitizer, under hundreds of clients of every kind (STORM_OPTIONS="--seconds 300")'
	@echo 'make soak    every test SOAK_REPEATS=$(SOAK_REPEATS) times, the large forms of some, ten million simulated requests, ten minutes of storm and of each fuzzer; for a free evening'
	@echo 'make bench   speed of the CPU backend beside the floor of this machine'
	@echo 'make tidy    clang-tidy, slow'
	@echo 'make clean   remove build/'

demo: | build_folder
	@scripts/setup build clients
	@# Only the program is built: a folder that is not configured yet is configured without tests.
	@if [ ! -f build/release/CMakeCache.txt ]; then $(call configure,release,-DBATON_TESTS=OFF); fi
	@cmake --build build/release --target baton
	@echo; echo '$$ baton inspect $(DEMO_MODEL)'
	@$(BATON) inspect $(DEMO_MODEL)
	@echo; echo '$$ baton generate --model $(DEMO_MODEL) --prompt-ids 1,2,3,4,5 --max-tokens 32'
	@$(BATON) generate --model $(DEMO_MODEL) --prompt-ids 1,2,3,4,5 --max-tokens 32
	@scripts/demo-chat $(DEMO_MODEL)

serve: | build_folder
	@scripts/setup build
	@if [ ! -f build/release/CMakeCache.txt ]; then $(call configure,release,-DBATON_TESTS=OFF); fi
	@cmake --build build/release --target baton
	@scripts/demo-chat $(DEMO_MODEL) --keep

build: | build_folder
	@scripts/setup build test grammar nixl clients
	@$(call configure,release,-DBATON_TESTS=ON)
	@cmake --build build/release

test: | build_folder
	@scripts/setup build test grammar nixl clients
	@scripts/lint
	@$(call configure,release,-DBATON_TESTS=ON)
	@cmake --build build/release
	@ctest --preset release

docs: | build_folder
	@$(BATON) config page >docs/settings.md
	@$(BATON) config metrics >docs/metrics.md
	@$(BATON) config router >docs/router-reference.md
	@python3 deploy/grafana/make_dashboard.py

browser: | build_folder
	@scripts/setup build clients browser
	@$(call configure,release,-DBATON_TESTS=ON)
	@cmake --build build/release --target baton scripted_server
	@build/clients/bin/python tests/server/browser_check.py $(BROWSER_OPTIONS)

lint:
	@scripts/setup test
	@scripts/lint

format:
	@scripts/setup test
	@git ls-files -z '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 -r clang-format -i

tidy: build
	@scripts/setup tidy
	@# clang 14 lacks a name of a processor feature that isa.cc asks for.
	@run-clang-tidy -quiet -j $(JOBS) -p build/release 'src/(?!ops/cpu/isa\.).*(?<!_test)\.cc$$'

asan tsan: | build_folder
	@scripts/setup build test grammar
	@$(call configure,$@)
	@cmake --build build/$@ $(if $(TARGETS),--target $(TARGETS))
	@scripts/without-aslr ctest --preset $@ $(if $(TESTS),--tests-regex '$(TESTS)')

cuda: | build_folder
	@scripts/setup build test
	@$(call configure,cuda)
	@cmake --build build/cuda

fuzz: | build_folder
	@scripts/setup build fuzz grammar
	@$(call configure,fuzz)
	@cmake --build build/fuzz --target fuzzers
	@scripts/fuzz build/fuzz/bin $(FUZZ_SECONDS)

storm: | build_folder
	@scripts/setup build test grammar
	@$(call configure,tsan,-DBATON_TESTS=ON)
	@cmake --build build/tsan --target baton scripted_server
	@export BATON_XGRAMMAR=$(CURDIR)/build/xgrammar BATON_SCRIPTED_SERVER=build/tsan/bin/scripted_server BATON_PROGRAM=build/tsan/bin/baton; \
	  scripts/without-aslr tests/server/storm.py $(STORM_OPTIONS); scripts/without-aslr tests/server/storm.py --real $(STORM_OPTIONS)

soak: build
	@ctest --preset release --repeat until-fail:$(SOAK_REPEATS)
	@$(BATON) simulate --seed $$(date +%s)000 --hours 1500 --coverage
	@BATON_XGRAMMAR=$(CURDIR)/build/xgrammar tests/server/storm.py --seconds 300 --rounds 2
	@BATON_FAULTS=10 BATON_STORM=5000 build/clients/bin/python tests/fleet/faults.py
	@BATON_FAULTS=10 BATON_TRANSFER=nixl build/clients/bin/python tests/fleet/faults.py
	@BATON_PROMPTS=200 build/clients/bin/python tests/fleet/hand_over_test.py
	@BATON_PROMPTS=200 build/release/bin/engine.speculation_matrix_test
	@BATON_DRAWS=100000 build/release/bin/engine.sampled_proposals_test
	@BATON_XGRAMMAR=build/xgrammar build/release/bin/grammar_check --schemas 10000 --tools 3000
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600

bench: build
	@bench/cpu_peers.py --baton $(BATON) --no-transformers $(BENCH_OPTIONS)

install: | build_folder
	@scripts/setup build grammar
	@if [ ! -f build/release/CMakeCache.txt ]; then $(call configure,release,-DBATON_TESTS=OFF); fi
	@cmake --build build/release --target baton
	@cmake --install build/release --prefix $(PREFIX) --strip

clean:
	@rm -rf build

.PHONY: build_folder
build_folder:
	@mkdir -p build
