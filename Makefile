# This Makefile builds, tests and installs attentiond. `make help` lists the targets.
#
# Everything is built in build/$(BUILD)/; BUILD is release, debug, asan, tsan, coverage or fuzz.
# The caller may set CC, CXX, CPPFLAGS, CFLAGS, CXXFLAGS, LDFLAGS and WERROR. V=1 shows the commands.

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all
MAKEFLAGS     += --no-builtin-rules

BUILD ?= release
SUITE ?= trixie
O     := build/$(BUILD)
ifndef V
Q := @
endif

# The version is written in one place, which is attention.h. The ABI number is 0 before version 1.0.
VERSION := $(shell sed -n 's/^\#define ATTN_VERSION  *"\(.*\)"/\1/p' lib/include/attention.h)
ABI     := $(firstword $(subst ., ,$(VERSION)))

PREFIX       ?= /usr/local
BINDIR       ?= $(PREFIX)/bin
LIBDIR       ?= $(PREFIX)/lib
INCLUDEDIR   ?= $(PREFIX)/include
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
UNITDIR      ?= $(PREFIX)/lib/systemd/system

# ------------------------------------------------------------------------------------------ files
LIB_OBJECTS     := $(patsubst %.c,$(O)/%.o,$(wildcard lib/src/*.c lib/src/*/*.c))
MAIN_OBJECT     := $(O)/server/main.o
SERVER_OBJECTS  := $(filter-out $(MAIN_OBJECT),$(patsubst %.c,$(O)/%.o,$(wildcard server/*.c server/*/*.c server/*/*/*.c))) \
                   $(O)/server/codec/json/number.cc.o $(O)/server/api/embed.o
