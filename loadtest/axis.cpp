#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "loadtest/plot.h"

namespace pgmqtt::loadtest {

namespace {

// 1, 2 or 5 times a power of ten, such that about five of them reach `length`.
double round_step(double length) {
    const double rough = length / 5;
    const double magnitude = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * magnitude >= rough) return factor * magnitude;
    return 10 * magnitude;
}

std::string without_zeros(std::string digits) {
    if (digits.find('.') == std::string::npos) return digits;
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return digits;
}

}  // namespace

Axis linear_axis(double highest) {
    Axis axis;
    if (!std::isfinite(highest) || highest < 1e-100 || highest > 1e100) highest = 1;
    const double step = round_step(highest);
    // A hair less, so that 0.30000000000000004 does not get a step more than 0.3.
    const double steps = std::max(1.0, std::ceil(highest / step - 1e-9));
    axis.to = steps * step;
    for (double i = 0; i <= steps; ++i) axis.ticks.push_back(i * step);
    return axis;
}

Axis logarithmic_axis(double lowest, double highest) {
    Axis axis;
    if (!std::isfinite(highest) || highest <= 0) highest = 1;
    if (!std::isfinite(lowest) || lowest <= 0 || lowest > highest) lowest = highest;
    const double first = std::max(-30.0, std::floor(std::log10(lowest) + 1e-9));
    const double last = std::min(30.0, std::max(first + 1, std::ceil(std::log10(highest) - 1e-9)));
    axis.from = std::pow(10, first);
    axis.to = std::pow(10, last);
    for (double decade = first; decade <= last; ++decade)
        axis.ticks.push_back(std::pow(10, decade));
    return axis;
}

std::vector<Point> rates_of(const std::vector<Point>& counter) {
    std::vector<Point> rates;
    for (size_t i = 1; i < counter.size(); ++i) {
        const double time = counter[i].x - counter[i - 1].x;
        const double growth = counter[i].y - counter[i - 1].y;
        if (time > 0 && growth >= 0) rates.push_back({counter[i].x, growth / time});
    }
    return rates;
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t pieces) {
    if (pieces == 0 || points.size() <= 2 * pieces) return points;
    std::vector<Point> kept;
    for (size_t piece = 0; piece < pieces; ++piece) {
        const size_t begin = points.size() * piece / pieces;
        const size_t end = points.size() * (piece + 1) / pieces;
        size_t low = begin;
        size_t high = begin;
        for (size_t i = begin; i < end; ++i) {
            if (points[i].y < points[low].y) low = i;
            if (points[i].y > points[high].y) high = i;
        }
        kept.push_back(points[std::min(low, high)]);
        if (low != high) kept.push_back(points[std::max(low, high)]);
    }
    return kept;
}

std::string short_number(double value) {
    if (!std::isfinite(value)) return "-";
    static constexpr struct {
        double from;
        const char* suffix;
    } kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
    char digits[64];
    for (const auto& unit : kUnits) {
        // Rounded up by the three digits, 999.6 is 1000 already.
        if (std::fabs(value) < unit.from * 0.9995) continue;
        const double scaled = value / unit.from;
        const int decimals = std::fabs(scaled) < 9.995 ? 2 : std::fabs(scaled) < 99.95 ? 1 : 0;
        std::snprintf(digits, sizeof digits, "%.*f", decimals, scaled);
        return without_zeros(digits) + unit.suffix;
    }
    std::snprintf(digits, sizeof digits, "%.3g", value);
    return digits;
}

}  // namespace pgmqtt::loadtest
