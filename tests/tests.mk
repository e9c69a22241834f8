# tests.mk has what only tests, benchmarks, fuzzing and checks need. The Makefile includes it.

SUITE ?= trixie

# ------------------------------------------------------------------------------------------ files
SUPPORT_MAINS   := tests/support/print_table.c tests/support/run_kernels.c tests/support/load.c \
                   tests/support/forked.c
SUPPORT_OBJECTS := $(patsubst %.c,$(O)/%.o,$(filter-out $(SUPPORT_MAINS),$(wildcard tests/support/*.c)))
IN_EACH_TEST    := $(O)/tests/support/leaks.o $(O)/tests/support/watchdog.o
CHECK_OBJECTS   := $(O)/tests/support/check_kernels.o
UNIT_OBJECTS    := $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/*.c)) $(IN_EACH_TEST)
API_OBJECTS     := $(patsubst %.c,$(O)/%.o,$(wildcard tests/api/*.c tests/notebooks/*.c)) $(IN_EACH_TEST)
BENCHES         := $(patsubst tests/bench/%.c,$(O)/%,$(wildcard tests/bench/bench_*.c))
MEMORY_OBJECTS  := $(patsubst %.c,$(O)/%.o,$(wildcard tests/memory/*.c))
STRESSES        := $(patsubst tests/stress/%.c,$(O)/stress_%,$(wildcard tests/stress/*.c))
FUZZ_TARGETS    := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS         := $(addprefix $(O)/replay_,$(FUZZ_TARGETS))

C_FILES := $(wildcard docker/*/*.c lib/src/*.c lib/src/*/*.c server/*.c server/*/*.c server/*/*/*.c tests/*/*.c tests/bench/*/*.c)
FORMATTED := $(C_FILES) $(wildcard lib/include/*.h lib/src/*.h lib/src/*.inc lib/src/*/*.h lib/src/*/*.inc \
             server/*.h server/*/*.h server/*/*/*.h server/*/*/*.cc tests/*/*.h tests/*/*.inc)
SCRIPTS := $(wildcard docker/*.sh docker/*/*.sh server/*.sh server/*/*.sh server/*/*/*.sh tests/*/*.sh tests/*/*/*.sh) .ci/run

# ------------------------------------------------------------------------------------------ flags
CRITERION_CFLAGS := $(call pkg,cflags,criterion)
BROTLI_CFLAGS    := $(call pkg,cflags,libbrotlidec)
CRITERION_LIBS   := $(call pkg,libs,criterion)
BROTLI_LIBS      := $(call pkg,libs,libbrotlidec)

TEST_FLAGS   := -Itests -UNDEBUG -DTESTS_DIR=\"tests\" $(CRITERION_CFLAGS) $(TLS_CFLAGS) \
                $(CODING_CFLAGS) $(BROTLI_CFLAGS) $(JSON_CFLAGS)
UNIT_FLAGS   := $(TEST_FLAGS) -Ilib/include -Ilib/src -Iserver
BENCH_FLAGS  := $(UNIT_FLAGS) $(HTTP_CFLAGS) $(BLAS_CFLAGS)

$(O)/tests/%.o:       FOLDER_FLAGS = $(TEST_FLAGS)
$(O)/tests/bench/%.o: FOLDER_FLAGS = $(BENCH_FLAGS)
$(foreach folder,unit stress fuzz memory,$(O)/tests/$(folder)/%.o): FOLDER_FLAGS = $(UNIT_FLAGS)
ifeq ($(BUILD),release)
# Most of these files run for less time than it takes to compile them well.
$(foreach folder,unit api notebooks memory,$(O)/tests/$(folder)/%.o): LEVEL = -O1
endif
$(addprefix $(O)/tests/support/,app.o print_table.o drawn.o plans.o reference.o run_kernels.o) $(CHECK_OBJECTS): FOLDER_FLAGS = $(UNIT_FLAGS)

# The tests have stamps of their own. Their flags change when their packages are installed. What `make run` has compiled
# need not be compiled again then.
$(O)/tests/.flags: STAMP = $(BENCH_FLAGS)
$(O)/tests/.files: STAMP = $(LIB_OBJECTS) $(SUPPORT_OBJECTS) $(UNIT_OBJECTS) $(API_OBJECTS) $(MEMORY_OBJECTS)
$(O)/tests/.flags $(O)/tests/.files: tools
	$(write-stamp)

$(O)/tests/%.o: tests/%.c $(O)/.flags $(O)/tests/.flags
	$(compile)

# --------------------------------------------------------------------------------------- programs
# This is an archive, so that a program links only what it calls.
$(O)/libsupport.a: $(SUPPORT_OBJECTS) $(O)/tests/.files
	$(Q)rm -f $@ && $(AR) rcs $@ $(SUPPORT_OBJECTS)

$(O)/unit-tests: $(UNIT_OBJECTS) $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS) $(O)/tests/.files
	$(call link,$(CRITERION_LIBS) $(BROTLI_LIBS) $(SERVER_LIBS))

# The name of forked.o stands before those of libraries, because its functions replace Criterion's.
$(O)/unit-tests-forked: $(O)/tests/support/forked.o $(UNIT_OBJECTS) $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS) $(O)/tests/.files
	$(call link,$(CRITERION_LIBS) $(BROTLI_LIBS) $(SERVER_LIBS))

# The tests of the API take only the table of fields from the server.
$(O)/api-tests: $(API_OBJECTS) $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS) $(O)/tests/.files
	$(call link,$(CRITERION_LIBS) $(BROTLI_LIBS) $(SERVER_LIBS))

$(O)/no-memory: $(MEMORY_OBJECTS) $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS) $(O)/tests/.files
	$(call link,$(BROTLI_LIBS) $(SERVER_LIBS))

$(O)/bench_attention: $(O)/tests/bench/shape.o
$(O)/bench_%: $(O)/tests/bench/bench_%.o $(O)/tests/bench/pool.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	$(call link,$(SERVER_LIBS))

$(O)/echo: $(O)/tests/bench/http/echo.o
	@echo "  LINK  $@"
	$(Q)$(CC) $(OWN_LDFLAGS) $(LDFLAGS) -o $@ $^ $(HTTP_LIBS)

$(O)/stress_%: $(O)/tests/stress/%.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	$(call link,$(SERVER_LIBS))

# A fuzz target is linked twice. replay_* reads files and needs no special compiler; libFuzzer calls fuzz_*.
$(O)/replay_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(O)/tests/fuzz/ask.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	$(call link,$(SERVER_LIBS))

$(O)/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/ask.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	$(call link,-fsanitize=fuzzer $(SERVER_LIBS))

$(O)/print_table: $(O)/tests/support/print_table.o $(O)/libserver.a $(LIB_OBJECTS)
	$(call link,$(SERVER_LIBS))

$(O)/load: $(addprefix $(O)/tests/support/,load.o load_answer.o load_options.o)
	$(call link,-lm)

$(O)/table.json: $(O)/print_table
	$(Q)$< > $@

$(O)/fuzz-seeds: $(O)/tests/fuzz/seeds.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	$(call link,$(SERVER_LIBS))

# run-tests.sh and run.sh look for the seeds of each target here.
$(O)/seeds: $(O)/fuzz-seeds
	$(Q)mkdir -p $(addprefix $@/,$(FUZZ_TARGETS))
	$(Q)$< $(addprefix $@/,request inference safetensors) && touch $@

# run_kernels has only the row kernels and their checks. It is static and needs no BLAS, so that an emulator can run it.
$(O)/run_kernels: $(O)/tests/support/run_kernels.o $(CHECK_OBJECTS) $(filter $(O)/lib/src/kernels/%,$(LIB_OBJECTS))
	@echo "  LINK  $@"
	$(Q)$(CC) -static $(OWN_LDFLAGS) $(LDFLAGS) -o $@ $^ -lm

.PHONY: test-programs quick-programs bench-programs stress-programs
test-programs: $(O)/unit-tests $(O)/api-tests $(O)/no-memory $(REPLAYS) $(DAEMON) $(O)/table.json $(O)/seeds ; @:
quick-programs: $(O)/unit-tests $(O)/api-tests $(DAEMON) ; @:
bench-programs: $(BENCHES) $(DAEMON) ; @:
stress-programs: $(STRESSES) ; @:
# Without this line, make would delete the objects that only pattern rules name as soon as they are linked.
.SECONDARY: $(patsubst %.c,$(O)/%.o,$(wildcard tests/bench/*.c tests/stress/*.c tests/fuzz/*.c tests/support/*.c))

# --------------------------------------------------------------------------- tests and benchmarks
# If there is an npm, Node.js is not installed as a package: it may have come from elsewhere.
NPM = $(shell command -v npm >/dev/null || echo node)

.PHONY: test quick bench bench-http bench-peers
test: ## Install what is missing, build, run the tests
	@docker/packages.sh build test
	$(again) test-programs
	@tests/support/run-tests.sh $(O)

quick: ## Build, and test what differs from main, in seconds: unit tests by folder, and the API (BASE=COMMIT: what differs from it)
	@docker/packages.sh build test
	$(again) quick-programs
	@BASE=$(BASE) tests/support/run-quick.sh $(O)

bench: ## Run every benchmark; with ARGS only the library beside sgemm: ARGS="--seed 7 --only 'd=80'"
	@docker/packages.sh build test
	$(again) bench-programs
	@for bench in $(if $(ARGS),$(O)/bench_attention,$(BENCHES)); do \
	    echo "== $${bench##*/}"; ATTENTIOND_BIN="$(CURDIR)/$(DAEMON)" \
	        BENCH_JSON="$(CURDIR)/build/$${bench##*/}.json" $$bench $(ARGS) || exit 1; done

bench-http: ## Measure over HTTP beside FastAPI, Node.js, KServe (800 MB from PyPI and npm): ARGS="--quick"; ARGS=--capacity measures the daemon alone
	@docker/packages.sh build test python bench $(NPM)
	$(again) all $(O)/echo $(O)/load
	@tests/bench/http/run.sh $(O) $(ARGS)

bench-peers: ## Measure beside PyTorch, onnxruntime, OpenVINO, NumPy (6 GB from PyPI): ARGS="--quick --seed 7"
	@docker/packages.sh build test python
	$(again) $(O)/bench_attention
	@tests/bench/peers/run.sh $(O) $(ARGS)

# ----------------------------------------------------------------------------------------- checks
.PHONY: docs test-conformance test-models search-models search-gradients search-linear search-verdicts test-openapi test-clients test-metrics check-asan check-valgrind check-neon check-hardening check-abi check-clang check-layers check-format house lint format coverage test-container \
        test-arm64 test-reproducible test-deb test-dist test-bundle
docs: ## Make the page /docs from openapi.yaml
	@docker/packages.sh test
	@/usr/bin/python3 server/explorer/docs.py

check-asan: ## Run all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(again) BUILD=asan test

ifneq ($(STRESSES),)
.PHONY: check-tsan run-stresses
check-tsan: ## Run the stress programs under ThreadSanitizer
	@docker/packages.sh build test
	$(again) BUILD=tsan run-stresses
run-stresses: stress-programs
	@for stress in $(STRESSES); do \
	    echo "== $${stress##*/}"; env -u OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS=1 $$stress || exit 1; done
endif

# These targets attack the release daemon. SECONDS_EACH, TIMES and MINUTES make the attack longer. Results that depend on
# the speed of the machine are only printed; with STRICT=yes they can fail.
HOSTILE ?= $(filter-out hostile crowd soak search $(WITHOUT),$(basename $(notdir $(wildcard tests/hostile/*.py))))
export SECONDS_EACH TIMES MINUTES STRICT REQUESTS ROUNDS
.PHONY: test-hostile soak search-costs test-fleet bench-fleet test-kubernetes
test-hostile: ## Attack the daemon, about six minutes: make test-hostile HOSTILE=drain TIMES=200
	@docker/packages.sh build hostile
	$(again) all $(O)/load
	@HOSTILE_BUILD=$(O) tests/hostile/run.sh $(HOSTILE)
soak: ## Run a mixed load for a long time; memory must not grow: make soak MINUTES=600
	@docker/packages.sh build hostile
	$(again) all $(O)/load
	@HOSTILE_BUILD=$(O) tests/hostile/run.sh soak
search-costs: ## Look for requests that cost more than is counted: make search-costs ARGS="--calls 20000 --seed 7"
	@docker/packages.sh build hostile
	$(again) all $(O)/table.json
	@HOSTILE_BUILD=$(O) PYTHONDONTWRITEBYTECODE=1 python3 tests/hostile/search.py $(ARGS)

test-fleet: ## Let replicas behind HAProxy fail under load: no request is lost: make test-fleet REQUESTS=10000
	@docker/packages.sh build fleet
	$(again) all $(O)/load
	@HOSTILE_BUILD=$(O) PYTHONDONTWRITEBYTECODE=1 timeout 900 python3 tests/fleet/faults.py

bench-fleet: ## Measure one, two and three replicas, and simulate a hundred: make bench-fleet ROUNDS=3
	@docker/packages.sh build fleet
	$(again) all $(O)/load
	@HOSTILE_BUILD=$(O) PYTHONDONTWRITEBYTECODE=1 python3 tests/fleet/scale.py
	@HOSTILE_BUILD=$(O) PYTHONDONTWRITEBYTECODE=1 python3 tests/fleet/simulate.py

test-kubernetes: ## Check docker/kubernetes against the daemon and the schemas of its objects (from PyPI and npm)
	@docker/packages.sh build python $(NPM) $$(command -v kubectl >/dev/null || echo kubernetes)
	$(again) all
	@tests/support/venv.sh build/kubernetes tests/fleet/kubernetes.txt
	@build/kubernetes/bin/pip install --quiet --disable-pip-version-check --no-deps kserve==0.21.0
	@test -e build/kubernetes/kubernetes-models-gateway-api-0.5.1.tgz || \
	    npm pack --loglevel=error --pack-destination build/kubernetes @kubernetes-models/gateway-api@0.5.1 >/dev/null
	@build/kubernetes/bin/python tests/fleet/check_manifests.py $(O)/attentiond

check-valgrind: ## Run the unit tests under valgrind
	@docker/packages.sh build test valgrind
	$(again) $(O)/unit-tests-forked
	@tests/support/run-valgrind.sh $(O)

# Fuzzing stops at the first failure. build/fuzz/ holds the input that failed, and new inputs that reach more code.
FUZZ_SECONDS ?= 60
TARGET       ?= $(FUZZ_TARGETS)
.PHONY: fuzz run-fuzz
fuzz: ## Search for inputs that break the code: make fuzz FUZZ_SECONDS=600 TARGET=reader
	@docker/packages.sh build test fuzz
	$(again) BUILD=fuzz CC=clang CXX=clang++ run-fuzz
run-fuzz: $(addprefix $(O)/fuzz_,$(TARGET)) $(O)/table.json $(O)/seeds
	@tests/fuzz/run.sh $(O) $(FUZZ_SECONDS) $(TARGET)

# The emulator is slow, so exp is tried at only one number in TEST_DIVISOR.
check-neon: ## Run the row kernels of 64-bit ARM in an emulator
	@docker/packages.sh build neon
	$(again) O=build/neon CC=aarch64-linux-gnu-gcc build/neon/run_kernels
	@TEST_DIVISOR=20 timeout 300 qemu-aarch64 build/neon/run_kernels scalar neon

test-conformance: ## Run the cases of ONNX, onnxruntime, PyTorch, flash-attention, xformers and flash-linear-attention over HTTP (6 GB from PyPI)
	@docker/packages.sh build python
	$(again) all
	@tests/conformance/run.sh $(O)

test-models: ## Compare stored layers with PyTorch and transformers (6 GB from PyPI): ARGS="Families.test_bert"
	@docker/packages.sh build python
	$(again) all
	@tests/models/run.sh $(O) $(if $(ARGS),test_models.py $(ARGS))

search-gradients: ## Compare the gradients of drawn calls with those of PyTorch: ARGS="--calls 3000 --seed 7"
	@docker/packages.sh build python
	$(again) all
	@tests/models/run.sh $(O) search_gradients.py $(ARGS)

search-linear: ## Compare drawn calls of linear attention with the recurrence: CALLS=20000 SEED=7 (10 minutes)
	@docker/packages.sh build unit
	$(again) $(O)/unit-tests
	@TEST_CALLS=$(or $(CALLS),20000) TEST_SEED=$(or $(SEED),1) $(O)/unit-tests --filter='linear/@(random|long)_*'

search-verdicts: ## Compare right kernels and planted faults with the verdicts on them: CALLS=5000 SEED=7 ARGS=--learn (NumPy from PyPI)
	@docker/packages.sh build python
	$(again) all
	@tests/verdicts/run.sh $(O) --calls $(or $(CALLS),5000) --seed $(or $(SEED),1) $(ARGS)

search-models: ## Search for wrong layers among drawn models of transformers: ARGS="--calls 3000 --seed 7"
	@docker/packages.sh build python
	$(again) all
	@tests/models/run.sh $(O) search_models.py $(or $(ARGS),--calls 3000)

test-openapi: ## Check the daemon against openapi.yaml (Schemathesis, from PyPI): ARGS="-n 1000"
	@docker/packages.sh build python
	$(again) all
	@tests/openapi/run.sh $(O) $(ARGS)

# asked,NAMES: not empty if one of these clients runs. The packages of the other clients are not installed.
asked = $(if $(ARGS),$(filter $(1),$(ARGS)),$(1))
test-clients: ## Try clients: ours, generated, stock (1.4 GB from npm, PyPI, Go, Maven, Debian): ARGS="go generated-go"
	@docker/packages.sh build python $(NPM) \
	    $(if $(call asked,go generated-go),$$(command -v go >/dev/null || echo go)) \
	    $(if $(call asked,java generated-java),$$({ command -v javac && command -v mvn; } >/dev/null || echo java)) \
	    $(if $(call asked,rust),$$(command -v rustc >/dev/null || echo rust)) \
	    $(if $(call asked,torch),$$(test -n "$$TORCH_PYTHON" || echo torch))
	$(again) all
	@tests/clients/run.sh $(O) $(ARGS)

.PHONY: test-shards
test-shards: ## Divide one call among workers of Dask and Ray (400 MB from PyPI, 7 GB of memory): ARGS=262144
	@docker/packages.sh build python shards
	$(again) all
	@tests/fleet/shards.sh $(O) $(ARGS)

test-metrics: ## Let a Prometheus scrape the daemon and evaluate the expressions of the dashboard
	@docker/packages.sh build metrics
	$(again) all
	@tests/support/check-dashboard.py docker/grafana-dashboard.json --daemon $(DAEMON) --prometheus

BROWSER ?= /usr/bin/chromium
export BROWSER
.PHONY: test-browser
test-browser: ## Try the web pages in a browser: make test-browser ARGS=notebooks STRICT=yes BROWSER=PATH
	@docker/packages.sh build $(NPM) $$(test -x "$(BROWSER)" || echo browser)
	$(again) all
	@tests/browser/run.sh $(O) $(ARGS)

check-hardening: ## Check how the daemon is built and linked, and its systemd unit
	@docker/packages.sh build unit
	$(again) $(O)/attentiond
	@tests/support/check-hardening.sh $(O)/attentiond server/attentiond.service.in

check-abi: ## Check that programs for the last release work with this library (abidiff); at a release: ARGS=--write
	@docker/packages.sh build abi
	$(again) $(SHARED)
	@tests/support/check-abi.sh $(SHARED) $(ARGS)

check-clang: ## Compile the daemon and all tests with clang
	@docker/packages.sh build test fuzz
	$(again) O=build/clang CC=clang CXX=clang++ test-programs

check-layers: ## Check which folder includes which headers, and the names of files and functions
	@docker/packages.sh build names
	@tests/support/check-layers.sh

house: ## Show what each file of lib/ and server/ owns
	@tests/support/house.py

check-format: ## Check the format of C, the lengths of its lines, and the shell scripts
	@docker/packages.sh lint
	clang-format --dry-run -Werror $(FORMATTED)
	! LC_ALL=C.UTF-8 grep -nE '^.{101}' $(filter-out lib/src/kernels/%,$(FORMATTED)) # clang-format leaves comments as they are
	shellcheck $(SCRIPTS)

lint: check-format ## Check format, clang-tidy and the scripts
	@docker/packages.sh build test
	$(again) tidy

TIDY := $(addprefix tidy-,$(C_FILES))
.PHONY: tidy $(TIDY)
tidy: $(TIDY)
tidy-server/api/pages/assets.c: $(ASSETS)
tidy-lib/%:    FOLDER_FLAGS = $(LIB_FLAGS)
tidy-server/%: FOLDER_FLAGS = $(SERVER_FLAGS)
tidy-tests/%:  FOLDER_FLAGS = $(BENCH_FLAGS)
tidy-docker/%: FOLDER_FLAGS = -DLOADER='"/loader"' -DLIBRARIES='"/libraries"' -DNAMES='"library"'
# A file that clang-tidy accepted is not read again, unless it, one of its headers, the flags, the rules or clang-tidy changes.
# TIDY_SEEN has an empty file for each accepted one. Its name is the sum of all these.
TIDY_SEEN ?= build/tidy
TIDY_FLAGS = -std=c17 -D_POSIX_C_SOURCE=200809L $(FOLDER_FLAGS)
$(TIDY): tidy-%: %
	@set -e; mkdir -p "$(TIDY_SEEN)"; headers=$$($(CC) -MM $(TIDY_FLAGS) $< | sed 's/^[^ ]*: //; s/\\$$//'); \
	sum=$$({ clang-tidy --version; echo $(TIDY_FLAGS); cat .clang-tidy $$headers; $(CC) -E -C $(TIDY_FLAGS) $<; } | sha256sum); \
	seen="$(TIDY_SEEN)/$${sum%% *}"; \
	if [ -e "$$seen" ]; then touch "$$seen"; exit; fi; \
	echo "  TIDY  $<"; \
	said=$$(clang-tidy --quiet $< -- $(TIDY_FLAGS) 2>&1) || { echo "$$said"; exit 1; }; \
	touch "$$seen"

format: ## Rewrite the sources as .clang-format says
	@docker/packages.sh lint
	clang-format -i $(FORMATTED)

coverage: ## Run all tests with coverage; report in build/coverage/report/
	@docker/packages.sh build test coverage
	$(again) BUILD=coverage test
	@mkdir -p build/coverage/report
	gcovr --root . --filter lib/ --filter server/ --html-details build/coverage/report/index.html \
	    --print-summary build/coverage

test-container: ## Build the image, and test it with a read-only root and without capabilities: make test-container SUITE=bookworm
	@docker/test-container.sh $(SUITE)

test-arm64: SUITE = bookworm
test-arm64: ## Cross-build the image for 64-bit ARM, and test it in an emulator: make test-arm64 SUITE=trixie
	@docker/test-container.sh $(SUITE) arm64

test-reproducible: ## Make the files of the image twice and compare them
	@docker/packages.sh build
	@COMMIT="$(COMMIT)" SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" docker/test-reproducible.sh

test-deb: ## Make the Debian packages; install, start, upgrade and purge them in a bare root with systemd (needs root)
	@SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" docker/test-deb.sh "$(DEB_UPSTREAM)"

test-bundle: wheel ## Run the bundle and the wheel in other systems, as an ordinary user: make test-bundle SUITES=trixie PYTHONS=python3.9
	@docker/bundle/test-bundle.sh $(BUNDLE) build/dist/$(subst -rc.,rc,$(DIST))-py3-none-*_$(firstword $(subst -, ,$(MACHINE))).whl

test-dist: ## Pack a release twice; build, check and run the archive without git
	@docker/packages.sh build dist
	@tests/support/test-dist.sh

.PHONY: test-compose
test-compose: ## Run all commands of docker/README.md: a fleet loses no request while it is upgraded and goes back
	@docker/test-compose.sh
