// The stream between a socket and the plain bytes of MQTT. TCP passes bytes through; other
// transports wrap them, which is why reading may wait for writability and the other way round.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pgmqtt::net {

enum class IoStatus : uint8_t {
    kOk,       // done; for read: there may be more, also inside the transport
    kPartial,  // less than asked: wait for readiness before trying again
    kBlocked,  // nothing: wait for readiness
    kEnd,      // the peer will send no more
    kFailed,   // `error` says why
};

struct IoResult {
    IoStatus status = IoStatus::kOk;
    size_t bytes = 0;
    int error = 0;
    // After kPartial and kBlocked: the call waits for the direction that is not its own (a read for
    // writability, a write for readability).
    bool waits_for_other = false;
};

class Transport {
   public:
    virtual ~Transport() = default;

    virtual int fd() const = 0;

    // Begins or continues what precedes the first byte. kPartial: a read got less than it asked
    // for; kBlocked: the socket had nothing. Both wait for readability, or with waits_for_other for
    // writability.
    virtual IoResult handshake() = 0;

    // kPartial and kBlocked only when no plain bytes are left inside: no readiness announces those.
    virtual IoResult read(char* into, size_t capacity) = 0;

    // `bytes` were taken over and are not offered again.
    virtual IoResult writev(const iovec* vectors, size_t count) = 0;
    // Bytes were taken over but have not left; writev() with none sends them.
    virtual bool holds_output() const = 0;

    // Says farewell and ends our direction; reading goes on. Called again after kBlocked.
    virtual IoResult shutdown() = 0;

    virtual std::string describe(int error) const = 0;
};

// Owns `fd` (also when it throws): a nonblocking stream socket.
std::unique_ptr<Transport> make_tcp_transport(int fd);

}  // namespace pgmqtt::net
