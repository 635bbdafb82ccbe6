#include "sink/reason_text.h"

extern "C" {
#include <mb/pg_wchar.h>
}

#include "mqtt/utf8.h"

namespace pgmqtt::sink {
namespace {

constexpr size_t kReasonBytes = 200;

}  // namespace

base::ByteView cut_at_character(const std::string& text, size_t limit) {
    if (text.size() <= limit) return text;
    // The start of the text is well-formed, so this neither raises nor reads beyond it.
    int length = pg_mbcliplen(text.data(),
                              static_cast<int>(limit + MAX_MULTIBYTE_CHAR_LEN < text.size()
                                                   ? limit + MAX_MULTIBYTE_CHAR_LEN
                                                   : text.size()),
                              static_cast<int>(limit));
    return base::ByteView(text).substr(0, static_cast<size_t>(length));
}

std::string reason_text(const pg::Error& error) {
    std::string text(cut_at_character(error.message, kReasonBytes));
    if (GetDatabaseEncoding() != PG_UTF8) {
        // No conversion outside of a transaction: what is not ASCII is replaced.
        for (char& c : text)
            if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return mqtt::is_valid_string(text) ? text : std::string();
}

}  // namespace pgmqtt::sink