SUPPORT_MAINS   := tests/support/print_routes.c tests/support/run_kernels.c tests/support/load.c
SUPPORT_OBJECTS := $(patsubst %.c,$(O)/%.o,$(filter-out $(SUPPORT_MAINS),$(wildcard tests/support/*.c)))
LEAKS           := $(O)/tests/support/leaks.o
UNIT_OBJECTS    := $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/test_*.c)) $(LEAKS)
API_OBJECTS     := $(patsubst %.c,$(O)/%.o,$(wildcard tests/api/test_*.c tests/notebooks/test_*.c)) $(LEAKS)
BENCHES         := $(patsubst tests/bench/%.c,$(O)/%,$(wildcard tests/bench/bench_*.c))
MEMORY_OBJECTS  := $(patsubst %.c,$(O)/%.o,$(wildcard tests/memory/*.c))
STRESSES        := $(patsubst tests/stress/%.c,$(O)/stress_%,$(wildcard tests/stress/*.c))
FUZZ_TARGETS    := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS         := $(addprefix $(O)/replay_,$(FUZZ_TARGETS))

C_FILES := $(wildcard lib/src/*.c lib/src/*/*.c server/*.c server/*/*.c server/*/*/*.c tests/*/*.c tests/bench/*/*.c)
EXPLORER := server/explorer/build.sh $(wildcard server/explorer/src/* server/explorer/src/*/*)
FORMATTED := $(C_FILES) $(wildcard lib/include/*.h lib/src/*.h lib/src/*.inc lib/src/*/*.h lib/src/*/*.inc \
             server/*.h server/*/*.h server/*/*/*.h server/*/*/*.cc tests/*/*.h tests/*/*.inc)
SCRIPTS := $(wildcard docker/*.sh server/*/*.sh tests/*/*.sh tests/*/*/*.sh) .ci/run

# build/assets/ holds the web pages and what they load. It is the same for every BUILD; assets.inc lists it.
ASSETS := build/assets/assets.inc
STATIC := $(O)/libattention.a
SHARED := $(O)/libattention.so.$(VERSION)
DAEMON := $(O)/attentiond

# ------------------------------------------------------------------------------------------ flags
# These commands print nothing where no package is installed yet: `make run` installs first, then starts a second make.
pkg     = $(shell pkg-config --$(1) $(2) 2>/dev/null)
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
HTTP_CFLAGS      := $(call pkg,cflags,libmicrohttpd)
TLS_CFLAGS       := $(call pkg,cflags,gnutls)
JSON_CFLAGS      := $(call pkg,cflags,libcjson)
CODING_CFLAGS    := $(call pkg,cflags,zlib libzstd)
BLAS_CFLAGS      := $(call pkg,cflags,openblas)
CRITERION_CFLAGS := $(call pkg,cflags,criterion)
BROTLI_CFLAGS    := $(call pkg,cflags,libbrotlidec)
HTTP_LIBS        := $(call pkg,libs,libmicrohttpd)
TLS_LIBS         := $(call pkg,libs,gnutls)
JSON_LIBS        := $(call pkg,libs,libcjson)
CODING_LIBS      := $(call pkg,libs,zlib libzstd)
WORDS_LIBS       := -lunistring
BLAS_LIBS        := $(call pkg,libs,openblas)
CRITERION_LIBS   := $(call pkg,libs,criterion)
BROTLI_LIBS      := $(call pkg,libs,libbrotlidec)

# CPUs that can check it let indirect calls and returns land only where the compiler expects them.
LANDINGS := $(if $(filter x86_64-%,$(MACHINE)),-fcf-protection=full,-mbranch-protection=standard)

SANITIZE.asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# -g1 is enough for the lines of a backtrace, and compiles a quarter faster than -g.
CFLAGS.release  := -O2 -g1 -DNDEBUG -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong \
                   $(LANDINGS)
CFLAGS.debug    := -O0 -g3
CFLAGS.asan     := -O1 -g $(SANITIZE.asan)
CFLAGS.tsan     := -O1 -g -fsanitize=thread
CFLAGS.coverage := -O0 -g --coverage
# Only clang knows these: make fuzz.
CFLAGS.fuzz     := -O1 -g $(SANITIZE.asan) -fsanitize=fuzzer-no-link
LDFLAGS.release  := -Wl,-z,relro,-z,now,-z,noexecstack -static-libstdc++
LDFLAGS.asan     := $(SANITIZE.asan)
LDFLAGS.tsan     := -fsanitize=thread
LDFLAGS.coverage := --coverage
LDFLAGS.fuzz     := $(SANITIZE.asan)
ifeq ($(origin CFLAGS.$(BUILD)),undefined)
$(error unknown BUILD=$(BUILD): it is release, debug, asan, tsan, coverage or fuzz)
endif

# Enumerations without a name hold plain numbers here. Newer versions of clang would warn where such a number meets a double.
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla \
            $(if $(findstring clang,$(CC)),-Wno-enum-float-conversion)
# -ffast-math is never used, because minus infinity is a legal score. Contraction is off, so that a*b+c has
# the same value on every CPU kind that runs the same code path.
COMMON     = -fPIC -fvisibility=hidden -ffp-contract=off $(WARNINGS) $(WERROR) $(CFLAGS.$(BUILD))
OWN_CFLAGS = -std=c17 -D_POSIX_C_SOURCE=200809L -Wstrict-prototypes -Wmissing-prototypes $(COMMON)
OWN_CXXFLAGS = -std=c++17 -fno-exceptions -fno-rtti $(COMMON)
OWN_LDFLAGS  = $(LDFLAGS.$(BUILD))
# The release does not depend on the folder that it was built in, so a moved tree need not be compiled again.
PREFIX_MAP  := $(if $(filter release,$(BUILD)),-ffile-prefix-map="$(CURDIR)"=.)

# These are the headers that each room sees. check-layers checks the rules that the compiler cannot check.
LIB_FLAGS    := -Ilib/include -Ilib/src $(BLAS_CFLAGS) -fno-math-errno -fno-trapping-math
SERVER_FLAGS := -Ilib/include -Iserver -I$(dir $(ASSETS)) $(HTTP_CFLAGS) $(TLS_CFLAGS) $(CODING_CFLAGS) $(JSON_CFLAGS)
TEST_FLAGS   := -Itests -UNDEBUG -DTESTS_DIR=\"tests\" $(CRITERION_CFLAGS) $(TLS_CFLAGS) \
                $(CODING_CFLAGS) $(BROTLI_CFLAGS) $(JSON_CFLAGS)
UNIT_FLAGS   := $(TEST_FLAGS) -Ilib/include -Ilib/src -Iserver
BENCH_FLAGS  := $(UNIT_FLAGS) $(HTTP_CFLAGS) $(BLAS_CFLAGS)

$(O)/lib/%.o:                ROOM_FLAGS = $(LIB_FLAGS)
$(O)/server/%.o:             ROOM_FLAGS = $(SERVER_FLAGS)
$(O)/tests/%.o:              ROOM_FLAGS = $(TEST_FLAGS)
$(O)/tests/unit/%.o:         ROOM_FLAGS = $(UNIT_FLAGS)
$(O)/tests/bench/%.o:        ROOM_FLAGS = $(BENCH_FLAGS)
$(O)/tests/stress/%.o:       ROOM_FLAGS = $(UNIT_FLAGS)
$(O)/tests/fuzz/%.o:         ROOM_FLAGS = $(UNIT_FLAGS)
$(O)/tests/memory/%.o:       ROOM_FLAGS = $(UNIT_FLAGS)
$(addprefix $(O)/tests/support/,print_routes.o check_kernels.o run_kernels.o): ROOM_FLAGS = $(UNIT_FLAGS)
ifeq ($(BUILD),release)
$(O)/lib/%.o:                LEVEL = -O3
endif
# Each kernel file has the flags of its own instruction set, so that these cannot leak into the rest.
ifneq ($(filter x86_64-%,$(MACHINE)),)
$(O)/lib/src/kernels/avx2.o:   ISA = -mavx2 -mfma
$(O)/lib/src/kernels/avx512.o: ISA = -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma
endif

# ------------------------------------------------------------------------------------------ build
.PHONY: all
all: $(DAEMON) $(STATIC) $(SHARED) ## Build the daemon and the library (installs nothing)
ifeq ($(BUILD),release)
	@for file in attentiond libattention.a libattention.so; do \
	    [ -h build/$$file ] || ln -sfn release/$$file build/$$file; done
endif

# Changed flags rebuild everything; an added or removed file relinks. The tests have flags of their own, which
# change when their packages are installed: what `make run` has compiled stays.
$(O)/.flags: STAMP = $(CC) $(CXX) $(OWN_CFLAGS) $(OWN_CXXFLAGS) $(CPPFLAGS) $(CFLAGS) $(CXXFLAGS) \
    $(OWN_LDFLAGS) $(LDFLAGS) $(LIB_FLAGS) $(SERVER_FLAGS)
$(O)/tests/.flags: STAMP = $(BENCH_FLAGS)
$(O)/.files: STAMP = $(LIB_OBJECTS) $(SERVER_OBJECTS) $(SUPPORT_OBJECTS) $(UNIT_OBJECTS) $(API_OBJECTS) \
    $(MEMORY_OBJECTS)
$(O)/.flags $(O)/tests/.flags $(O)/.files: tools
	@[ -d $(@D) ] || mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' > $@

.PHONY: tools
tools:
	@missing=$$(for tool in $(firstword $(CC)) $(firstword $(CXX)) pkg-config esbuild brotli gzip; do \
	        command -v $$tool >/dev/null || echo $$tool; done; \
	    for module in libmicrohttpd gnutls zlib libzstd libcjson openblas; do \
	        pkg-config --exists $$module 2>/dev/null || echo $$module; done); \
	[ -z "$$missing" ] || { echo "Missing:" $$missing". On Debian and Ubuntu, 'make packages' installs what building" \
	    "needs. CONTRIBUTING.md names the packages of other systems." >&2; exit 1; }

define compile
@mkdir -p $(@D); echo "  CC    $<"
$(Q)$(CC) $(OWN_CFLAGS) $(LEVEL) $(PREFIX_MAP) $(ROOM_FLAGS) $(ISA) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
endef

$(O)/%.o: %.c $(O)/.flags
	$(compile)

$(O)/tests/%.o: tests/%.c $(O)/.flags $(O)/tests/.flags
	$(compile)

$(O)/%.cc.o: %.cc $(O)/.flags
	@mkdir -p $(@D); echo "  CXX   $<"
	$(Q)$(CXX) $(OWN_CXXFLAGS) $(PREFIX_MAP) $(ROOM_FLAGS) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<

$(O)/%.o: %.S $(O)/.flags
	@mkdir -p $(@D); echo "  AS    $<"
	$(Q)$(CC) -I$(dir $(ASSETS)) -Wa,-I$(dir $(ASSETS)) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(O)/server/api/embed.o $(O)/server/api/assets.o: $(ASSETS)

$(ASSETS): $(EXPLORER) openapi.yaml | tools
	@echo "  PAGES $(@D)"
	$(Q)server/explorer/build.sh $(@D)

# The static library is one object whose hidden symbols are local. So its user sees attn_* and nothing else, as in
# the shared library.
$(O)/libattention.o: $(LIB_OBJECTS) $(O)/.files
	$(Q)$(LD) -r -o $@ $(LIB_OBJECTS)
	$(Q)objcopy --localize-hidden $@

$(STATIC): $(O)/libattention.o
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $<

$(SHARED): $(LIB_OBJECTS) $(O)/.files
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -Wl,-soname,libattention.so.$(ABI) $(filter-out -static%,$(OWN_LDFLAGS)) $(LDFLAGS) -o $@ \
	    $(LIB_OBJECTS) $(BLAS_LIBS) -lm
	@ln -sfn $(@F) $(O)/libattention.so.$(ABI)
	@ln -sfn libattention.so.$(ABI) $(O)/libattention.so

# These are archives, so that a benchmark links only what it calls.
$(O)/libserver.a: $(SERVER_OBJECTS) $(O)/.files
	$(Q)rm -f $@ && $(AR) rcs $@ $(SERVER_OBJECTS)
$(O)/libsupport.a: $(SUPPORT_OBJECTS) $(O)/.files
	$(Q)rm -f $@ && $(AR) rcs $@ $(SUPPORT_OBJECTS)

LINK        = $(CXX) -pthread $(OWN_LDFLAGS) $(LDFLAGS) -o $@
SERVER_LIBS = $(HTTP_LIBS) $(TLS_LIBS) $(CODING_LIBS) $(JSON_LIBS) $(WORDS_LIBS) $(BLAS_LIBS) -lm

$(DAEMON): $(MAIN_OBJECT) $(O)/libserver.a $(STATIC)
	@echo "  LINK  $@"
	$(Q)$(LINK) $^ $(SERVER_LIBS)

# ------------------------------------------------------------------------------------------ tests
$(O)/unit-tests: $(UNIT_OBJECTS) $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS) $(O)/.files
	@echo "  LINK  $@"
	$(Q)$(LINK) $(filter %.o %.a,$^) $(CRITERION_LIBS) $(BROTLI_LIBS) $(SERVER_LIBS)

$(O)/api-tests: $(API_OBJECTS) $(O)/libsupport.a $(O)/.files
	@echo "  LINK  $@"
	$(Q)$(LINK) $(filter %.o %.a,$^) $(CRITERION_LIBS) $(BROTLI_LIBS) $(TLS_LIBS) $(CODING_LIBS) $(JSON_LIBS) -lm

$(O)/no-memory: $(MEMORY_OBJECTS) $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS) $(O)/.files
	@echo "  LINK  $@"
	$(Q)$(LINK) $(filter %.o %.a,$^) $(BROTLI_LIBS) $(SERVER_LIBS)

$(O)/bench_%: $(O)/tests/bench/bench_%.o $(O)/tests/bench/crew.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	@echo "  LINK  $@"
	$(Q)$(LINK) $^ $(SERVER_LIBS)

$(O)/echo: $(O)/tests/bench/http/echo.o
	@echo "  LINK  $@"
	$(Q)$(CC) $(OWN_LDFLAGS) $(LDFLAGS) -o $@ $^ $(HTTP_LIBS)

$(O)/stress_%: $(O)/tests/stress/%.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	@echo "  LINK  $@"
	$(Q)$(LINK) $^ $(SERVER_LIBS)

# A fuzz target is linked twice: replay_* reads files and needs no special compiler, fuzz_* is driven by libFuzzer.
$(O)/replay_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	@echo "  LINK  $@"
	$(Q)$(LINK) $^ $(SERVER_LIBS)

$(O)/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(O)/libsupport.a $(O)/libserver.a $(LIB_OBJECTS)
	@echo "  LINK  $@"
	$(Q)$(LINK) -fsanitize=fuzzer $^ $(SERVER_LIBS)

$(O)/print_routes: $(O)/tests/support/print_routes.o $(O)/libserver.a $(LIB_OBJECTS)
	@echo "  LINK  $@"
	$(Q)$(LINK) $^ $(SERVER_LIBS)

$(O)/load: $(O)/tests/support/load.o
	@echo "  LINK  $@"
	$(Q)$(LINK) $^ -lm

$(O)/routes.txt: $(O)/print_routes
	$(Q)$< > $@

# run_kernels has only the row kernels and their checks. It is static and needs no BLAS, so that an emulator can run it.
$(O)/run_kernels: $(addprefix $(O)/tests/support/,run_kernels.o check_kernels.o) \
                  $(filter $(O)/lib/src/kernels/%,$(LIB_OBJECTS))
	@echo "  LINK  $@"
	$(Q)$(CC) -static $(OWN_LDFLAGS) $(LDFLAGS) -o $@ $^ -lm

.PHONY: test-programs bench-programs stress-programs
test-programs: $(O)/unit-tests $(O)/api-tests $(O)/no-memory $(REPLAYS) $(DAEMON) $(O)/routes.txt ; @:
bench-programs: $(BENCHES) $(DAEMON) ; @:
stress-programs: $(STRESSES) ; @:
# make would delete objects that only a pattern names after linking.
.SECONDARY: $(patsubst %.c,$(O)/%.o,$(wildcard tests/bench/*.c tests/stress/*.c tests/fuzz/*.c tests/support/*.c))

# A user calls the targets below. They install what is missing and then start a second make, because the flags of a
# package are known only after its installation.
again = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null))

# Node.js with its npm may have come from elsewhere.
NPM = $(shell command -v npm >/dev/null || echo node)

.PHONY: run test bench bench-http bench-peers packages
# make run only starts the daemon if the tree is built and read-only. It installs and builds nothing then.
run: $(shell test -x $(DAEMON) -a ! -w $(O) || echo ready-to-run) ## Install what is missing, build, start the daemon: make run ARGS="--port 9000"
	@exec $(DAEMON) $(ARGS)

.PHONY: ready-to-run
ready-to-run:
	@docker/packages.sh build
	$(again) all

test: ## Install what is missing, build, run the tests
	@docker/packages.sh build test
	$(again) test-programs
	@tests/support/run-tests.sh $(O)

bench: ## Run every benchmark
	@docker/packages.sh build test
	$(again) bench-programs
	@for bench in $(BENCHES); do \
	    echo "== $${bench##*/}"; ATTENTIOND_BIN="$(CURDIR)/$(DAEMON)" \
	        BENCH_JSON="$(CURDIR)/build/$${bench##*/}.json" $$bench || exit 1; done

bench-http: ## Measure over HTTP beside FastAPI, Node.js (500 MB from PyPI and npm): ARGS="--quick"
	@docker/packages.sh build test python bench $(NPM)
	$(again) all $(O)/echo $(O)/load
	@tests/bench/http/run.sh $(O) $(ARGS)

bench-peers: ## Measure beside PyTorch, onnxruntime, OpenVINO, NumPy (6 GB from PyPI): ARGS="--quick"
	@docker/packages.sh build test python
	$(again) $(O)/bench_attention
	@tests/bench/peers/run.sh $(O) $(ARGS)

packages: ## Install the packages that building needs
	@docker/packages.sh build

# ----------------------------------------------------------------------------------------- checks
.PHONY: docs test-conformance test-openapi test-clients test-metrics check-asan check-valgrind check-neon check-hardening check-layers lint format coverage test-container
docs: ## Write the page /docs anew, from openapi.yaml
	@docker/packages.sh test
	@/usr/bin/python3 server/explorer/docs.py

check-asan: ## Run all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(again) BUILD=asan test

ifneq ($(STRESSES),)
.PHONY: check-tsan run-stresses
check-tsan: ## Run the stress programs under ThreadSanitizer
	@docker/packages.sh build
	$(again) BUILD=tsan run-stresses
run-stresses: stress-programs
	@for stress in $(STRESSES); do \
	    echo "== $${stress##*/}"; env -u OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS=1 $$stress || exit 1; done
endif

# These attack the release daemon; SECONDS_EACH, TIMES and MINUTES make the attack longer. Results that depend on the
# machine's speed are printed only; with STRICT=yes they fail.
HOSTILE ?= $(filter-out hostile crowd soak search,$(basename $(notdir $(wildcard tests/hostile/*.py))))
export SECONDS_EACH TIMES MINUTES STRICT
.PHONY: test-hostile soak search-costs
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
	$(again) all
	@HOSTILE_BUILD=$(O) PYTHONDONTWRITEBYTECODE=1 python3 tests/hostile/search.py $(ARGS)

check-valgrind: ## Run the unit tests under valgrind
	@docker/packages.sh build test valgrind
	$(again) $(O)/unit-tests
	@tests/support/run-valgrind.sh $(O)

# Fuzzing stops at the first failure; build/fuzz/ holds the input that failed and the new finds.
FUZZ_SECONDS ?= 60
TARGET       ?= $(FUZZ_TARGETS)
.PHONY: fuzz run-fuzz
fuzz: ## Search for inputs that break the code: make fuzz FUZZ_SECONDS=600 TARGET=reader
	@docker/packages.sh build fuzz
	$(again) BUILD=fuzz CC=clang CXX=clang++ run-fuzz
run-fuzz: $(addprefix $(O)/fuzz_,$(TARGET))
	@tests/fuzz/run.sh $(O) $(FUZZ_SECONDS) $(TARGET)

# The emulator is slow, so exp is tried at one number in TEST_DIVISOR.
check-neon: ## Run the row kernels of 64-bit ARM in an emulator
	@docker/packages.sh build neon
	$(again) O=build/neon CC=aarch64-linux-gnu-gcc build/neon/run_kernels
	@TEST_DIVISOR=20 timeout 300 qemu-aarch64 build/neon/run_kernels scalar neon

test-conformance: ## Run ONNX's Attention cases over HTTP (fetches Python packages from PyPI)
	@docker/packages.sh build python
	$(again) all
	@tests/conformance/run.sh $(O)

test-openapi: ## Check the daemon against openapi.yaml (Schemathesis, from PyPI): ARGS="-n 1000"
	@docker/packages.sh build python
	$(again) all
	@tests/openapi/run.sh $(O) $(ARGS)

test-clients: ## Generate clients of openapi.yaml, compile and try them (600 MB from npm, PyPI, Go, Maven): ARGS=go
	@docker/packages.sh build python $(NPM) $$(command -v go >/dev/null || echo go) \
	    $$({ command -v javac && command -v mvn; } >/dev/null || echo java)
	$(again) all
	@tests/clients/run.sh $(O) $(ARGS)

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
	@python3 tests/api/check_readme.py README.md --daemon $(DAEMON)
	@tests/browser/run.sh $(O) $(ARGS)

check-hardening: ## Check how the daemon is built and linked, and its systemd unit
	@docker/packages.sh build unit
	$(again) $(O)/attentiond
	@tests/support/check-hardening.sh $(O)/attentiond server/attentiond.service.in

check-layers: ## Check which folder includes which headers
	@docker/packages.sh build
	@tests/support/check-layers.sh

lint: ## Check format, clang-tidy and the scripts
	@docker/packages.sh build test lint
	clang-format --dry-run -Werror $(FORMATTED)
	! LC_ALL=C.UTF-8 grep -nE '^.{101}' $(filter-out lib/src/kernels/%,$(FORMATTED)) # comments, which it leaves alone
	shellcheck $(SCRIPTS)
	$(again) tidy

TIDY := $(addprefix tidy-,$(C_FILES))
.PHONY: tidy $(TIDY)
tidy: $(TIDY)
tidy-server/api/assets.c: $(ASSETS)
tidy-lib/%:    ROOM_FLAGS = $(LIB_FLAGS)
tidy-server/%: ROOM_FLAGS = $(SERVER_FLAGS)
tidy-tests/%:  ROOM_FLAGS = $(BENCH_FLAGS)
$(TIDY): tidy-%: %
	@echo "  TIDY  $<"
	@said=$$(clang-tidy --quiet $< -- -std=c17 -D_POSIX_C_SOURCE=200809L $(ROOM_FLAGS) 2>&1) || \
	    { echo "$$said"; exit 1; }

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

# ---------------------------------------------------------------------------------------- install
INSTALL ?= install
.PHONY: install uninstall clean help
install: all ## Install (DESTDIR, PREFIX, BINDIR, LIBDIR, INCLUDEDIR, PKGCONFIGDIR, UNITDIR)
	@case '$(PREFIX)$(BINDIR)$(LIBDIR)$(INCLUDEDIR)' in *[\&\|\\\ ]*) \
	    echo "make install: the folders to install into may not contain a space, &, | or \\" >&2; exit 1 ;; esac
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)" "$(DESTDIR)$(INCLUDEDIR)" "$(DESTDIR)$(PKGCONFIGDIR)" \
	    "$(DESTDIR)$(UNITDIR)"
	$(INSTALL) -m 755 $(DAEMON) "$(DESTDIR)$(BINDIR)/attentiond"
	$(INSTALL) -m 644 $(STATIC) $(SHARED) "$(DESTDIR)$(LIBDIR)/"
	ln -sfn libattention.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/libattention.so.$(ABI)"
	ln -sfn libattention.so.$(ABI) "$(DESTDIR)$(LIBDIR)/libattention.so"
	$(INSTALL) -m 644 lib/include/attention.h "$(DESTDIR)$(INCLUDEDIR)/"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' lib/attention.pc.in | \
	    $(INSTALL) -m 644 /dev/stdin "$(DESTDIR)$(PKGCONFIGDIR)/attention.pc"
	sed 's|@BINDIR@|$(BINDIR)|' server/attentiond.service.in | \
	    $(INSTALL) -m 644 /dev/stdin "$(DESTDIR)$(UNITDIR)/attentiond.service"

uninstall: ## Remove what install put there
	rm -f "$(DESTDIR)$(BINDIR)/attentiond" "$(DESTDIR)$(INCLUDEDIR)/attention.h" \
	    "$(DESTDIR)$(PKGCONFIGDIR)/attention.pc" "$(DESTDIR)$(LIBDIR)/libattention.a" \
	    "$(DESTDIR)$(LIBDIR)/libattention.so" "$(DESTDIR)$(LIBDIR)/libattention.so.$(ABI)" \
	    "$(DESTDIR)$(LIBDIR)/libattention.so.$(VERSION)" "$(DESTDIR)$(UNITDIR)/attentiond.service"

# podman, when an ordinary user runs it, leaves files that belong to other user numbers.
clean: ## Remove build/
	@rm -rf build 2>/dev/null || podman unshare rm -rf build

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST)) | sort

-include $(shell find $(O) -name '*.d' 2>/dev/null)
