#include "loadtest/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pgmqtt::loadtest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

TEST(AxisTest, EndsAtARoundNumber) {
    EXPECT_DOUBLE_EQ(100, linear_axis(98).to);
    EXPECT_DOUBLE_EQ(100, linear_axis(100).to);
    EXPECT_DOUBLE_EQ(0.3, linear_axis(0.1 + 0.2).to);
    EXPECT_DOUBLE_EQ(150'000, linear_axis(101'000).to);
    EXPECT_EQ(0, linear_axis(7).ticks.front());
    EXPECT_DOUBLE_EQ(linear_axis(7).to, linear_axis(7).ticks.back());
}

TEST(AxisTest, NothingToShowIsZeroToOne) {
    for (const double highest : {0.0, -5.0, -kInfinity, kInfinity, std::nan("")}) {
        const Axis axis = linear_axis(highest);
        EXPECT_EQ(0, axis.from);
        EXPECT_DOUBLE_EQ(1, axis.to);
        EXPECT_GE(axis.ticks.size(), 2u);
        EXPECT_LE(axis.ticks.size(), 12u);
    }
}

TEST(AxisTest, DecadesHoldTheData) {
    const Axis axis = logarithmic_axis(0.03, 250);
    EXPECT_DOUBLE_EQ(0.01, axis.from);
    EXPECT_DOUBLE_EQ(1000, axis.to);
    EXPECT_EQ(6u, axis.ticks.size());
}

TEST(AxisTest, OneValueStillHasADecade) {
    for (const double value : {1.0, 1000.0, 0.001, 3.0}) {
        const Axis axis = logarithmic_axis(value, value);
        EXPECT_LE(axis.from, value * 1.000001);
        EXPECT_GE(axis.to, value);
        EXPECT_GE(axis.to / axis.from, 9.99);
    }
    EXPECT_LT(logarithmic_axis(kInfinity, -kInfinity).from, logarithmic_axis(kInfinity, 0).to);
}

TEST(RatesTest, GrowthPerSecond) {
    const auto rates = rates_of({{0, 100}, {1, 150}, {3, 350}});
    ASSERT_EQ(2u, rates.size());
    EXPECT_DOUBLE_EQ(50, rates[0].y);
    EXPECT_DOUBLE_EQ(100, rates[1].y);
    EXPECT_DOUBLE_EQ(3, rates[1].x);
}

TEST(RatesTest, ACounterThatFellHasNoRate) {
    const auto rates = rates_of({{0, 100}, {1, 7}, {2, 9}});
    ASSERT_EQ(1u, rates.size());
    EXPECT_DOUBLE_EQ(2, rates[0].y);
}

TEST(RatesTest, EmptyAndOnePointAndNoTime) {
    EXPECT_TRUE(rates_of({}).empty());
    EXPECT_TRUE(rates_of({{1, 5}}).empty());
    EXPECT_TRUE(rates_of({{1, 5}, {1, 9}}).empty());
}

TEST(ThinnedTest, KeepsThePeaks) {
    std::vector<Point> points;
    for (int i = 0; i < 10'000; ++i) points.push_back({static_cast<double>(i), 1});
    points[777].y = 1000;
    points[778].y = -1000;
    const auto kept = thinned(points, 100);
    EXPECT_LE(kept.size(), 200u);
    double highest = 0;
    double lowest = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
        highest = std::max(highest, kept[i].y);
        lowest = std::min(lowest, kept[i].y);
        if (i > 0) {
            EXPECT_LT(kept[i - 1].x, kept[i].x);
        }
    }
    EXPECT_EQ(1000, highest);
    EXPECT_EQ(-1000, lowest);
    EXPECT_EQ(2u, thinned({{0, 1}, {1, 2}}, 100).size());
}

TEST(EscapeTest, MarkupBecomesText) {
    EXPECT_EQ("&lt;b a=&quot;1&quot;&gt;&amp;&#39;", escape_html("<b a=\"1\">&'"));
    EXPECT_EQ("\xc3\xa4 ok", escape_html(std::string("\xc3\xa4\x01\x1b\0 ok", 8)));
}

TEST(ShortNumberTest, ThreeDigits) {
    EXPECT_EQ("0", short_number(0));
    EXPECT_EQ("0.25", short_number(0.25));
    EXPECT_EQ("12.5", short_number(12.5));
    EXPECT_EQ("100", short_number(100));
    EXPECT_EQ("1k", short_number(999.9));
    EXPECT_EQ("12.3k", short_number(12'345));
    EXPECT_EQ("3.2M", short_number(3.2e6));
    EXPECT_EQ("-1.5k", short_number(-1500));
    EXPECT_EQ("-", short_number(kInfinity));
}

TEST(PlotTest, EmptySeriesSayNoData) {
    const std::string svg = svg_of({"Nothing", "1/s", {{"a", {}}}});
    EXPECT_NE(std::string::npos, svg.find("no data"));
    EXPECT_EQ(std::string::npos, svg.find("nan"));
    EXPECT_EQ(std::string::npos, svg.find("inf"));
    EXPECT_NE(std::string::npos, svg_of({"None", "", {}}).find("no data"));
}

TEST(PlotTest, OnePointAndOddValuesAreDrawable) {
    for (const Scale scale : {Scale::kLinear, Scale::kLogarithmic}) {
        for (const Point point : {Point{0, 0}, Point{0, 5}, Point{3, 0}, Point{-2, -2},
                                  Point{1, std::nan("")}, Point{kInfinity, 1}}) {
            const std::string svg = svg_of({"One", "1/s", {{"a", {point}}}, scale});
            EXPECT_EQ(std::string::npos, svg.find("nan"));
            EXPECT_EQ(std::string::npos, svg.find("inf"));
        }
    }
    EXPECT_EQ(1u, count_of(svg_of({"One", "1/s", {{"a", {{1, 1}}}}}), "<circle"));
}

TEST(PlotTest, NamesAreEscaped) {
    const std::string svg = svg_of({"<T>", "<U>", {{"<script>", {{1, 1}}}}});
    EXPECT_EQ(std::string::npos, svg.find("<script>"));
    EXPECT_EQ(std::string::npos, svg.find("<T>"));
    EXPECT_EQ(std::string::npos, svg.find("<U>"));
}

}  // namespace
}  // namespace pgmqtt::loadtest
