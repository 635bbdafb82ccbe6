#include "net/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net/transport.h"

namespace pgmqtt::net {

namespace {

bool append_numeric(const char* numeric, const ListenAddress& from, bool optional,
                    std::vector<Endpoint>& endpoints) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(numeric, std::to_string(from.port).c_str(), &hints, &found) != 0) return false;
    Endpoint endpoint;
    std::memcpy(&endpoint.address, found->ai_addr, found->ai_addrlen);
    endpoint.length = found->ai_addrlen;
    endpoint.host = from.host;
    endpoint.port = from.port;
    endpoint.transport = from.transport ? from.transport : make_tcp_transport;
    endpoint.optional = optional;
    freeaddrinfo(found);
    endpoints.push_back(std::move(endpoint));
    return true;
}

bool lacks_family(int error) {
    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

void add_line(std::string& text, const std::string& line) {
    if (!text.empty() && !line.empty()) text += "; ";
    text += line;
}

// Accepted sockets inherit both. Answers are small and gathered by us: Nagle would only delay them.
// Keepalive finds dead peers that asked for no MQTT keep alive.
void set_inherited_options(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

int open_socket(const Endpoint& endpoint) {
    const int family = endpoint.address.ss_family;
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // IPv4 has a socket of its own.
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    set_inherited_options(fd);
    const auto* address = reinterpret_cast<const sockaddr*>(&endpoint.address);
    if (bind(fd, address, endpoint.length) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
}

std::string numeric(const Endpoint& endpoint) {
    char text[NI_MAXHOST] = "?";
    getnameinfo(reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.length, text,
                sizeof text, nullptr, 0, NI_NUMERICHOST);
    return text;
}

}  // namespace

bool Endpoint::same_address(const Endpoint& other) const {
    return length == other.length && std::memcmp(&address, &other.address, length) == 0;
}

base::Result<std::vector<Endpoint>, std::string> resolve(const ListenAddress& address) {
    std::vector<Endpoint> endpoints;
    if (address.host == "localhost") {
        append_numeric("127.0.0.1", address, true, endpoints);
        append_numeric("::1", address, true, endpoints);
    } else if (address.host == "*") {
        append_numeric("0.0.0.0", address, true, endpoints);
        append_numeric("::", address, true, endpoints);
    } else if (address.host.empty() ||
               !append_numeric(address.host.c_str(), address, false, endpoints)) {
        return base::fail("could not listen on \"" + address.host +
                          "\": not a numeric address, \"localhost\" or \"*\"");
    }
    return endpoints;
}

PeerAddress peer_address(const sockaddr_storage& address) {
    PeerAddress peer;
    char text[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        peer.port = ntohs(v4.sin_port);
        peer.loopback = ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    } else if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        peer.port = ntohs(v6.sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
            peer.loopback = v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
        } else {
            inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
            peer.loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
        }
    }
    peer.address = text;
    return peer;
}

base::Status<std::string> Listeners::listen(const std::vector<ListenAddress>& addresses) {
    std::string failures;
    std::vector<Endpoint> wanted;
    for (const ListenAddress& address : addresses) {
        auto endpoints = resolve(address);
        if (!endpoints) {
            add_line(failures, endpoints.error());
            continue;
        }
        for (Endpoint& endpoint : *endpoints) {
            const bool repeated =
                std::any_of(wanted.begin(), wanted.end(),
                            [&](const Endpoint& other) { return other.same_address(endpoint); });
            if (!repeated) wanted.push_back(std::move(endpoint));
        }
    }

    // First the old ones: "*" and one of its addresses cannot both be bound.
    std::erase_if(open_, [&](const Listener& listener) {
        for (const Endpoint& endpoint : wanted) {
            if (endpoint.same_address(listener.endpoint)) return false;
        }
        ::close(listener.fd);
        return true;
    });

    std::string
        absent;  // why an optional address did not open: matters when its twin did not either
    for (const Endpoint& endpoint : wanted) {
        const auto kept = std::find_if(open_.begin(), open_.end(), [&](const Listener& listener) {
            return listener.endpoint.same_address(endpoint);
        });
        if (kept != open_.end()) {
            kept->endpoint = endpoint;  // perhaps another transport
            continue;
        }
        int error = 0;
        const std::string failure = open(endpoint, error);
        if (failure.empty()) continue;
        add_line(endpoint.optional && lacks_family(error) ? absent : failures, failure);
    }
    if (open_.empty()) add_line(failures, absent);
    if (failures.empty()) return base::Done{};
    return base::fail(failures);
}

std::string Listeners::open(const Endpoint& endpoint, int& error) {
    Listener listener;
    listener.endpoint = endpoint;
    listener.token = next_token_++;
    open_.reserve(open_.size() + 1);  // so that nothing can throw while the descriptor has no owner
    listener.fd = open_socket(endpoint);
    error = listener.fd < 0 ? errno : 0;
    if (listener.fd >= 0 && !suspended_ && !watch(listener)) {
        error = errno;
        ::close(listener.fd);
    }
    if (error == 0) {
        open_.push_back(std::move(listener));
        return {};
    }
    const std::string address = numeric(endpoint);
    std::string text = "could not listen on \"" + endpoint.host + "\"";
    if (address != endpoint.host) text += " (" + address + ")";
    return text + ", port " + std::to_string(endpoint.port) + ": " + std::strerror(error);
}

bool Listeners::watch(const Listener& listener) {
    return poller_.watch_listener(listener.fd, uint64_t{kTokenSlot} << 32 | listener.token);
}

void Listeners::close_all() {
    for (const Listener& listener : open_) ::close(listener.fd);
    open_.clear();
    suspended_ = false;
}

void Listeners::mark_ready(uint32_t token) {
    for (Listener& listener : open_) {
        if (listener.token == token) listener.ready = true;
    }
}

bool Listeners::any_ready() const {
    return std::any_of(open_.begin(), open_.end(), [](const Listener& l) { return l.ready; });
}

void Listeners::suspend() {
    if (suspended_) return;
    suspended_ = true;
    for (Listener& listener : open_) {
        poller_.forget(listener.fd);
        listener.ready = false;
    }
}

bool Listeners::resume() {
    if (!suspended_) return true;
    suspended_ = false;
    for (const Listener& listener : open_) {
        if (!watch(listener)) {
            suspend();
            return false;
        }
    }
    return true;
}

Listeners::Accepted Listeners::accept() {
    Accepted accepted;
    for (size_t tried = 0; tried < open_.size(); ++tried) {
        Listener& listener = open_[turn_++ % open_.size()];
        if (!listener.ready) continue;
        socklen_t length = sizeof accepted.peer;
        accepted.transport = &listener.endpoint.transport;
        accepted.fd = accept4(listener.fd, reinterpret_cast<sockaddr*>(&accepted.peer), &length,
                              SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted.fd >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return accepted;
        listener.ready = false;
    }
    errno = EAGAIN;
    return accepted;
}

}  // namespace pgmqtt::net
