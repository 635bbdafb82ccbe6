#include "mqtt/topic.h"

#include <gtest/gtest.h>

#include <string>

namespace pgmqtt::mqtt {
namespace {

struct Match {
    const char* filter;
    const char* topic;
    bool matches;
};

// Sections 4.7.1 to 4.7.3, with the examples they give.
constexpr Match kMatches[] = {
    {"sport/tennis/player1/#", "sport/tennis/player1", true},
    {"sport/tennis/player1/#", "sport/tennis/player1/ranking", true},
    {"sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true},
    {"sport/tennis/player1/#", "sport/tennis/player10", false},
    {"sport/#", "sport", true},
    {"sport/#", "sports", false},
    {"#", "a", true},
    {"#", "/a", true},
    {"sport/tennis/+", "sport/tennis/player1", true},
    {"sport/tennis/+", "sport/tennis/player1/ranking", false},
    {"sport/+", "sport", false},
    {"sport/+", "sport/", true},
    {"+/+", "/finance", true},
    {"/+", "/finance", true},
    {"+", "/finance", false},
    {"+", "finance", true},
    {"+/tennis/#", "sport/tennis", true},
    {"sport/+/player1", "sport/tennis/player1", true},
    {"sport/+/player1", "sport/tennis/player2", false},
    {"+/#", "a", true},
    {"+/#", "a/b/c", true},
    {"a//b", "a//b", true},
    {"a/+/b", "a//b", true},
    {"a/b", "a/b/", false},
    {"a/b/", "a/b", false},
    {"a/b/+", "a/b", false},
    {"/", "/", true},
    {"a//#", "a/", true},
    {"a/b/#", "a", false},
    {"A", "a", false},
    // [MQTT-4.7.2-1]
    {"#", "$SYS/uptime", false},
    {"+/uptime", "$SYS/uptime", false},
    {"+", "$SYS", false},
    {"+/#", "$SYS/uptime", false},
    {"$SYS/#", "$SYS/uptime", true},
    {"$SYS/#", "$SYS", true},
    {"$SYS/+", "$SYS/uptime", true},
    {"$SYS/uptime", "$SYS/uptime", true},
    {"a/+", "a/$b", true},
    {"a/#", "a/$b/c", true},
    {"$SYS/#", "SYS/uptime", false},
};

TEST(Topic, matches) {
    for (const Match& row : kMatches)
        EXPECT_EQ(topic_matches(row.filter, row.topic), row.matches)
            << row.filter << " " << row.topic;
}

TEST(Topic, name_is_checked_at_every_position_and_length) {
    for (size_t length = 1; length < 40; ++length) {
        std::string topic(length, 'a');
        EXPECT_TRUE(is_valid_topic_name(topic));
        for (size_t at = 0; at < length; ++at) {
            for (char bad : {'\0', '+', '#', '\x80', '\xff'}) {
                std::string broken = topic;
                broken[at] = bad;
                EXPECT_FALSE(is_valid_topic_name(broken)) << length << " " << at;
            }
            // Neighbours of the forbidden bytes, for the arithmetic on words.
            for (char good : {'\x01', '"', '$', '*', ',', '\x7f', '/'}) {
                std::string fine = topic;
                fine[at] = good;
                EXPECT_TRUE(is_valid_topic_name(fine)) << length << " " << at;
            }
        }
        EXPECT_TRUE(is_valid_topic_name(topic + "\u20ac"));
        EXPECT_TRUE(is_valid_topic_name("\U0001F600" + topic));
    }
}

TEST(Topic, name_has_1_to_65535_bytes) {
    EXPECT_FALSE(is_valid_topic_name(""));
    EXPECT_TRUE(is_valid_topic_name(std::string(65535, 'a')));
    EXPECT_FALSE(is_valid_topic_name(std::string(65536, 'a')));
    EXPECT_TRUE(is_valid_topic_filter(std::string(65535, '/')));
    EXPECT_FALSE(is_valid_topic_filter(std::string(65536, '/')));
}

TEST(Topic, filter_wildcards_fill_their_level) {
    for (const char* filter :
         {"#", "+", "/", "a/#", "/#", "+/+/#", "a/+/b", "$SYS/#", "$share/g/a"})
        EXPECT_TRUE(is_valid_topic_filter(filter)) << filter;
    for (const char* filter :
         {"", "a#", "#a", "#/", "#/#", "a+", "+a", "++", "a/+b", "a/b#/c", "+#"})
        EXPECT_FALSE(is_valid_topic_filter(filter)) << filter;
}

TEST(Topic, shared_filter_is_taken_apart) {
    std::optional<SharedFilter> shared = parse_shared_filter("$share/group/a/+/#");
    ASSERT_TRUE(shared);
    EXPECT_EQ(shared->share_name, "group");
    EXPECT_EQ(shared->filter, "a/+/#");
    EXPECT_EQ(parse_shared_filter("$share/g//a")->filter, "/a");
    for (const char* filter :
         {"$share/g", "$share/", "$share//a", "$share/g/", "$share/+/a", "$share/#/a",
          "$share/g+/a", "$share/g/a#", "$share", "a/b", "$Share/g/a"})
        EXPECT_FALSE(parse_shared_filter(filter)) << filter;
    EXPECT_TRUE(is_shared_filter("$share/"));
    EXPECT_FALSE(is_shared_filter("$share"));
    EXPECT_FALSE(is_shared_filter("a$share/g/a"));
}

TEST(Topic, levels_are_visited_in_order) {
    std::string seen;
    for_each_level("/a//b/", [&](ByteView level) { seen.append("[").append(level).append("]"); });
    EXPECT_EQ(seen, "[][a][][b][]");
}

}  // namespace
}  // namespace pgmqtt::mqtt
