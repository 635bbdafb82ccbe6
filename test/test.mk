# Test targets, included by the Makefile.

# The floors again under sanitizers, once, for the unit tests and for the fuzzers: hence clang.
SANITIZED_CXX ?= clang++
SANITIZED_CXXFLAGS = -std=c++20 -O1 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
    -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS $(WARNINGS) -Isrc -I. -MMD -MP
TEST_LIBS = -lgtest -lgtest_main -lxxhash -lpthread

# Of the load test, what runs without a broker and a server.
UNIT_SRCS = $(wildcard test/unit/*.cpp test/unit/*/*.cpp)
LOADTEST_TESTED = axis histogram meter payload plot process_usage report_html sample_series \
    stream_tracker
SANITIZED_OBJS = $(CORE_SRCS:src/%.cpp=build/sanitized/%.o)
UNIT_OBJS = $(SANITIZED_OBJS) $(UNIT_SRCS:%.cpp=build/sanitized/%.o) \
    $(LOADTEST_TESTED:%=build/sanitized/loadtest/%.o)

build/sanitized/%.o: src/%.cpp
	@mkdir -p $(@D)
	$(SANITIZED_CXX) $(SANITIZED_CXXFLAGS) -c -o $@ $<

build/sanitized/loadtest/%.o: loadtest/%.cpp
	@mkdir -p $(@D)
	$(SANITIZED_CXX) $(SANITIZED_CXXFLAGS) -c -o $@ $<

# The tests themselves unoptimized and without UBSan, which is for the code they look at: they take longer
# to compile than to run.
build/sanitized/test/%.o: test/%.cpp
	@mkdir -p $(@D)
	$(SANITIZED_CXX) $(SANITIZED_CXXFLAGS) -O0 -fno-sanitize=undefined,fuzzer-no-link -Itest \
	    -DPGMQTT_PACKET_TABLES='"$(abspath test/packets)"' -c -o $@ $<

build/unit_tests: $(UNIT_OBJS)
	$(SANITIZED_CXX) $(SANITIZED_CXXFLAGS) -o $@ $^ $(TEST_LIBS)

.PHONY: check-unit check-wire check-crash fuzz lint
check-unit: build/unit_tests
	build/unit_tests --gtest_brief=1

# A million random steps, without sanitizers; PGMQTT_WALK_SEED=2 PGMQTT_WALK_STEPS=50000000 by hand.
build/session_walk: test/unit/broker/session_walk_test.cpp $(CORE_LIB)
	$(CXX) $(CORE_CXXFLAGS) -Itest -o $@ $< $(CORE_LIB) -lgtest -lgtest_main -lxxhash -lpthread

.PHONY: check-walk
check-walk: export PGMQTT_WALK_STEPS ?= 1000000
check-walk: build/session_walk
	build/session_walk --gtest_brief=1

-include build/session_walk.d

# Each target grows its corpus under build/fuzz/; the seeds come from the packet tables.
FUZZ_SECONDS ?= 30
FUZZ_TARGETS = decode frame broker queue
FUZZERS = $(FUZZ_TARGETS:%=build/fuzz/%_fuzz)

build/fuzz/%_fuzz: test/fuzz/%_fuzz.cpp $(SANITIZED_OBJS)
	@mkdir -p $(@D)
	$(SANITIZED_CXX) $(SANITIZED_CXXFLAGS) -fsanitize=fuzzer -o $@ $(filter %.cpp %.o,$^) -lxxhash

