// Valid packets at random, the same for the same seed.
#pragma once

#include <deque>
#include <random>
#include <string>

#include "mqtt/codec.h"

namespace pgmqtt::mqtt {

class PacketGenerator {
   public:
    explicit PacketGenerator(uint32_t seed) : random_(seed) {}

    // A packet that `sender` may send in `version`. Its views hold until the next call.
    Packet packet(Version version, Sender sender);

    // Which packet types that can be.
    static bool exists(PacketType type, Version version, Sender sender);
    Packet packet(PacketType type, Version version, Sender sender);

    uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_()) % bound; }
    bool flip() { return below(2) == 1; }

   private:
    Connect connect(Version version);
    Connack connack(Version version);
    Publish publish(Version version, Sender sender);
    template <PacketType kType>
    Acknowledgement<kType> acknowledgement(Version version, Sender sender);
    Subscribe subscribe(Version version);
    Suback suback(Version version);
    Unsubscribe unsubscribe(Version version);
    Unsuback unsuback(Version version);
    Disconnect disconnect(Version version, Sender sender);
    Auth auth(Sender sender);
    Will will(Version version);
    void message_properties(Properties& properties);
    void reason_properties(Properties& properties);
    void user_properties(Properties& properties);

    ByteView keep(std::string bytes) { return owned_.emplace_back(std::move(bytes)); }
    ByteView text(size_t longest = 30);
    ByteView binary(size_t longest = 30);
    ByteView topic();
    ByteView filter();
    uint16_t packet_id() { return static_cast<uint16_t>(1 + below(65535)); }
    Qos qos() { return static_cast<Qos>(below(3)); }
    ReasonCode reason(PacketType type, Sender sender);
    uint32_t u32();
    uint16_t u16() { return static_cast<uint16_t>(u32()); }
    template <class T, class Make>
    void maybe(std::optional<T>& property, Make make) {
        if (below(3) == 0) property = static_cast<T>(make());
    }

    std::mt19937 random_;
    std::deque<std::string> owned_;
};

}  // namespace pgmqtt::mqtt
