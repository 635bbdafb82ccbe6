// A client of our own for when the generator must not be the bottleneck: many packets per system
// call, nothing allocated per message.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "loadtest/byte_queue.h"
#include "loadtest/client.h"
#include "loadtest/event_loop.h"
#include "loadtest/packet_ids.h"
#include "mqtt/codec.h"

namespace pgmqtt::loadtest {

class RawClient final : public Client, Watched, Flushed {
   public:
    RawClient(EventLoop& loop, const ClientOptions& options, ClientEvents& events);
    ~RawClient() override;

    void connect() override;
    void subscribe(const std::vector<std::string>& filters, uint8_t qos) override;
    bool publish(base::ByteView topic, base::ByteView payload, uint8_t qos, bool retain,
                 uint64_t token) override;
    bool has_room() const override { return !in_flight_.full(); }
    size_t backlog() const override { return out_.size(); }
    void disconnect() override;
    void close() override;

   private:
    void on_events(uint32_t events) override;
    void flush() override;

    void read_some();
    void read_large();
    size_t receive(char* at, size_t size);
    // How many bytes at the front were whole packets.
    size_t take_packets(base::ByteView bytes);
    void take_packet(uint8_t first, base::ByteView body);
    void take_publish(uint8_t first, base::ByteView body);
    void take_acknowledgement(uint8_t type, base::ByteView body);
    void take_connack(base::ByteView body);
    void take_suback(base::ByteView body);
    void acknowledge(uint8_t first, uint16_t id);
    void acknowledged(uint16_t id, bool accepted);

    bool is_open() const { return fd_ >= 0; }
    bool is_5() const { return options_.protocol == 5; }
    void wants_flush();
    void watch_output(bool wanted);
    void broken(std::string_view why);
    void refused(const std::string& why);
    void fault(const char* what);
    void encode(const mqtt::Packet& packet);

    EventLoop& loop_;
    ClientEvents& events_;
    ClientOptions options_;
    sockaddr_storage address_{};
    socklen_t address_size_ = 0;

    int fd_ = -1;
    bool connack_seen_ = false;
    bool watching_output_ = false;
    bool flush_is_due_ = false;
    Nanos read_at_ = 0;
    ByteQueue out_;
    std::string partial_;  // the front of a packet that has not come whole
    size_t wanted_ = 0;    // its size, if known; a large one's room is there at once
    size_t filled_ = 0;    // what has come of a large one
    PacketIds in_flight_;
    std::vector<bool> held_;  // QoS 2 identifiers between PUBLISH and PUBREL
};

}  // namespace pgmqtt::loadtest
