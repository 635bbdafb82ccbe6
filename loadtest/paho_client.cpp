#include "loadtest/paho_client.h"

#include <sys/epoll.h>

#include <algorithm>
#include <memory>

#include "loadtest/load_error.h"
#include "loadtest/paho_inbox.h"
#include "loadtest/refusal.h"

namespace pgmqtt::loadtest {
namespace {

using Kind = PahoEvent::Kind;

struct Sent {
    PahoInbox* inbox;
    uint64_t token;
    Kind kind;
};

PahoInbox& inbox_of(void* context) {
    return *static_cast<PahoInbox*>(context);
}

void put_done(void* context, bool fine) {
    std::unique_ptr<Sent> sent(static_cast<Sent*>(context));
    sent->inbox->put({.kind = sent->kind, .fine = fine, .token = sent->token});
}

std::string text_of(const char* message, int code) {
    return (message != nullptr ? std::string(message) + ", " : std::string()) + "code " +
           std::to_string(code);
}

// Paho's own codes are negative, those of a CONNACK are not.
std::string refusal(int protocol, const char* message, int code) {
    return code > 0 ? connack_refusal(protocol, static_cast<unsigned>(code))
                    : no_connection(text_of(message, code));
}

void on_connect(void* context, MQTTAsync_successData*) {
    inbox_of(context).put({.kind = Kind::kConnected, .token = 65535});
}
void on_connect5(void* context, MQTTAsync_successData5* data) {
    int limit =
        MQTTProperties_hasProperty(&data->properties, MQTTPROPERTY_CODE_RECEIVE_MAXIMUM)
            ? MQTTProperties_getNumericValue(&data->properties, MQTTPROPERTY_CODE_RECEIVE_MAXIMUM)
            : 65535;
    inbox_of(context).put({.kind = Kind::kConnected, .token = static_cast<uint64_t>(limit)});
}
void on_no_connect(void* context, MQTTAsync_failureData* data) {
    inbox_of(context).put(
        {.kind = Kind::kConnected, .fine = false, .text = refusal(4, data->message, data->code)});
}
void on_no_connect5(void* context, MQTTAsync_failureData5* data) {
    int code = data->reasonCode != 0 ? static_cast<int>(data->reasonCode) : data->code;
    inbox_of(context).put(
        {.kind = Kind::kConnected, .fine = false, .text = refusal(5, data->message, code)});
}
void on_sent(void* context, MQTTAsync_successData*) {
    put_done(context, true);
}
void on_sent5(void* context, MQTTAsync_successData5*) {
    put_done(context, true);
}
void on_not_sent(void* context, MQTTAsync_failureData*) {
    put_done(context, false);
}
void on_not_sent5(void* context, MQTTAsync_failureData5*) {
    put_done(context, false);
}

void on_lost(void* context, char* cause) {
    inbox_of(context).put(
        {.kind = Kind::kClosed, .text = cause != nullptr ? cause : "the connection was lost"});
}

int on_message(void* context, char* topic, int topic_size, MQTTAsync_message* message) {
    size_t size = topic_size > 0 ? static_cast<size_t>(topic_size) : std::string_view(topic).size();
    inbox_of(context).put({.kind = Kind::kDelivery,
                           .text = std::string(topic, size),
                           .payload = std::string(static_cast<const char*>(message->payload),
                                                  static_cast<size_t>(message->payloadlen)),
                           .qos = static_cast<uint8_t>(message->qos),
                           .retain = message->retained != 0,
                           .dup = message->dup != 0});
    MQTTAsync_freeMessage(&message);
    MQTTAsync_free(topic);
    return 1;
}

}  // namespace

PahoClient::PahoClient(EventLoop& loop, const ClientOptions& options, ClientEvents& events)
    : loop_(loop),
      events_(events),
      options_(options),
      inbox_(PahoInbox::make()),
      limit_(options.inflight) {}

PahoClient::~PahoClient() {
    close();
}

void PahoClient::create() {
    std::string uri = "tcp://" + options_.host + ":" + options_.port;
    MQTTAsync_createOptions create = MQTTAsync_createOptions_initializer5;
    create.MQTTVersion = is_5() ? MQTTVERSION_5 : MQTTVERSION_3_1_1;
    int code = MQTTAsync_createWithOptions(&handle_, uri.c_str(), options_.id.c_str(),
                                           MQTTCLIENT_PERSISTENCE_NONE, nullptr, &create);
    if (code == MQTTASYNC_SUCCESS)
        code = MQTTAsync_setCallbacks(handle_, inbox_, on_lost, on_message, nullptr);
    if (code != MQTTASYNC_SUCCESS)
        throw LoadError("MQTTAsync_create: " + text_of(MQTTAsync_strerror(code), code) +
                        "; check --host and --port");
}

void PahoClient::connect() {
    close();
    create();
    inbox_->set_closed(false);
    loop_.add(inbox_->event_fd, this, EPOLLIN);
    watched_ = true;
    in_flight_ = unwritten_ = 0;
    if (int code = start_connecting(); code != MQTTASYNC_SUCCESS)
        inbox_->put({.kind = Kind::kConnected,
                     .fine = false,
                     .text = no_connection(text_of(MQTTAsync_strerror(code), code))});
}

int PahoClient::start_connecting() {
    MQTTAsync_connectOptions connect = MQTTAsync_connectOptions_initializer;
    MQTTProperties properties = MQTTProperties_initializer;
    if (is_5()) {
        connect = MQTTAsync_connectOptions_initializer5;
        connect.cleanstart = options_.clean;
        connect.onSuccess5 = on_connect5;
        connect.onFailure5 = on_no_connect5;
        MQTTProperty property{};
        property.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL;
        property.value.integer4 = options_.session_expiry;
        MQTTProperties_add(&properties, &property);
        connect.connectProperties = &properties;
    } else {
        connect.MQTTVersion = MQTTVERSION_3_1_1;
        connect.cleansession = options_.clean;
        connect.onSuccess = on_connect;
        connect.onFailure = on_no_connect;
    }
    connect.keepAliveInterval = options_.keep_alive;
    connect.maxInflight = options_.inflight;
    connect.context = inbox_;
    if (!options_.username.empty()) connect.username = options_.username.c_str();
    if (!options_.password.empty()) connect.password = options_.password.c_str();
    int code = MQTTAsync_connect(handle_, &connect);
    MQTTProperties_free(&properties);
    return code;
}

int PahoClient::response_options(MQTTAsync_responseOptions& response, void* context) const {
    response.context = context;
    if (is_5()) {
        response.onSuccess5 = on_sent5;
        response.onFailure5 = on_not_sent5;
    } else {
        response.onSuccess = on_sent;
        response.onFailure = on_not_sent;
    }
    return MQTTASYNC_SUCCESS;
}

void PahoClient::subscribe(const std::vector<std::string>& filters, uint8_t qos) {
    std::vector<char*> names;
    std::vector<int> wanted(filters.size(), qos);
    for (const std::string& filter : filters) names.push_back(const_cast<char*>(filter.c_str()));
    MQTTAsync_responseOptions response = MQTTAsync_responseOptions_initializer;
    auto sent = std::make_unique<Sent>(Sent{inbox_, 0, Kind::kSubscribed});
    response_options(response, sent.get());
    int code = MQTTAsync_subscribeMany(handle_, static_cast<int>(names.size()), names.data(),
                                       wanted.data(), &response);
    if (code == MQTTASYNC_SUCCESS) {
        sent.release();
    } else {
        inbox_->put({.kind = Kind::kSubscribed, .fine = false});
    }
}

bool PahoClient::publish(base::ByteView topic, base::ByteView payload, uint8_t qos, bool retain,
                         uint64_t token) {
    if (qos != 0 && in_flight_ >= limit_) return false;
    topic_.assign(topic);
    MQTTAsync_responseOptions response = MQTTAsync_responseOptions_initializer;
    auto sent = std::make_unique<Sent>(Sent{inbox_, qos == 0 ? payload.size() : token,
                                            qos == 0 ? Kind::kWritten : Kind::kAcknowledged});
    response_options(response, sent.get());
    int code = MQTTAsync_send(handle_, topic_.c_str(), static_cast<int>(payload.size()),
                              payload.data(), qos, retain, &response);
    if (code != MQTTASYNC_SUCCESS) return false;
    sent.release();
    if (qos != 0) {
        ++in_flight_;
    } else {
        unwritten_ += payload.size();
    }
    return true;
}

void PahoClient::on_events(uint32_t) {
    // A client that one of them closes gets no more.
    for (PahoEvent& event : inbox_->take()) {
        if (handle_ == nullptr) return;
        switch (event.kind) {
            case Kind::kConnected:
                limit_ = std::min<size_t>(options_.inflight, event.token);
                events_.on_connected(*this, event.fine ? std::string_view() : event.text);
                break;
            case Kind::kSubscribed:
                events_.on_subscribed(*this, event.fine);
                break;
            case Kind::kDelivery:
                events_.on_delivery(*this, {event.text, event.payload, event.qos, event.retain,
                                            event.dup, event.at});
                break;
            case Kind::kAcknowledged:
                --in_flight_;
                events_.on_acknowledged(*this, event.token, event.fine, event.at);
                break;
            case Kind::kWritten:
                unwritten_ -= std::min<size_t>(unwritten_, event.token);
                if (unwritten_ == 0) events_.on_drained(*this);
                break;
            case Kind::kClosed:
                events_.on_closed(*this, event.text);
                break;
        }
    }
}

void PahoClient::disconnect() {
    if (handle_ == nullptr) return;
    // Paho sends DISCONNECT from its own thread; without a timeout it does so at once, and destroy
    // waits for that thread's lock.
    MQTTAsync_disconnectOptions disconnect = MQTTAsync_disconnectOptions_initializer;
    if (is_5()) disconnect = MQTTAsync_disconnectOptions_initializer5;
    disconnect.timeout = 0;
    MQTTAsync_disconnect(handle_, &disconnect);
    Nanos end = monotonic_now() + kSecond;
    while (MQTTAsync_isConnected(handle_) && monotonic_now() < end) {
        timespec moment{0, 1'000'000};
        nanosleep(&moment, nullptr);
    }
    close();
}

void PahoClient::close() {
    if (handle_ == nullptr) return;
    if (watched_) loop_.remove(inbox_->event_fd, this);
    watched_ = false;
    inbox_->set_closed(true);
    MQTTAsync_destroy(&handle_);
    handle_ = nullptr;
    inbox_->take();
}

}  // namespace pgmqtt::loadtest
