#include "net/transport.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace pgmqtt::net {

namespace {

IoResult failure_from_errno() {
    IoResult result;
    const bool blocked = errno == EAGAIN || errno == EWOULDBLOCK;
    result.status = blocked ? IoStatus::kBlocked : IoStatus::kFailed;
    result.error = blocked ? 0 : errno;
    return result;
}

class TcpTransport final : public Transport {
   public:
    explicit TcpTransport(int fd) : fd_(fd) {}
    ~TcpTransport() override { ::close(fd_); }
    TcpTransport(const TcpTransport&) = delete;

    int fd() const override { return fd_; }

    IoResult handshake() override { return {}; }

    IoResult read(char* into, size_t capacity) override {
        ssize_t count;
        do {
            count = ::recv(fd_, into, capacity, 0);
        } while (count < 0 && errno == EINTR);
        if (count < 0) return failure_from_errno();
        IoResult result;
        result.bytes = static_cast<size_t>(count);
        if (count == 0) {
            result.status = IoStatus::kEnd;
        } else if (result.bytes < capacity) {
            result.status = IoStatus::kPartial;
        }
        return result;
    }

    IoResult writev(const iovec* vectors, size_t count) override {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(vectors);  // sendmsg only reads it
        message.msg_iovlen = count;
        ssize_t sent;
        do {
            sent = count == 1 ? ::send(fd_, vectors[0].iov_base, vectors[0].iov_len, MSG_NOSIGNAL)
                              : ::sendmsg(fd_, &message, MSG_NOSIGNAL);
        } while (sent < 0 && errno == EINTR);
        if (sent < 0) return failure_from_errno();
        size_t offered = 0;
        for (size_t i = 0; i < count; ++i) offered += vectors[i].iov_len;
        IoResult result;
        result.bytes = static_cast<size_t>(sent);
        if (result.bytes < offered) result.status = IoStatus::kPartial;
        return result;
    }

    bool holds_output() const override { return false; }

    IoResult shutdown() override {
        if (::shutdown(fd_, SHUT_WR) == 0) return {};
        return failure_from_errno();
    }

    std::string describe(int error) const override { return std::strerror(error); }

   private:
    int fd_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(int fd) {
    auto* transport = new (std::nothrow) TcpTransport(fd);
    if (transport == nullptr) {
        ::close(fd);
        throw std::bad_alloc();
    }
    return std::unique_ptr<Transport>(transport);
}

}  // namespace pgmqtt::net
