// A publisher of messages that somebody else makes: any topic, any payload.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "loadtest/client.h"
#include "loadtest/event_loop.h"
#include "loadtest/meter.h"
#include "loadtest/roles.h"
#include "loadtest/stop.h"

namespace pgmqtt::loadtest {

class Sender final : ClientEvents {
   public:
    struct Message {
        base::ByteView topic;
        base::ByteView payload;
    };
    // Of the message that is number `i`; the views live until the next call. The client may refuse
    // one (paho takes so many and no more at once): it is made again, so making must leave no mark.
    using Make = std::function<Message(uint64_t i, Nanos now)>;

    Sender(const Options& options, const std::string& id, bool retain, EventLoop& loop,
           Meter& meter, Attendance& attendance)
        : qos_(options.qos), retain_(retain), meter_(meter), attendance_(attendance) {
        client_ = new_client(options.client, loop, client_options(options, id), *this);
    }

    void connect() { client_->connect(); }
    void disconnect() { client_->disconnect(); }

    // As many as the client takes at once, at most up to number `end`.
    void send_until(uint64_t end, const Make& make) {
        Nanos now = monotonic_now();
        for (; sent_ < end && client_->backlog() < kMaxBacklog; ++sent_) {
            if (qos_ != 0 && !client_->has_room()) return;
            auto [topic, payload] = make(sent_, now);
            if (!client_->publish(topic, payload, qos_, retain_, now)) return;
            ++meter_.counters.offered;
            ++meter_.counters.sent;
            meter_.sent_bytes += payload.size();
        }
    }

    // Sends all and waits for their acknowledgements; false if that ended early. A signal ends the
    // sending, unless `patience` goes on, but what was sent is waited for.
    bool send_all(EventLoop& loop, uint64_t count, Patience patience, const Make& make) {
        uint64_t end = sent_ + count;
        while (sent_ < end || (qos_ != 0 && answered_ < end)) {
            if (patience.gives_up()) end = sent_;
            send_until(end, make);
            loop.turn(monotonic_now() + kSecond / 10);
            if (attendance_.gone != 0 || !patience.lasts(answered_)) return false;
        }
        return !patience.gives_up();
    }

    uint64_t sent() const { return sent_; }
    uint64_t answered() const { return answered_; }

   private:
    static constexpr size_t kMaxBacklog = 1 << 20;

    void on_connected(Client&, std::string_view refusal) override {
        if (!refusal.empty()) return on_closed(*client_, refusal);
        ++attendance_.ready;
    }
    void on_subscribed(Client&, bool) override {}
    void on_acknowledged(Client&, uint64_t token, bool accepted, Nanos at) override {
        ++answered_;
        ++(accepted ? meter_.counters.acknowledged : meter_.counters.failed);
        meter_.record_acknowledge(token, at);
    }
    void on_closed(Client&, std::string_view why) override {
        ++meter_.counters.failed;
        attendance_.note("publisher", why);
    }

    uint8_t qos_;
    bool retain_;
    Meter& meter_;
    Attendance& attendance_;
    uint64_t sent_ = 0;
    uint64_t answered_ = 0;
    std::unique_ptr<Client> client_;
};

}  // namespace pgmqtt::loadtest
