#include "mqtt/utf8.h"

#include <cstdint>

#include "mqtt/words.h"

namespace pgmqtt::mqtt {
namespace {

using base::ByteView;

// The bytes of the multi-byte sequence at the front, 0 if it is ill-formed. The bounds of the
// second byte exclude overlong forms, surrogates and what is above U+10FFFF (Unicode, table 3-7).
size_t sequence_length(ByteView text) {
    auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    uint8_t lead = byte(0);
    size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || text.size() < length) return 0;

    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(1) < low || byte(1) > high) return 0;
    for (size_t i = 2; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
    }
    return length;
}

}  // namespace

bool is_well_formed_utf8(ByteView text) {
    size_t at = 0;
    while (at < text.size()) {
        if (text.size() - at >= 8 && words::is_ascii(words::load(text.data() + at))) {
            at += 8;
        } else if (static_cast<uint8_t>(text[at]) < 0x80) {
            ++at;
        } else {
            size_t length = sequence_length(text.substr(at));
            if (length == 0) return false;
            at += length;
        }
    }
    return true;
}

bool is_valid_string(ByteView text) {
    return is_well_formed_utf8(text) && text.find('\0') == ByteView::npos;
}

}  // namespace pgmqtt::mqtt
