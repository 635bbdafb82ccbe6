#include "loadtest/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace pgmqtt::loadtest {

namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 230;
constexpr double kLeft = 58;
constexpr double kRight = 12;
constexpr double kTop = 10;
constexpr double kBottom = 26;
constexpr size_t kPieces = 500;
constexpr size_t kPointsWithMarks = 150;  // more would be a band of dots
constexpr size_t kClasses = 10;

struct Range {
    double lowest = std::numeric_limits<double>::infinity();
    double highest = -std::numeric_limits<double>::infinity();

    void include(double value) {
        lowest = std::min(lowest, value);
        highest = std::max(highest, value);
    }
};

std::string fixed(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.1f", value);
    return digits;
}

// From values to places in the picture.
class Canvas {
   public:
    Canvas(const Plot& plot) : scale_(plot.scale) {
        Range x;
        Range y;
        for (const Series& series : plot.series) {
            for (const Point& point : series.points) {
                if (!is_drawable(point)) continue;
                x.include(point.x);
                y.include(point.y);
            }
        }
        y_axis_ = scale_ == Scale::kLinear ? linear_axis(y.highest)
                                           : logarithmic_axis(y.lowest, y.highest);
        x_axis_ = linear_axis(x.highest);
        // Seconds end where the data ends; what came before the measured window is left of 0.
        if (x.highest > 0) x_axis_.to = x.highest;
        if (x.lowest < 0) x_axis_.from = x.lowest;
    }

    bool is_drawable(const Point& point) const {
        return std::isfinite(point.x) && std::isfinite(point.y) &&
               (scale_ == Scale::kLinear || point.y > 0);
    }
    double place_x(double x) const {
        return kLeft + (x - x_axis_.from) / (x_axis_.to - x_axis_.from) * (kWidth - kLeft - kRight);
    }
    double place_y(double y) const {
        double share = (y - y_axis_.from) / (y_axis_.to - y_axis_.from);
        if (scale_ == Scale::kLogarithmic)
            share = std::log(y / y_axis_.from) / std::log(y_axis_.to / y_axis_.from);
        return kTop + (1 - share) * (kHeight - kTop - kBottom);
    }
    const Axis& x_axis() const { return x_axis_; }
    const Axis& y_axis() const { return y_axis_; }

   private:
    Scale scale_;
    Axis x_axis_;
    Axis y_axis_;
};

std::string line(double x1, double y1, double x2, double y2) {
    return "<line x1=\"" + fixed(x1) + "\" y1=\"" + fixed(y1) + "\" x2=\"" + fixed(x2) +
           "\" y2=\"" + fixed(y2) + "\"/>";
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
    return "<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + anchor + "\">" +
           escape_html(text) + "</text>";
}

std::string grid_of(const Canvas& canvas) {
    std::string out = "<g class=\"grid\">";
    for (const double tick : canvas.y_axis().ticks) {
        const double y = canvas.place_y(tick);
        out += line(kLeft, y, kWidth - kRight, y);
        out += label(kLeft - 6, y + 4, "end", short_number(tick));
    }
    for (const double tick : canvas.x_axis().ticks) {
        if (tick > canvas.x_axis().to) break;
        const double x = canvas.place_x(tick);
        out += line(x, kHeight - kBottom, x, kHeight - kBottom + 4);
        out += label(x, kHeight - kBottom + 17, "middle", short_number(tick) + " s");
    }
    return out + "</g>";
}

std::string class_of(size_t index) {
    return "s" + std::to_string(index % kClasses);
}

std::string curve_of(const Series& series, size_t index, const Plot& plot, const Canvas& canvas) {
    std::string path;
    std::string marks;
    const std::vector<Point> points = thinned(series.points, kPieces);
    for (const Point& point : points) {
        if (!canvas.is_drawable(point)) continue;
        const std::string x = fixed(canvas.place_x(point.x));
        const std::string y = fixed(canvas.place_y(point.y));
        path += (path.empty() ? "M" : "L") + x + " " + y;
        if (points.size() > kPointsWithMarks) continue;
        marks += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"2\"><title>" +
                 escape_html(series.name + ": " + short_number(point.y) + " " + plot.unit + " at " +
                             fixed(point.x) + " s") +
                 "</title></circle>";
    }
    return "<g class=\"" + class_of(index) + "\"><path d=\"" + path + "\"/>" + marks + "</g>";
}

std::string legend_of(const Plot& plot) {
    std::string out = "<p class=\"legend\">";
    for (size_t i = 0; i < plot.series.size(); ++i) {
        out += "<span class=\"" + class_of(i) + "\"><i></i>" + escape_html(plot.series[i].name) +
               "</span> ";
    }
    return out + "</p>";
}

}  // namespace

std::string escape_html(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                // Control characters have no place in a page, escaped or not.
                if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
        }
    }
    return out;
}

std::string svg_of(const Plot& plot) {
    const Canvas canvas(plot);
    const bool is_empty = std::all_of(plot.series.begin(), plot.series.end(),
                                      [](const Series& series) { return series.points.empty(); });
    std::string out = "<figure><figcaption>" + escape_html(plot.title);
    if (!plot.unit.empty()) out += " <small>" + escape_html(plot.unit) + "</small>";
    out += "</figcaption><svg viewBox=\"0 0 720 230\" role=\"img\" aria-label=\"" +
           escape_html(plot.title) + "\">";
    out += grid_of(canvas);
    for (size_t i = 0; i < plot.series.size(); ++i)
        out += curve_of(plot.series[i], i, plot, canvas);
    if (is_empty) out += label(kWidth / 2, kHeight / 2, "middle", "no data");
    return out + "</svg>" + legend_of(plot) + "</figure>\n";
}

}  // namespace pgmqtt::loadtest
