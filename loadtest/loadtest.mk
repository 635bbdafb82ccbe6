# The load generator, included by the Makefile. Needs libpaho-mqtt-dev and libpq-dev.

LOADTEST_SRCS = $(wildcard loadtest/*.cpp)
LOADTEST_OBJS = $(LOADTEST_SRCS:%.cpp=build/loadtest_objects/%.o)
LOADTEST_CXXFLAGS = -std=c++20 -O2 -g -fno-omit-frame-pointer $(WARNINGS) -Isrc -I. \
    -I$(shell $(PG_CONFIG) --includedir) -MMD -MP
LOADTEST_LIBS = -lxxhash -lpaho-mqtt3a -lpq -lpthread

build/loadtest_objects/loadtest/%.o: loadtest/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(LOADTEST_CXXFLAGS) -c -o $@ $<

build/loadtest: $(LOADTEST_OBJS) $(CORE_LIB)
	$(CXX) $(LOADTEST_CXXFLAGS) -o $@ $^ $(LOADTEST_LIBS)

.PHONY: loadtest
loadtest: build/loadtest

-include $(LOADTEST_OBJS:.o=.d)
