#include "loadtest/raw_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "loadtest/load_error.h"
#include "loadtest/refusal.h"

namespace pgmqtt::loadtest {
namespace {

std::string reason_of(int error) {
    return std::generic_category().message(error);
}

char* put_length(char* at, size_t length) {
    do {
        auto byte = static_cast<uint8_t>(length & 127);
        length >>= 7;
        *at++ = static_cast<char>(length == 0 ? byte : byte | 128);
    } while (length != 0);
    return at;
}

char* put_u16(char* at, size_t value) {
    *at++ = static_cast<char>(value >> 8);
    *at++ = static_cast<char>(value);
    return at;
}

char* put_bytes(char* at, base::ByteView bytes) {
    std::memcpy(at, bytes.data(), bytes.size());
    return at + bytes.size();
}

}  // namespace

RawClient::RawClient(EventLoop& loop, const ClientOptions& options, ClientEvents& events)
    : loop_(loop), events_(events), options_(options) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    int code = getaddrinfo(options.host.c_str(), options.port.c_str(), &hints, &found);
    if (code != 0)
        throw LoadError("--host " + options.host + " --port " + options.port + ": " +
                        gai_strerror(code) + "; name a broker that resolves");
    std::memcpy(&address_, found->ai_addr, found->ai_addrlen);
    address_size_ = found->ai_addrlen;
    freeaddrinfo(found);
}

RawClient::~RawClient() {
    close();
}

void RawClient::connect() {
    close();
    fd_ = socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) throw_errno("socket", "raise `ulimit -n`");
    int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connack_seen_ = false;
    in_flight_.reset(options_.inflight);
    held_.clear();

    mqtt::Connect packet;
    packet.version = is_5() ? mqtt::Version::k5 : mqtt::Version::k311;
    packet.clean_start = options_.clean;
    packet.keep_alive = options_.keep_alive;
    packet.client_id = options_.id;
    if (!options_.username.empty()) packet.username = options_.username;
    if (!options_.password.empty()) packet.password = options_.password;
    if (is_5() && options_.session_expiry != 0)
        packet.properties.session_expiry_interval = options_.session_expiry;
    if (is_5() && options_.receive_maximum != 0)
        packet.properties.receive_maximum = options_.receive_maximum;

    loop_.add(fd_, this, EPOLLIN | EPOLLOUT);
    watching_output_ = true;
    encode(packet);
    auto* address = reinterpret_cast<const sockaddr*>(&address_);
    if (::connect(fd_, address, address_size_) != 0 && errno != EINPROGRESS)
        broken(reason_of(errno));
}

void RawClient::subscribe(const std::vector<std::string>& filters, uint8_t qos) {
    if (!is_open()) return;
    // 65535 is ours: the identifiers of publishes stay below unless 32768 are in flight.
    mqtt::Subscribe packet;
    packet.packet_id = 65535;
    for (const std::string& filter : filters)
        packet.subscriptions.push_back({.filter = filter, .qos = static_cast<mqtt::Qos>(qos)});
    encode(packet);
    wants_flush();
}

bool RawClient::publish(base::ByteView topic, base::ByteView payload, uint8_t qos, bool retain,
                        uint64_t token) {
    if (!is_open() || (qos != 0 && in_flight_.full())) return false;
    size_t remaining = 2 + topic.size() + (qos != 0 ? 2 : 0) + (is_5() ? 1 : 0) + payload.size();
    size_t length_bytes = remaining < 128 ? 1 : remaining < 16384 ? 2 : remaining < 2097152 ? 3 : 4;
    char* at = out_.extend(1 + length_bytes + remaining);
    *at++ = static_cast<char>(0x30 | qos << 1 | (retain ? 1 : 0));
    at = put_length(at, remaining);
    at = put_u16(at, topic.size());
    at = put_bytes(at, topic);
    if (qos != 0) at = put_u16(at, in_flight_.take(token));
    if (is_5()) *at++ = 0;
    put_bytes(at, payload);
    wants_flush();
    return true;
}

void RawClient::disconnect() {
    if (!is_open()) return;
    encode(mqtt::Disconnect{});
    if (connack_seen_ && !watching_output_) flush();
    close();
}

void RawClient::close() {
    if (!is_open()) return;
    loop_.remove(fd_, this);
    if (flush_is_due_) loop_.forget(this);
    flush_is_due_ = false;
    ::close(fd_);
    fd_ = -1;
    out_.release();
    partial_ = {};
    wanted_ = 0;
}

void RawClient::encode(const mqtt::Packet& packet) {
    std::string bytes;
    mqtt::encode(packet, is_5() ? mqtt::Version::k5 : mqtt::Version::k311, bytes);
    out_.append(bytes);
}

void RawClient::wants_flush() {
    if (flush_is_due_ || watching_output_) return;
    flush_is_due_ = true;
    loop_.flush_later(this);
}

void RawClient::watch_output(bool wanted) {
    if (wanted == watching_output_) return;
    watching_output_ = wanted;
    loop_.change(fd_, this, EPOLLIN | (wanted ? unsigned{EPOLLOUT} : 0U));
}

void RawClient::flush() {
    flush_is_due_ = false;
    while (is_open() && out_.size() != 0) {
        ssize_t written = send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
        if (written < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return watch_output(true);
            return broken(reason_of(errno));
        }
        out_.drop_front(static_cast<size_t>(written));
    }
    if (!is_open() || !watching_output_) return;
    watch_output(false);
    if (connack_seen_) events_.on_drained(*this);
}

void RawClient::on_events(uint32_t events) {
    if ((events & EPOLLOUT) != 0) flush();
    if (is_open() && (events & ~unsigned{EPOLLOUT}) != 0) read_some();
}

void RawClient::broken(std::string_view why) {
    std::string reason(why);
    if (!connack_seen_) return refused(no_connection(reason));
    close();
    events_.on_closed(*this, reason);
}

void RawClient::refused(const std::string& why) {
    close();
    events_.on_connected(*this, why);
}

void RawClient::fault(const char* what) {
    broken(std::string("the broker's bytes are not MQTT: ") + what);
}

}  // namespace pgmqtt::loadtest
