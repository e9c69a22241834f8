# This Makefile builds, runs and installs attentiond. tests/tests.mk has the targets of tests and checks, which
# `make help` lists, too. A copy of the sources without tests/ can be built and installed.
#
# Everything is built in build/$(BUILD)/. BUILD is release, debug, asan, tsan, coverage or fuzz.
# The caller may set CC, CXX, CPPFLAGS, CFLAGS, CXXFLAGS, LDFLAGS and WERROR. V=1 shows the commands.

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all
MAKEFLAGS     += --no-builtin-rules

BUILD ?= release
O     := build/$(BUILD)
ifndef V
Q := @
endif

# The version is written only in attention.h. Its first number is that of the ABI.
VERSION := $(shell sed -n 's/^\#define ATTN_VERSION  *"\(.*\)"/\1/p' lib/include/attention.h)
ABI     := $(firstword $(subst ., ,$(VERSION)))

PREFIX       ?= /usr/local
BINDIR       ?= $(PREFIX)/bin
LIBDIR       ?= $(PREFIX)/lib
INCLUDEDIR   ?= $(PREFIX)/include
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
UNITDIR      ?= $(PREFIX)/lib/systemd/system
MANDIR       ?= $(PREFIX)/share/man
DATADIR      ?= $(PREFIX)/share/attentiond

# ------------------------------------------------------------------------------------------ files
LIB_OBJECTS     := $(patsubst %.c,$(O)/%.o,$(wildcard lib/src/*.c lib/src/*/*.c))
MAIN_OBJECT     := $(O)/server/main.o
SERVER_OBJECTS  := $(filter-out $(MAIN_OBJECT),$(patsubst %.c,$(O)/%.o,$(wildcard server/*.c server/*/*.c server/*/*/*.c))) \
                   $(O)/server/codec/json/number.cc.o $(O)/server/api/pages/embed.o

# The trained model of two layers, which pages load, too. `make run` serves its folder.
MODEL := server/models/story.safetensors

EXPLORER := server/explorer/build.sh $(wildcard server/explorer/src/* server/explorer/src/*/*) $(MODEL)

# build/assets/ holds the web pages and what they load. It is the same for every BUILD; assets.inc lists it.
ASSETS := build/assets/assets.inc
STATIC := $(O)/libattention.a
SHARED := $(O)/libattention.so.$(VERSION)
DAEMON := $(O)/attentiond

# ------------------------------------------------------------------------------------------ flags
# TARGETARCH=arm64 or TARGETARCH=amd64 builds for this architecture with the compilers and libraries that
# `TARGETARCH=... docker/packages.sh build` installs on Debian. Docker sets the variable, too. `make install` must run the
# daemon for its manual page, so it works on the machine of that architecture only.
OBJCOPY    ?= objcopy
PKG_CONFIG ?= pkg-config
ifneq ($(TARGETARCH),)
CROSS.amd64 := x86_64-linux-gnu
CROSS.arm64 := aarch64-linux-gnu
CROSS       := $(or $(CROSS.$(TARGETARCH)),$(error unknown TARGETARCH=$(TARGETARCH): it is amd64 or arm64))
CC          := $(CROSS)-gcc
CXX         := $(CROSS)-g++
AR          := $(CROSS)-ar
LD          := $(CROSS)-ld
OBJCOPY     := $(CROSS)-objcopy
PKG_CONFIG  := PKG_CONFIG_LIBDIR=/usr/lib/$(CROSS)/pkgconfig pkg-config
endif

# pkg-config prints nothing about a package that is not installed yet. So `make run` installs the packages first, and then
# starts a second make.
pkg     = $(shell $(PKG_CONFIG) --$(1) $(2) 2>/dev/null)
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
HTTP_CFLAGS      := $(call pkg,cflags,libmicrohttpd)
TLS_CFLAGS       := $(call pkg,cflags,gnutls)
JSON_CFLAGS      := $(call pkg,cflags,libcjson)
CODING_CFLAGS    := $(call pkg,cflags,zlib libzstd)
BLAS_CFLAGS      := $(call pkg,cflags,openblas)
HTTP_LIBS        := $(call pkg,libs,libmicrohttpd)
TLS_LIBS         := $(call pkg,libs,gnutls)
JSON_LIBS        := $(call pkg,libs,libcjson)
CODING_LIBS      := $(call pkg,libs,zlib libzstd)
BLAS_LIBS        := $(call pkg,libs,openblas)

