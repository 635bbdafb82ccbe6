// Topic names and filters, section 4.7.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace pgmqtt::mqtt {

using base::ByteView;

inline constexpr size_t kMaxTopicBytes = 65535;

// At least one byte, no wildcard, no NUL, well-formed UTF-8, at most 65535 bytes.
bool is_valid_topic_name(ByteView topic);
// Wildcards stand alone in their level and `#` last [MQTT-4.7.1-1]. Not for `$share/...`: see below.
bool is_valid_topic_filter(ByteView filter);

// `$share/{name}/{filter}`, section 4.8.2.
struct SharedFilter {
    ByteView share_name;
    ByteView filter;
};
// Nothing when the filter is not a shared one; check is_valid_shared_filter() first.
bool is_shared_filter(ByteView filter);
std::optional<SharedFilter> parse_shared_filter(ByteView filter);

// `#` and a leading `+` never match a topic that begins with `$` [MQTT-4.7.2-1].
bool topic_matches(ByteView filter, ByteView topic);

inline bool begins_with_dollar(ByteView topic) { return !topic.empty() && topic.front() == '$'; }

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
