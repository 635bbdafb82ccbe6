#include "mqtt/topic.h"

#include <bit>

#include "mqtt/utf8.h"
#include "mqtt/words.h"

namespace pgmqtt::mqtt {
namespace {

constexpr ByteView kSharePrefix = "$share/";

// All of the word may stand in a topic name, and is ASCII.
bool is_plain(uint64_t word) {
    // `+` and `#` differ in this bit only: one search finds both.
    constexpr uint64_t kDifference = words::kEachByte * ('+' ^ '#');
    static_assert(('+' | ('+' ^ '#')) == '+' && std::has_single_bit(uint8_t{'+' ^ '#'}));
    return words::is_ascii(word) && !words::contains(word, '\0') &&
           !words::contains(word | kDifference, '+');
}

bool has_wildcard(ByteView text) {
    return text.find_first_of("+#") != ByteView::npos;
}

// Takes the first level off `rest` and reports whether another follows.
bool next_level(ByteView& rest, ByteView& level) {
    size_t slash = rest.find('/');
    level = rest.substr(0, slash);
    if (slash == ByteView::npos) return false;
    rest.remove_prefix(slash + 1);
    return true;
}

}  // namespace

bool is_valid_topic_name(ByteView topic) {
    if (topic.empty() || topic.size() > kMaxTopicBytes) return false;
    if (topic.size() >= sizeof(uint64_t)) {
        size_t last = topic.size() - sizeof(uint64_t);
        size_t at = 0;
        while (at < last && is_plain(words::load(topic.data() + at))) at += sizeof(uint64_t);
        // The last word overlaps the one before.
        if (at >= last && is_plain(words::load(topic.data() + last))) return true;
    }
    return is_valid_string(topic) && !has_wildcard(topic);
}

bool is_valid_topic_filter(ByteView filter) {
    if (filter.empty() || filter.size() > kMaxTopicBytes || !is_valid_string(filter)) return false;
    ByteView rest = filter;
    ByteView level;
    bool more = true;
    while (more) {
        more = next_level(rest, level);
        if (level.size() > 1 && has_wildcard(level)) return false;
        if (level == "#" && more) return false;
    }
    return true;
}

bool is_shared_filter(ByteView filter) {
    return filter.starts_with(kSharePrefix);
}

std::optional<SharedFilter> parse_shared_filter(ByteView filter) {
    if (!is_shared_filter(filter)) return std::nullopt;
    ByteView after = filter.substr(kSharePrefix.size());
    size_t slash = after.find('/');
    if (slash == ByteView::npos || slash == 0) return std::nullopt;
    SharedFilter shared{after.substr(0, slash), after.substr(slash + 1)};
    if (has_wildcard(shared.share_name) || !is_valid_string(shared.share_name)) return std::nullopt;
    if (!is_valid_topic_filter(shared.filter)) return std::nullopt;
    return shared;
}

bool topic_matches(ByteView filter, ByteView topic) {
    if (begins_with_dollar(topic) && !begins_with_dollar(filter) &&
        has_wildcard(filter.substr(0, 1)))
        return false;
    ByteView pattern;
    ByteView level;
    while (true) {
        bool more_filter = next_level(filter, pattern);
        if (pattern == "#") return true;
        bool more_topic = next_level(topic, level);
        if (pattern != "+" && pattern != level) return false;
        // `a/#` matches `a` as well, section 4.7.1.2.
        if (!more_topic) return !more_filter || filter == "#";
        if (!more_filter) return false;
    }
}

}  // namespace pgmqtt::mqtt