# A CPU that supports these flags lets indirect calls and returns go only to places that the compiler has marked.
LANDINGS := $(if $(filter x86_64-%,$(MACHINE)),-fcf-protection=full,-mbranch-protection=standard)

SANITIZE.asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# -g1 is enough for the lines of a backtrace, and compiles a quarter faster than -g.
CFLAGS.release  := -O2 -g1 -DNDEBUG -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong \
                   $(LANDINGS)
CFLAGS.debug    := -O0 -g3
CFLAGS.asan     := -O1 -g $(SANITIZE.asan)
CFLAGS.tsan     := -O1 -g -fsanitize=thread
CFLAGS.coverage := -O0 -g --coverage
# Only clang has the flags of libFuzzer, so `make fuzz` calls clang.
CFLAGS.fuzz     := -O1 -g $(SANITIZE.asan) -fsanitize=fuzzer-no-link
LDFLAGS.release  := -Wl,-z,relro,-z,now,-z,noexecstack -static-libstdc++
LDFLAGS.asan     := $(SANITIZE.asan)
LDFLAGS.tsan     := -fsanitize=thread
LDFLAGS.coverage := --coverage
LDFLAGS.fuzz     := $(SANITIZE.asan)
ifeq ($(origin CFLAGS.$(BUILD)),undefined)
$(error unknown BUILD=$(BUILD): it is release, debug, asan, tsan, coverage or fuzz)
endif

# Enumerations without a name hold plain numbers in this project. Newer versions of clang would warn where such a number
# meets a double.
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

# Each folder sees only the headers in these folders. check-layers checks the rules that the compiler cannot check.
LIB_FLAGS    := -Ilib/include -Ilib/src $(BLAS_CFLAGS) -fno-math-errno -fno-trapping-math
SERVER_FLAGS := -Ilib/include -Iserver -I$(dir $(ASSETS)) $(HTTP_CFLAGS) $(TLS_CFLAGS) $(CODING_CFLAGS) $(JSON_CFLAGS)

$(O)/lib/%.o:    FOLDER_FLAGS = $(LIB_FLAGS)
$(O)/server/%.o: FOLDER_FLAGS = $(SERVER_FLAGS)
ifeq ($(BUILD),release)
$(O)/lib/%.o $(O)/server/%.o: LEVEL = -O3
endif
# Each file of kernels or vectors has the flags of its own instruction set, so that these cannot leak into the rest.
ifneq ($(filter x86_64-%,$(MACHINE)),)
$(O)/lib/src/kernels/avx2.o:   ISA = -mavx2 -mfma
$(O)/lib/src/kernels/avx512.o: ISA = -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma
$(O)/server/codec/json/%_vector.o: ISA = -mavx2 -mfma -mbmi -mbmi2
endif

# ------------------------------------------------------------------------------------------ build
.PHONY: all
all: $(DAEMON) $(STATIC) $(SHARED) ## Build the daemon and the library (installs nothing)
ifeq ($(BUILD),release)
	@for file in attentiond libattention.a libattention.so; do \
	    [ -h build/$$file ] || ln -sfn release/$$file build/$$file; done
endif

# If a flag changes, everything is compiled again. If a file is added or removed, everything is linked again. A stamp is
# written only if its text changes.
$(O)/.flags: STAMP = $(CC) $(CXX) $(OWN_CFLAGS) $(OWN_CXXFLAGS) $(CPPFLAGS) $(CFLAGS) $(CXXFLAGS) \
    $(OWN_LDFLAGS) $(LDFLAGS) $(LIB_FLAGS) $(SERVER_FLAGS)
$(O)/.files: STAMP = $(LIB_OBJECTS) $(SERVER_OBJECTS)
$(O)/.flags $(O)/.files: tools
	$(write-stamp)

define write-stamp
@[ -d $(@D) ] || mkdir -p $(@D)
@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' > $@
endef

