// An application message that outlives the packet it came in: retained, queued, shared between
// receivers, or a will that waits for its moment.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/input.h"
#include "base/time.h"
#include "broker/batch.h"
#include "broker/deadline_heap.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

struct Message {
    Message() = default;
    Message(const Message&) = delete;
    ~Message() {
        if (account_ != nullptr) *account_ -= charged_;
    }

    std::string topic;
    std::string properties;  // mqtt::encode_message_properties
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
    base::WallTime received_at{};
    // The same moment on two clocks: the wall's is stored, the monotonic one decides, so that a
    // jump of the wall clock expires nothing.
    base::WallTime expires_at = base::WallTime::max();
    base::MonoTime expires = base::kNever;
    // Given by the retained store, ever growing: tells what was retained before a subscription.
    uint64_t retained_number = 0;
    // Set by the retained store when the topic got another message, or none.
    bool superseded = false;
    uint32_t expiry_place = kNoPlace;  // in the heap of the retained store

    ByteView payload() const { return payload_; }
    void copy_payload(std::string bytes) {
        copy_ = std::move(bytes);
        payload_ = copy_;
    }
    // Where it came in.
    void keep_payload(ByteView bytes, base::KeptInput input) {
        input_ = std::move(input);
        payload_ = bytes;
    }

    // What it counts against limits in bytes.
    size_t bytes() const { return topic.size() + payload_.size() + properties.size(); }

    // The memory that it takes.
    uint64_t cost() const {
        return sizeof(Message) + topic.size() + properties.size() +
               std::max(payload_.size(), input_.held);
    }

    // Counts its memory in `account` as long as it lives, however many share it. Once, when it is
    // complete.
    void charge(uint64_t& account) {
        account_ = &account;
        charged_ = cost();
        account += charged_;
    }
    uint64_t charged() const { return charged_; }

    bool expired(base::MonoTime now) const { return expires <= now; }

    MessageView view() const {
        return {topic, payload_, qos, retain, properties, received_at, expires_at};
    }

   private:
    ByteView payload_;  // in one of these two
    std::string copy_;
    base::KeptInput input_;
    uint64_t* account_ = nullptr;
    uint64_t charged_ = 0;
};

using MessagePtr = std::shared_ptr<Message>;

// One that was stored.
MessagePtr make_message(const MessageView& stored, base::Now now);

// Where `expires_at` is on the monotonic clock.
inline base::MonoTime monotonic_expiry(base::WallTime expires_at, base::Now now) {
    if (expires_at == base::WallTime::max()) return base::kNever;
    return now.mono + (expires_at - now.wall);
}

}  // namespace pgmqtt::broker
