#include "broker/log_text.h"

#include "broker/session.h"

namespace pgmqtt::broker {

namespace {
constexpr size_t kQuotedBytes = 64;
constexpr char kHex[] = "0123456789abcdef";
}  // namespace

std::string quote(base::ByteView text) {
    std::string out = "\"";
    for (char byte : text.substr(0, kQuotedBytes)) {
        auto value = static_cast<unsigned char>(byte);
        if (value < 0x20 || value > 0x7E) {
            out += "\\x";
            out += kHex[value >> 4];
            out += kHex[value & 15];
        } else {
            if (byte == '"' || byte == '\\') out += '\\';
            out += byte;
        }
    }
    out += text.size() > kQuotedBytes ? "\"..." : "\"";
    return out;
}

std::string describe(const Connection& c) {
    std::string out = "client ";
    if (c.session != nullptr) out += quote(c.session->client_id) + " ";
    return out + "(" + c.peer.address + ":" + std::to_string(c.peer.port) + ")";
}

}  // namespace pgmqtt::broker
