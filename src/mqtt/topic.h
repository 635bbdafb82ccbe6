// Topic names and filters, section 4.7.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace pgmqtt::mqtt {

using base::ByteView;

inline constexpr size_t kMaxTopicBytes = 65535;

// At least one byte, no wildcard, no NUL, well-formed UTF-8, at most 65535 bytes.
bool is_valid_topic_name(ByteView topic);
// At least one byte, a valid string; wildcards fill their level and `#` is last [MQTT-4.7.1-1]
// [MQTT-4.7.1-2]. Looks at `$share/...` as at any other filter: see below.
bool is_valid_topic_filter(ByteView filter);

// `$share/{name}/{filter}`, section 4.8.2.
struct SharedFilter {
    ByteView share_name;
    ByteView filter;
};
// Begins with `$share/`: meant to be shared, valid or not.
bool is_shared_filter(ByteView filter);
// Nothing unless the share name has at least one byte and no wildcard, and a valid filter follows
// [MQTT-4.8.2-1] [MQTT-4.8.2-2].
std::optional<SharedFilter> parse_shared_filter(ByteView filter);
inline bool is_valid_shared_filter(ByteView filter) {
    return parse_shared_filter(filter).has_value();
}

// Both must be valid, and the filter not a shared one (match SharedFilter::filter).
// `#` and a leading `+` never match a topic that begins with `$` [MQTT-4.7.2-1].
bool topic_matches(ByteView filter, ByteView topic);

inline bool begins_with_dollar(ByteView topic) {
    return !topic.empty() && topic.front() == '$';
}

inline size_t level_count(ByteView topic) {
    return static_cast<size_t>(std::count(topic.begin(), topic.end(), '/')) + 1;
}

// Calls visit(ByteView level) for each level, in order; an empty level is a level.
template <class Visit>
void for_each_level(ByteView topic, Visit visit) {
    size_t start = 0;
    while (true) {
        size_t slash = topic.find('/', start);
        if (slash == ByteView::npos) break;
        visit(topic.substr(start, slash - start));
        start = slash + 1;
    }
    visit(topic.substr(start));
}

}  // namespace pgmqtt::mqtt
