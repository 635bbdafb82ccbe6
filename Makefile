# pgmqtt: PGXS builds the extension; the floors that know no PostgreSQL are a library of their own.
#   make help    lists the targets

EXTENSION = pgmqtt
MODULE_big = pgmqtt
# The scripts, as installed, and the library carry the same fingerprint of all scripts: pg/extension.h.
SCHEMA_SCRIPTS = $(wildcard sql/pgmqtt--*.sql)
DATA_built = $(SCHEMA_SCRIPTS:%=build/%)
SCHEMA_FINGERPRINT := $(shell cat $(SCHEMA_SCRIPTS) | cksum | tr ' ' -)
EXTENSION_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" pgmqtt.control)

# base, mqtt, broker and net compile without the server's include path: what they cannot see they
# cannot call. test/lint/ checks the edges between them.
CORE_DIRS = base mqtt broker net
PG_DIRS = pg store sink cdc auth functions workers
CORE_SRCS = $(foreach d,$(CORE_DIRS),$(wildcard src/$(d)/*.cpp))
CORE_OBJS = $(CORE_SRCS:src/%.cpp=build/core/%.o)
CORE_LIB = build/libpgmqtt_core.a
OBJS = src/extension.o $(patsubst %.cpp,%.o,$(foreach d,$(PG_DIRS),$(wildcard src/$(d)/*.cpp)))

PG_CONFIG ?= pg_config
HARDENING = -fstack-protector-strong -fstack-clash-protection -fcf-protection -D_GLIBCXX_ASSERTIONS
WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Werror
VISIBILITY = -fvisibility=hidden -fvisibility-inlines-hidden
# PROFILE=1 keeps frame pointers and line tables for profile/profile.sh.
# (PGXS would take the same variable for compiler flags.)
PROFILE_FLAGS := $(if $(PROFILE),-g -fno-omit-frame-pointer)
override PROFILE :=

CORE_CXXFLAGS = -std=c++20 -O2 -g -fPIC -fno-omit-frame-pointer -D_FORTIFY_SOURCE=2 $(HARDENING) \
    $(WARNINGS) $(VISIBILITY) -Isrc -MMD -MP

# -isystem: the server's headers do not pass our warnings, our code does.
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(shell $(PG_CONFIG) --includedir-server) -MMD -MP
PG_CXXFLAGS = -std=c++20 $(HARDENING) $(WARNINGS) $(VISIBILITY) -Wno-register $(PROFILE_FLAGS)
SHLIB_LINK = $(CORE_LIB) -lxxhash -lstdc++ -Wl,-z,relro -Wl,-z,now -Wl,--exclude-libs,ALL
override with_llvm = no

REGRESS = $(filter-out pgmqtt--%,$(basename $(notdir $(wildcard sql/*.sql))))
REGRESS_OPTS = --inputdir=. --outputdir=build/regress --load-extension=pgmqtt

EXTRA_CLEAN = build $(OBJS:.o=.d)

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

pgmqtt.so: $(CORE_LIB)

build/sql/%.sql: sql/%.sql $(SCHEMA_SCRIPTS)
	@mkdir -p $(@D)
	sed 's/@SCHEMA_FINGERPRINT@/$(SCHEMA_FINGERPRINT)/' $< > $@

src/pg/extension.o: $(SCHEMA_SCRIPTS) pgmqtt.control
src/pg/extension.o: override CPPFLAGS += -DPGMQTT_SCHEMA='"$(SCHEMA_FINGERPRINT)"' \
    -DPGMQTT_VERSION='"$(EXTENSION_VERSION)"'

$(CORE_LIB): $(CORE_OBJS)
	rm -f $@
	ar qcs $@ $^

build/core/%.o: src/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(CORE_CXXFLAGS) -c -o $@ $<

include test/test.mk
include loadtest/loadtest.mk

-include $(CORE_OBJS:.o=.d) $(OBJS:.o=.d)

.PHONY: help
help:
	@echo 'make               build the extension'
	@echo 'make install       install it into the server that pg_config names'
	@echo 'make installcheck  regression tests against a running server (preloaded, PGPORT)'
	@echo 'make check-unit    unit tests and packet tables of the floors without PostgreSQL'
	@echo 'make check-walk    a million random steps of clients, store and restarts'
	@echo 'make check-boundary  errors, exceptions and dying workers where C++ meets PostgreSQL'
	@echo 'make check-wire    a private server and real clients'
	@echo 'make check-crash   kill -9 and a ledger of what was acknowledged'
	@echo 'make fuzz          the fuzz targets (needs clang; FUZZ_SECONDS=30)'
	@echo 'make loadtest      the load generator, build/loadtest'
	@echo 'make check-profile  the folding and drawing of profiles'
	@echo 'make bench-store  what the queue costs the store worker'
	@echo 'make bench-durability  what the values of pgmqtt.durability cost'
	@echo 'make lint          include edges, GUC table, orphan files, formatting'
	@echo 'bash test/run.sh   install what the tests need and run all of them'
