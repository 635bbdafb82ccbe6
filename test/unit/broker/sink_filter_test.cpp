#include "broker/sink_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace pgmqtt::broker {
namespace {

SinkFilter parsed(base::ByteView text) {
    auto result = parse_sink_filter(text);
    EXPECT_TRUE(result.ok()) << text << ": " << (result ? "" : result.error().message);
    return result ? *result : SinkFilter{};
}

std::string refusal(base::ByteView text) {
    auto result = parse_sink_filter(text);
    return result ? "accepted as " + result->filter : result.error().message;
}

TEST(SinkFilterTest, CapturesBecomeWildcards) {
    SinkFilter filter = parsed("sensors/{site}/temp");
    EXPECT_EQ(filter.filter, "sensors/+/temp");
    ASSERT_EQ(filter.captures.size(), 1u);
    EXPECT_EQ(filter.captures[0].name, "site");
    EXPECT_EQ(filter.captures[0].level, 1u);
    EXPECT_FALSE(filter.captures[0].rest);

    EXPECT_EQ(parsed("$SYS/broker/{what}").filter, "$SYS/broker/+");

    filter = parsed("logs/{host}/{path...}");
    EXPECT_EQ(filter.filter, "logs/+/#");
    ASSERT_EQ(filter.captures.size(), 2u);
    EXPECT_EQ(filter.captures[1].level, 2u);
    EXPECT_TRUE(filter.captures[1].rest);
}

TEST(SinkFilterTest, PlainFiltersStayAsTheyAre) {
    for (const char* text : {"a", "/", "a//b", "+/b", "a/#", "#", "+", "a b/\xc3\xa9"}) {
        SinkFilter filter = parsed(text);
        EXPECT_EQ(filter.filter, text);
        EXPECT_TRUE(filter.captures.empty());
    }
}

TEST(SinkFilterTest, NamesFoldLikeIdentifiers) {
    EXPECT_EQ(parsed("d/{deviceId}").captures[0].name, "deviceid");
    EXPECT_EQ(parsed("d/{_X9}").captures[0].name, "_x9");
    EXPECT_EQ(refusal("{a}/{A}"), "capture \"a\" appears twice");
}

TEST(SinkFilterTest, FaultsAreNamed) {
    EXPECT_EQ(refusal(""), "the filter must not be empty");
    EXPECT_EQ(refusal("a/x{b}"), "a capture must be a whole level, not a part of \"x{b}\"");
    EXPECT_EQ(refusal("a/{b"), "a capture must be a whole level, not a part of \"{b\"");
    EXPECT_EQ(refusal("a/}"), "a capture must be a whole level, not a part of \"}\"");
    EXPECT_EQ(refusal("a/{b}{c}"), "a capture must be a whole level, not a part of \"{b}{c}\"");
    EXPECT_EQ(refusal("a/{}"), "\"\" cannot be the name of a capture");
    EXPECT_EQ(refusal("a/{...}"), "\"\" cannot be the name of a capture");
    EXPECT_EQ(refusal("a/{1b}"), "\"1b\" cannot be the name of a capture");
    EXPECT_EQ(refusal("a/{b c}"), "\"b c\" cannot be the name of a capture");
    EXPECT_EQ(refusal("a/{b..}"), "\"b..\" cannot be the name of a capture");
    EXPECT_EQ(refusal("{p...}/b"), "nothing may follow {p...}");
    EXPECT_EQ(refusal("a/{b}/{b}"), "capture \"b\" appears twice");
    EXPECT_EQ(refusal("a/#/b"), "\"a/#/b\" is not a valid topic filter");
    EXPECT_EQ(refusal("a+/b"), "\"a+/b\" is not a valid topic filter");
    EXPECT_EQ(refusal("$share/g/a"), "the filter of a sink cannot be a shared subscription");
    EXPECT_EQ(refusal("$SYS"), "the filter of a sink cannot begin with \"$\"");
    EXPECT_EQ(refusal("$other/#"), "the filter of a sink cannot begin with \"$\"");
    EXPECT_EQ(refusal("a/{" + std::string(64, 'n') + "}"),
              "the name of capture \"" + std::string(64, 'n') + "\" is longer than 63 bytes");
    EXPECT_EQ(refusal(std::string(65536, 'a')).substr(0, 3), "\"aa");
}

TEST(SinkFilterTest, TooManyCapturesAreRefused) {
    std::string text = "a";
    for (int i = 0; i < 101; ++i) text += "/{c" + std::to_string(i) + "}";
    EXPECT_EQ(refusal(text), "a filter may have at most 100 captures");
}

TEST(SinkFilterTest, CapturedTextIsTheLevel) {
    SinkFilter filter = parsed("s/{a}/t/{b}");
    EXPECT_EQ(captured_text(filter.captures[0], "s/one/t/two"), "one");
    EXPECT_EQ(captured_text(filter.captures[1], "s/one/t/two"), "two");
    EXPECT_EQ(captured_text(filter.captures[0], "s//t/"), "");
    EXPECT_EQ(captured_text(filter.captures[1], "s//t/"), "");
    EXPECT_EQ(captured_text(parsed("{x}").captures[0], "whole"), "whole");
}

TEST(SinkFilterTest, CapturedRestMayBeAbsent) {
    SinkFilter filter = parsed("logs/{path...}");
    EXPECT_EQ(captured_text(filter.captures[0], "logs/a/b"), "a/b");
    EXPECT_EQ(captured_text(filter.captures[0], "logs/"), "");
    EXPECT_EQ(captured_text(filter.captures[0], "logs"), std::nullopt);
    EXPECT_EQ(captured_text(parsed("{all...}").captures[0], "a/b"), "a/b");
}

}  // namespace
}  // namespace pgmqtt::broker
