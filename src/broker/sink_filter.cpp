#include "broker/sink_filter.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "broker/sys_topics.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

using base::ByteView;

constexpr size_t kMaxNameBytes = 63;  // NAMEDATALEN - 1
constexpr ByteView kEllipsis = "...";

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string quote(ByteView text) {
    return "\"" + std::string(text) + "\"";
}

auto refuse(std::string message, std::string hint = {}) {
    return base::fail(SinkFilterError{std::move(message), std::move(hint)});
}

bool is_name(ByteView name) {
    return !name.empty() && is_letter(name.front()) &&
           std::all_of(name.begin(), name.end(),
                       [](char c) { return is_letter(c) || is_digit(c); });
}

// Folded as SQL folds an identifier without quotes, so that `{deviceId}` is found by `deviceId`.
std::string folded(ByteView name) {
    std::string lower(name);
    for (char& c : lower)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return lower;
}

// The capture that `level` is; the caller has seen that it holds a brace.
base::Result<Capture, SinkFilterError> parse_capture(ByteView level, uint32_t position) {
    bool whole = level.size() >= 2 && level.front() == '{' && level.back() == '}' &&
                 level.find_first_of("{}", 1) == level.size() - 1;
    if (!whole)
        return refuse("a capture must be a whole level, not a part of " + quote(level),
                      "Use {name} between slashes, or + and split the topic in the statement.");
    ByteView name = level.substr(1, level.size() - 2);
    Capture capture;
    capture.level = position;
    if (name.ends_with(kEllipsis)) {
        capture.rest = true;
        name.remove_suffix(kEllipsis.size());
    }
    if (!is_name(name))
        return refuse(
            quote(name) + " cannot be the name of a capture",
            "A name has letters a to z, digits and underscores, and begins with no digit.");
    if (name.size() > kMaxNameBytes)
        return refuse("the name of capture " + quote(name) + " is longer than 63 bytes");
    capture.name = folded(name);
    return capture;
}

std::optional<SinkFilterError> add_capture(Capture capture, SinkFilter& parsed) {
    for (const Capture& other : parsed.captures)
        if (other.name == capture.name)
            return SinkFilterError{"capture " + quote(capture.name) + " appears twice", {}};
    if (parsed.captures.size() == kMaxCaptures)
        return SinkFilterError{"a filter may have at most 100 captures", {}};
    parsed.captures.push_back(std::move(capture));
    return std::nullopt;
}

}  // namespace

base::Result<SinkFilter, SinkFilterError> parse_sink_filter(ByteView text) {
    if (text.empty()) return refuse("the filter must not be empty");
    if (text.starts_with("$share/"))
        return refuse("the filter of a sink cannot be a shared subscription",
                      "Every message that matches reaches the sink once; leave $share/ out.");
    if (mqtt::begins_with_dollar(text) && !is_sys_filter(text))
        return refuse("the filter of a sink cannot begin with \"$\"",
                      "Only $SYS/... has topics that begin with it.");
    SinkFilter parsed;
    std::optional<SinkFilterError> error;
    uint32_t position = 0;
    bool ended = false;  // by {name...}
    mqtt::for_each_level(text, [&](ByteView level) {
        if (error) return;
        if (ended) {
            error = SinkFilterError{"nothing may follow {" + parsed.captures.back().name + "...}",
                                    "It stands for the rest of the topic."};
            return;
        }
        if (position > 0) parsed.filter.push_back('/');
        if (level.find_first_of("{}") == ByteView::npos) {
            parsed.filter.append(level);
        } else {
            auto capture = parse_capture(level, position);
            if (!capture) {
                error = std::move(capture.error());
                return;
            }
            ended = capture->rest;
            parsed.filter.push_back(ended ? '#' : '+');
            error = add_capture(std::move(*capture), parsed);
        }
        ++position;
    });
    if (error) return base::fail(std::move(*error));
    if (!mqtt::is_valid_topic_filter(parsed.filter))
        return refuse(quote(text) + " is not a valid topic filter",
                      "+ and # must be whole levels, # the last one, at most 65535 bytes in all.");
    return parsed;
}

std::optional<ByteView> captured_text(const Capture& capture, ByteView topic) {
    size_t start = 0;
    for (uint32_t level = 0; level < capture.level; ++level) {
        size_t slash = topic.find('/', start);
        if (slash == ByteView::npos) return std::nullopt;
        start = slash + 1;
    }
    if (capture.rest) return topic.substr(start);
    return topic.substr(start, topic.find('/', start) - start);
}

}  // namespace pgmqtt::broker
