// Plots over time as SVG, to stand inside a page: no script, no font, no colour of their own beyond
// a class per series (s0, s1, ...).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pgmqtt::loadtest {

struct Point {
    double x = 0;  // seconds
    double y = 0;
};

struct Series {
    std::string name;
    std::vector<Point> points;
};

enum class Scale { kLinear, kLogarithmic };

struct Plot {
    std::string title;
    std::string unit;
    std::vector<Series> series;
    Scale scale = Scale::kLinear;
};

// Where an axis begins and ends, and the values that get a label.
struct Axis {
    double from = 0;
    double to = 1;
    std::vector<double> ticks;
};

// From 0 to a round number at or above `highest`; a highest that is 0, negative or not finite gives
// the axis of 0 to 1.
Axis linear_axis(double highest);

// Whole decades around both; values that are not positive have no place on it.
Axis logarithmic_axis(double lowest, double highest);

// Growth per second between neighbours, at the later one. A counter that fell (its server was
// restarted or reset) says nothing about that interval: it has no point.
std::vector<Point> rates_of(const std::vector<Point>& counter);

// At most about twice `pieces` points; each piece of the time keeps its lowest and its highest.
std::vector<Point> thinned(const std::vector<Point>& points, size_t pieces);

std::string escape_html(std::string_view text);

// "0", "0.25", "12.5k", "3.2M".
std::string short_number(double value);

std::string svg_of(const Plot& plot);

}  // namespace pgmqtt::loadtest
