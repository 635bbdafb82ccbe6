// Topic aliases towards one client, section 3.3.2.3.4. A topic gets one when it comes for the
// second time in a row among those with the same place in the table: no list of what was seen, and
// what does not repeat costs nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace pgmqtt::broker {

class OutgoingAliases {
   public:
    // Shorter ones save less than the property costs; longer ones would cost memory.
    static bool worth_it(base::ByteView topic) {
        return topic.size() >= kShortestTopic && topic.size() <= kLongestTopic;
    }

    // What the client said in CONNECT [MQTT-3.1.2-26] [MQTT-3.1.2-27].
    void allow(uint16_t maximum) { places_.resize(std::min(maximum, kMost)); }
    bool allowed() const { return !places_.empty(); }

    struct Choice {
        uint16_t alias = 0;  // 0: none
        bool known = false;  // the client knows it: the topic may be left out
    };

    // `hash` of the topic.
    Choice choose(base::ByteView topic, uint64_t hash) {
        size_t index = hash % places_.size();
        Place& place = places_[index];
        auto alias = static_cast<uint16_t>(index + 1);
        if (place.topic == topic) return {alias, true};
        if (place.missed == hash) return {alias, false};
        place.missed = hash;
        return {};
    }

    // A PUBLISH with both was sent.
    void define(uint16_t alias, base::ByteView topic) { places_[alias - 1u].topic = topic; }

   private:
    static constexpr size_t kShortestTopic = 8;
    static constexpr size_t kLongestTopic = 256;
    static constexpr uint16_t kMost = 32;

    struct Place {
        std::string topic;
        uint64_t missed = 0;  // the last topic that came for it and was not there
    };

    std::vector<Place> places_;
};

}  // namespace pgmqtt::broker
