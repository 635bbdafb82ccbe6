// The filter of a sink: a topic filter in which a whole level may be a named capture.
//   sensors/{site}/temp   subscribes to sensors/+/temp; column site is the level's text
//   logs/{path...}        subscribes to logs/#;         column path is the rest of the topic
// Both the broker, which routes by it, and the sink worker, which fills the columns, read it here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace pgmqtt::broker {

struct Capture {
    std::string name;    // as an unquoted SQL identifier: in lower case
    uint32_t level = 0;  // counted from 0
    bool rest = false;   // {name...}: from this level to the end
};

struct SinkFilter {
    std::string filter;  // captures turned into wildcards
    std::vector<Capture> captures;
};

struct SinkFilterError {
    std::string message;
    std::string hint;  // may be empty
};

inline constexpr size_t kMaxCaptures = 100;

base::Result<SinkFilter, SinkFilterError> parse_sink_filter(base::ByteView text);

// What `capture` holds of a topic that matches the filter. Nothing when the topic ends before it:
// `logs/{path...}` matches `logs`, as `logs/#` does [MQTT-4.7.1-2].
std::optional<base::ByteView> captured_text(const Capture& capture, base::ByteView topic);

}  // namespace pgmqtt::broker