.PHONY: tools
tools:
	@missing=$$(for tool in $(firstword $(CC)) $(firstword $(CXX)) pkg-config esbuild brotli gzip; do \
	        command -v $$tool >/dev/null || echo $$tool; done; \
	    for module in libmicrohttpd gnutls zlib libzstd libcjson openblas; do \
	        $(PKG_CONFIG) --exists $$module 2>/dev/null || echo $$module; done); \
	[ -z "$$missing" ] || { echo "Missing:" $$missing". On Debian and Ubuntu, 'make packages' installs what building" \
	    "needs. CONTRIBUTING.md names the packages of other systems." >&2; exit 1; }

define compile
@mkdir -p $(@D); echo "  CC    $<"
$(Q)$(CC) $(OWN_CFLAGS) $(LEVEL) $(PREFIX_MAP) $(FOLDER_FLAGS) $(ISA) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
endef

$(O)/%.o: %.c $(O)/.flags
	$(compile)

$(O)/%.cc.o: %.cc $(O)/.flags
	@mkdir -p $(@D); echo "  CXX   $<"
	$(Q)$(CXX) $(OWN_CXXFLAGS) $(PREFIX_MAP) $(FOLDER_FLAGS) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<

$(O)/%.o: %.S $(O)/.flags
	@mkdir -p $(@D); echo "  AS    $<"
	$(Q)$(CC) -I$(dir $(ASSETS)) -Wa,-I$(dir $(ASSETS)) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(O)/server/api/pages/embed.o $(O)/server/api/pages/assets.o: $(ASSETS)

$(ASSETS): $(EXPLORER) openapi.yaml | tools
	@echo "  PAGES $(@D)"
	$(Q)server/explorer/build.sh $(@D)

# The static library is one object whose hidden symbols are local. So its user sees attn_* and nothing else, as in
# the shared library.
$(O)/libattention.o: $(LIB_OBJECTS) $(O)/.files
	$(Q)$(LD) -r -o $@ $(LIB_OBJECTS)
	$(Q)$(OBJCOPY) --localize-hidden $@

$(STATIC): $(O)/libattention.o
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $<

$(SHARED): $(LIB_OBJECTS) $(O)/.files
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -Wl,-soname,libattention.so.$(ABI) $(filter-out -static%,$(OWN_LDFLAGS)) $(LDFLAGS) -o $@ \
	    $(LIB_OBJECTS) $(BLAS_LIBS) -lm
	@ln -sfn $(@F) $(O)/libattention.so.$(ABI)
	@ln -sfn libattention.so.$(ABI) $(O)/libattention.so

# This is an archive, so that a benchmark links only what it calls.
$(O)/libserver.a: $(SERVER_OBJECTS) $(O)/.files
	$(Q)rm -f $@ && $(AR) rcs $@ $(SERVER_OBJECTS)

SERVER_LIBS = $(HTTP_LIBS) $(TLS_LIBS) $(CODING_LIBS) $(JSON_LIBS) -lunistring $(BLAS_LIBS) -lm
define link
@echo "  LINK  $@"
$(Q)$(CXX) -pthread $(OWN_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(1)
endef

$(DAEMON): $(MAIN_OBJECT) $(O)/libserver.a $(STATIC)
	$(call link,$(SERVER_LIBS))

# The targets that a user calls install what is missing and then start a second make, because the flags of a package are
# known only after its installation.
again = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null))

.PHONY: run packages
# The options of the daemon stand in ARGS, because make takes all other words for its own.
DAEMON_WORDS = $(foreach v,PORT HOST ADDRESS WORKERS port host address workers,$(if \
    $(findstring command,$(origin $v)),$v=$($v))) $(filter --%,$(MAKECMDGOALS))
ifneq ($(and $(filter run,$(MAKECMDGOALS)),$(strip $(DAEMON_WORDS))),)
$(error options of the daemon go into ARGS, not $(strip $(DAEMON_WORDS)): make run ARGS="--port 9000")
endif

# If the tree is built and read-only, `make run` installs and builds nothing. It only starts the daemon.
run: $(shell test -x $(DAEMON) -a ! -w $(O) || echo ready-to-run) ## Install what is missing, build, start the daemon: make run ARGS="--port 9000"
	@ATTENTIOND_LAYERS="$${ATTENTIOND_LAYERS-$(dir $(MODEL))}" exec $(DAEMON) $(ARGS)

