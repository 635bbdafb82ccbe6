// libpaho-mqtt's asynchronous client, for when a real library matters more than speed.
#pragma once

#include <MQTTAsync.h>

#include <string>
#include <vector>

#include "loadtest/client.h"
#include "loadtest/event_loop.h"

namespace pgmqtt::loadtest {

struct PahoInbox;

// Paho calls back on threads of its own: what they say waits in the inbox for the event loop.
class PahoClient final : public Client, Watched {
   public:
    PahoClient(EventLoop& loop, const ClientOptions& options, ClientEvents& events);
    ~PahoClient() override;

    void connect() override;
    void subscribe(const std::vector<std::string>& filters, uint8_t qos) override;
    bool publish(base::ByteView topic, base::ByteView payload, uint8_t qos, bool retain,
                 uint64_t token) override;
    bool has_room() const override { return in_flight_ < limit_; }
    size_t backlog() const override { return unwritten_; }
    void disconnect() override;
    void close() override;

   private:
    void on_events(uint32_t events) override;
    void create();
    int start_connecting();
    int response_options(MQTTAsync_responseOptions& response, void* context) const;
    bool is_5() const { return options_.protocol == 5; }

    EventLoop& loop_;
    ClientEvents& events_;
    ClientOptions options_;
    PahoInbox* inbox_;
    MQTTAsync handle_ = nullptr;
    bool watched_ = false;
    size_t in_flight_ = 0;
    size_t limit_;
    size_t unwritten_ = 0;  // QoS 0 publishes that paho has not written yet
    std::string topic_;
};

}  // namespace pgmqtt::loadtest