build/fuzz/seeds: test/fuzz/corpus.py $(wildcard test/packets/*.tsv test/fuzz/corpus/*.hex)
	rm -rf $@
	python3 test/fuzz/corpus.py test/packets $@

.PHONY: fuzzers
fuzzers: $(FUZZERS) build/fuzz/seeds

fuzz: $(FUZZERS) build/fuzz/seeds
	@mkdir -p $(FUZZ_TARGETS:%=build/fuzz/corpus/%) $(FUZZ_TARGETS:%=build/fuzz/seeds/%)
	set -e; for target in $(FUZZ_TARGETS); do \
	    build/fuzz/$${target}_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -verbosity=0 \
	        -print_final_stats=1 -artifact_prefix=build/fuzz/$${target}- \
	        build/fuzz/corpus/$$target build/fuzz/seeds/$$target; \
	done

# The fewest inputs that reach what the corpus under build/ reaches, into test/fuzz/corpus/.
.PHONY: fuzz-corpus
fuzz-corpus: $(FUZZERS) build/fuzz/seeds
	set -e; for target in $(FUZZ_TARGETS); do \
	    rm -rf build/fuzz/kept; mkdir -p build/fuzz/kept; \
	    build/fuzz/$${target}_fuzz -set_cover_merge=1 -use_counters=0 -max_len=400 \
	        build/fuzz/kept build/fuzz/corpus/$$target build/fuzz/seeds/$$target; \
	    python3 test/fuzz/corpus.py --keep $$target build/fuzz/kept; \
	done

# Measurements, for people: numbers on a shared machine prove nothing to CI. Needs
# libbenchmark-dev.
BENCH_CXXFLAGS = -std=c++20 -O2 -g $(WARNINGS) -Isrc

build/bench/%_bench: test/bench/%_bench.cpp $(CORE_SRCS) $(wildcard src/*/*.h)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(wildcard src/broker/*_tree.cpp src/mqtt/topic.cpp \
	    src/mqtt/utf8.cpp) -lbenchmark -lxxhash -lpthread

build/bench/broker_bench: test/bench/broker_bench.cpp $(CORE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(CORE_LIB) -lbenchmark -lxxhash -lpthread

.PHONY: bench
bench: build/bench/matching_bench build/bench/broker_bench
	build/bench/matching_bench
	build/bench/broker_bench

# The boundary with PostgreSQL, in a module of its own that is preloaded in place of pgmqtt.
BOUNDARY_OBJS = $(patsubst %.cpp,%.o,$(wildcard test/boundary/*.cpp)) src/workers/main.o \
    $(filter-out src/pg/properties.o,$(patsubst %.cpp,%.o,$(wildcard src/pg/*.cpp)))
BOUNDARY_MODULE = build/boundary/pgmqtt_boundary.so
EXTRA_CLEAN += $(wildcard test/boundary/*.o test/boundary/*.d)

$(BOUNDARY_MODULE): $(BOUNDARY_OBJS)
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -lxxhash -Wl,-z,relro -Wl,-z,now

.PHONY: check-boundary
check-boundary: $(BOUNDARY_MODULE)
	$(PYTEST) $(or $(T),test/boundary)

-include $(BOUNDARY_OBJS:.o=.d)

# What the queue's log costs the store worker. test/bench/store_bench.py runs it.
STORE_BENCH_OBJS = test/bench/store_bench.o $(filter src/store/queue_log% src/store/queue_segments.o \
    src/store/message_%,$(patsubst %.cpp,%.o,$(wildcard src/store/*.cpp))) \
    $(filter-out src/pg/properties.o,$(patsubst %.cpp,%.o,$(wildcard src/pg/*.cpp))) src/workers/main.o
STORE_BENCH_CORE = $(addprefix build/core/broker/,queue_log.o queue_ledger.o session_changes.o \
    store_record.o batch.o message_view.o)
STORE_BENCH_MODULE = build/bench/pgmqtt_store_bench.so
EXTRA_CLEAN += $(wildcard test/bench/*.o test/bench/*.d)

$(STORE_BENCH_MODULE): $(STORE_BENCH_OBJS) $(STORE_BENCH_CORE)
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -lxxhash -Wl,-z,relro -Wl,-z,now

.PHONY: bench-store
bench-store: $(STORE_BENCH_MODULE)
	/usr/bin/python3 test/bench/store_bench.py

# Debian's python3 has pytest, paho and psycopg2; `bash test/run.sh` installs them. T=file narrows.
PYTEST = /usr/bin/python3 -m pytest -q -p no:cacheprovider --tb=short
check-wire: all
	$(PYTEST) $(or $(T),test/wire)

check-crash: all
	$(PYTEST) -s $(or $(T),test/crash)

# pgmqtt.durability: rates, latency and WAL.
.PHONY: bench-durability
bench-durability: all loadtest
	/usr/bin/python3 test/bench/durability_bench.py

lint:
	$(PYTEST) -rP test/lint

.PHONY: check-profile
check-profile:
	$(PYTEST) test/profile

-include $(UNIT_OBJS:.o=.d) $(FUZZERS:=.d)
