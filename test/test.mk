# Test targets, included by the Makefile.

TEST_CXXFLAGS = -std=c++20 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
    -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS $(WARNINGS) -Isrc -Itest -MMD -MP \
    -DPGMQTT_PACKET_TABLES='"$(abspath test/packets)"'
TEST_LIBS = -lgtest -lgtest_main -lxxhash -lpthread

# The floors again, under sanitizers.
UNIT_SRCS = $(wildcard test/unit/*.cpp test/unit/*/*.cpp)
UNIT_OBJS = $(CORE_SRCS:src/%.cpp=build/asan/%.o) $(UNIT_SRCS:%.cpp=build/asan/%.o)

build/asan/%.o: src/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(TEST_CXXFLAGS) -c -o $@ $<

build/asan/test/%.o: test/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(TEST_CXXFLAGS) -c -o $@ $<

build/unit_tests: $(UNIT_OBJS)
	$(CXX) $(TEST_CXXFLAGS) -o $@ $^ $(TEST_LIBS)

.PHONY: check-unit check-wire check-crash fuzz lint
check-unit: build/unit_tests
	build/unit_tests --gtest_brief=1

-include $(UNIT_OBJS:.o=.d)
