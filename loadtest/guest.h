// A client without messages: it connects, perhaps subscribes, and is counted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "loadtest/client.h"
#include "loadtest/roles.h"

namespace pgmqtt::loadtest {

class Guest final : ClientEvents {
   public:
    // Subscribes to `filters` unless there are none. `arrived` gets those that are ready.
    Guest(ClientKind kind, const ClientOptions& client, std::vector<std::string> filters,
          uint8_t qos, EventLoop& loop, Meter& meter, Attendance& attendance,
          std::vector<Guest*>* arrived = nullptr)
        : name_(client.id),
          filters_(std::move(filters)),
          qos_(qos),
          meter_(meter),
          attendance_(attendance),
          arrived_(arrived),
          client_(new_client(kind, loop, client, *this)) {}

    void connect() {
        began_ = monotonic_now();
        client_->connect();
    }
    void disconnect() { client_->disconnect(); }
    Nanos began() const { return began_; }
    // When the CONNACK came.
    Nanos connected() const { return connected_; }

   private:
    void on_connected(Client& client, std::string_view refusal) override {
        if (!refusal.empty()) return gone(refusal);
        connected_ = monotonic_now();
        if (!filters_.empty()) return client.subscribe(filters_, qos_);
        ready();
    }
    void on_subscribed(Client&, bool granted) override {
        if (!granted) return gone("SUBSCRIBE was refused");
        ready();
    }
    void on_closed(Client&, std::string_view why) override { gone(why); }

    void ready() {
        ++attendance_.ready;
        if (arrived_ != nullptr) arrived_->push_back(this);
    }
    void gone(std::string_view why) {
        ++meter_.counters.failed;
        attendance_.note(name_, why);
    }

    std::string name_;
    std::vector<std::string> filters_;
    uint8_t qos_;
    Meter& meter_;
    Attendance& attendance_;
    std::vector<Guest*>* arrived_;
    Nanos began_ = 0;
    Nanos connected_ = 0;
    std::unique_ptr<Client> client_;
};

}  // namespace pgmqtt::loadtest