.PHONY: ready-to-run
ready-to-run:
	@server/port.sh $(ARGS)
	@docker/packages.sh build
	$(again) all

packages: ## Install the packages that building needs
	@docker/packages.sh build

-include tests/tests.mk

# ------------------------------------------------------------------------------------------ image
# The labels and the list of parts name the commit, and its time is that of all files. An archive of `make dist` has both
# in the file .commit.
ENGINE ?= $(shell docker info >/dev/null 2>&1 && echo docker || echo podman)
IMAGE  ?= attentiond
PACKED := $(file <.commit)
COMMIT ?= $(or $(word 1,$(PACKED)),$(shell git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null),unknown)
SOURCE_DATE_EPOCH ?= $(or $(word 2,$(PACKED)),$(shell git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s),0)
.PHONY: image
image: ## Build the container image with Docker or podman: make image IMAGE=NAME:TAG IMAGE_FLAGS="--platform linux/arm64"
	@command -v $(firstword $(ENGINE)) >/dev/null || { echo "make image needs Docker or podman, and there is neither." \
	    "On Debian and Ubuntu: apt-get install podman" >&2; exit 1; }
	DOCKER_BUILDKIT=1 $(ENGINE) build -f docker/Dockerfile -t $(IMAGE) --build-arg VERSION=$(VERSION) \
	    --build-arg COMMIT=$(COMMIT) --build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(IMAGE_FLAGS) .

# ---------------------------------------------------------------------------------------- install
INSTALL ?= install
MANUAL  := $(O)/attentiond.1

$(MANUAL): $(DAEMON) server/man.sh
	$(Q)server/man.sh $< > $@

.PHONY: install uninstall deb dist clean help
install: all $(MANUAL) ## Install (DESTDIR, PREFIX, BINDIR, LIBDIR, INCLUDEDIR, PKGCONFIGDIR, UNITDIR, MANDIR, DATADIR)
	@case '$(PREFIX)$(BINDIR)$(LIBDIR)$(INCLUDEDIR)$(DATADIR)' in *[\&\|\\\ ]*) \
	    echo "make install: the folders to install into may not contain a space, &, | or \\" >&2; exit 1 ;; esac
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)" "$(DESTDIR)$(INCLUDEDIR)" "$(DESTDIR)$(PKGCONFIGDIR)" \
	    "$(DESTDIR)$(UNITDIR)" "$(DESTDIR)$(MANDIR)/man1" "$(DESTDIR)$(DATADIR)/models"
	$(INSTALL) -m 755 $(DAEMON) "$(DESTDIR)$(BINDIR)/attentiond"
	$(INSTALL) -m 644 $(STATIC) $(SHARED) "$(DESTDIR)$(LIBDIR)/"
	ln -sfn libattention.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/libattention.so.$(ABI)"
	ln -sfn libattention.so.$(ABI) "$(DESTDIR)$(LIBDIR)/libattention.so"
	$(INSTALL) -m 644 lib/include/attention.h "$(DESTDIR)$(INCLUDEDIR)/"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' lib/attention.pc.in | \
	    $(INSTALL) -m 644 /dev/stdin "$(DESTDIR)$(PKGCONFIGDIR)/attention.pc"
	sed -e 's|@BINDIR@|$(BINDIR)|' -e 's|@DATADIR@|$(DATADIR)|' server/attentiond.service.in | \
	    $(INSTALL) -m 644 /dev/stdin "$(DESTDIR)$(UNITDIR)/attentiond.service"
	$(INSTALL) -m 644 $(MANUAL) "$(DESTDIR)$(MANDIR)/man1/"
	$(INSTALL) -m 644 $(MODEL) "$(DESTDIR)$(DATADIR)/models/"

