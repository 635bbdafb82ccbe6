// What is sampled once a second on both sides of a run.
#pragma once

#include <vector>

namespace pgmqtt::loadtest {

struct Sample {
    double t = 0;  // seconds since the run began
};

struct SampleSeries {
    std::vector<Sample> samples;
};

}  // namespace pgmqtt::loadtest
