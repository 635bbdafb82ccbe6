// One MQTT client, whichever library drives it. All callbacks come on the thread of the event loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "loadtest/clock.h"

namespace pgmqtt::loadtest {

class EventLoop;
class Client;

struct Delivery {
    base::ByteView topic;
    base::ByteView payload;
    uint8_t qos = 0;
    bool retain = false;
    bool dup = false;
    Nanos at = 0;  // when its bytes had been read
};

class ClientEvents {
   public:
    // `refusal` is empty when the connection stands.
    virtual void on_connected(Client& client, std::string_view refusal) = 0;
    virtual void on_subscribed(Client&, bool granted) = 0;
    virtual void on_delivery(Client&, const Delivery&) {}
    // PUBACK or PUBCOMP (a PUBREC that refuses, too). `token` is what publish() was given.
    virtual void on_acknowledged(Client&, uint64_t token, bool accepted, Nanos at) {
        static_cast<void>(token), static_cast<void>(accepted), static_cast<void>(at);
    }
    // What publish() had left waiting is written.
    virtual void on_drained(Client&) {}
    // Not after close() or disconnect().
    virtual void on_closed(Client&, std::string_view why) = 0;

   protected:
    ~ClientEvents() = default;
};

struct ClientOptions {
    std::string host = "127.0.0.1";
    std::string port = "1883";
    int protocol = 5;  // 4 is 3.1.1
    std::string id;
    std::string username;
    std::string password;
    bool clean = true;
    uint32_t session_expiry = 0;   // seconds; with 3.1.1, `clean` decides alone
    uint16_t keep_alive = 0;       // seconds, 0 = none
    uint16_t receive_maximum = 0;  // what we announce (5.0), 0 = not
    uint16_t inflight = 1000;      // most QoS 1 and 2 publishes that await their acknowledgement
};

class Client {
   public:
    virtual ~Client() = default;

    virtual void connect() = 0;
    // May be called once at a time.
    virtual void subscribe(const std::vector<std::string>& filters, uint8_t qos) = 0;
    // False if `inflight` (or the broker's Receive Maximum) is reached: nothing was sent then.
    virtual bool publish(base::ByteView topic, base::ByteView payload, uint8_t qos, bool retain,
                         uint64_t token) = 0;
    // publish() with QoS 1 and 2 would not be refused for its number in flight.
    virtual bool has_room() const = 0;
    // Bytes that wait for the socket.
    virtual size_t backlog() const = 0;
    // DISCONNECT, then close. No callbacks afterwards.
    virtual void disconnect() = 0;
    // Just closes. No callbacks afterwards.
    virtual void close() = 0;
};

enum class ClientKind : uint8_t { kRaw, kPaho };

std::unique_ptr<Client> new_client(ClientKind kind, EventLoop& loop, const ClientOptions& options,
                                   ClientEvents& events);

}  // namespace pgmqtt::loadtest