uninstall: ## Remove what install put there
	rm -f "$(DESTDIR)$(BINDIR)/attentiond" "$(DESTDIR)$(INCLUDEDIR)/attention.h" \
	    "$(DESTDIR)$(PKGCONFIGDIR)/attention.pc" "$(DESTDIR)$(LIBDIR)/libattention.a" \
	    "$(DESTDIR)$(LIBDIR)/libattention.so" "$(DESTDIR)$(LIBDIR)/libattention.so.$(ABI)" \
	    "$(DESTDIR)$(LIBDIR)/libattention.so.$(VERSION)" "$(DESTDIR)$(UNITDIR)/attentiond.service" \
	    "$(DESTDIR)$(MANDIR)/man1/attentiond.1" "$(DESTDIR)$(DATADIR)/models/$(notdir $(MODEL))"

# Debian takes 1.0.0~rc.1 for older than 1.0.0, but 1.0.0-rc.1 for newer.
DEB_UPSTREAM := $(subst -,~,$(VERSION))
DEB_VERSION  ?= $(DEB_UPSTREAM)-1
deb: ## Make the Debian packages in build/deb/: make deb DEB_VERSION=1.0.0-2
	@docker/packages.sh build deb
	@SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" docker/make-deb.sh "$(DEB_VERSION)"

# build/dist/SHA256SUMS covers all files of this version there. SIGNING_KEY=FILE, a private key of OpenSSH, signs it. The
# same commit gives the same bytes. Python writes the version in another way.
define sums
$(Q)cd build/dist && rm -f SHA256SUMS* && ls | grep -F -e '$(VERSION)' -e '$(subst -rc.,rc,$(VERSION))' | \
    xargs sha256sum >SHA256SUMS && cat SHA256SUMS
$(if $(SIGNING_KEY),$(Q)ssh-keygen -q -Y sign -n attentiond -f $(SIGNING_KEY) build/dist/SHA256SUMS)
endef

# `make dist` packs only what git knows.
DIST := attentiond-$(VERSION)
dist: ## Pack the last commit and the clients for a release: build/dist/ gets the archives and SHA256SUMS
	@test -z '$(PACKED)' || { echo "make dist: this tree came from an archive; dist needs the git repository" >&2; exit 1; }
	@changes=$$(git status --porcelain) || exit 1; [ -z "$$changes" ] || \
	    { printf 'make dist packs the last commit, but the tree differs from it:\n%s\n' "$$changes" >&2; exit 1; }
	@rm -f build/dist/$(DIST).tar* && mkdir -p build/dist
	$(Q)git -c tar.umask=022 archive --prefix=$(DIST)/ -o build/dist/$(DIST).tar \
	    --add-virtual-file="$(DIST)/.commit:$$(git log -1 --format='%H %ct')" HEAD
	$(Q)gzip -9n build/dist/$(DIST).tar
	@docker/packages.sh jdk $(if $(SIGNING_KEY),dist)
	$(Q)SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" server/clients/pack.py build/dist
	$(sums)

# The bundle and the wheel have the files of the image, and a starter that needs nothing of the system.
BUNDLE = $(DIST)-linux-$(firstword $(subst -, ,$(MACHINE)))
.PHONY: bundle wheel pack-bundle pack-wheel
# Goals that share build/dist/ follow each other, also with -j.
wheel: | $(filter bundle,$(MAKECMDGOALS))
bundle wheel: | $(filter dist,$(MAKECMDGOALS))
dist bundle wheel: | $(filter clean,$(MAKECMDGOALS))
bundle wheel: ## Pack the daemon for any Linux and any user, as an archive or for pip, into build/dist/ (TARGETARCH=arm64)
	@docker/packages.sh build $(if $(filter wheel,$@),wheel)
	$(again) $(if $(TARGETARCH),O=build/$(TARGETARCH)) pack-$@
pack-bundle: $(DAEMON)
	$(Q)CC="$(CC)" COMMIT="$(COMMIT)" SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" \
	    docker/bundle/make-bundle.sh $(DAEMON) $(BUNDLE)
	$(sums)
pack-wheel: pack-bundle
	$(Q)SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)" server/clients/pack.py build/dist build/bundle/$(BUNDLE)
	$(sums)

# If an ordinary user runs podman, it leaves files that belong to other user numbers.
clean: ## Remove build/
	@rm -rf build 2>/dev/null || podman unshare rm -rf build

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(filter-out %.d,$(MAKEFILE_LIST)) | sort

-include $(shell find $(O) -name '*.d' 2>/dev/null)
