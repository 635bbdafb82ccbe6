#include "pg/log.h"

#include <string>

#include "pg/settings.h"

namespace pgmqtt::pg {
namespace {

// A line of the log is for people; what clients send may be 64 KiB of anything.
constexpr size_t kMaxLogText = 4096;

// Control characters as \xNN, so that no client writes lines of its own into the log or moves the
// cursor of whoever reads it. Line feeds of server texts stay: the server indents what follows
// them.
std::string printable(std::string_view text, bool keep_line_feeds) {
    std::string out;
    bool cut = text.size() > kMaxLogText;
    if (cut) {
        size_t end = kMaxLogText;
        while (end > kMaxLogText - 4 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
        text = text.substr(0, end);
    }
    out.reserve(text.size() + 3);
    for (char c : text) {
        uint8_t byte = static_cast<uint8_t>(c);
        if ((byte >= 0x20 && byte != 0x7F) || (c == '\n' && keep_line_feeds)) {
            out.push_back(c);
        } else {
            constexpr char kHex[] = "0123456789abcdef";
            out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
        }
    }
    if (cut) out += "...";
    return out;
}

// What the guard writes: text owned above it.
struct Entry {
    int level;
    int sqlstate;
    const std::string& message;
    const std::string& detail;
    const std::string& hint;
    const std::string& context;
};

void write(const Entry& entry) {
    // LOG_SERVER_ONLY: below the server's own log_min_messages a debug line would vanish, although
    // pgmqtt.log_level asks for it.
    int level = entry.level < LOG ? LOG_SERVER_ONLY : entry.level;
    Status status = guard([&entry, level] {
        ereport(level, (entry.sqlstate != 0 ? errcode(entry.sqlstate) : 0,
                        errmsg_internal("%s", entry.message.c_str()),
                        entry.detail.empty() ? 0 : errdetail_internal("%s", entry.detail.c_str()),
                        entry.hint.empty() ? 0 : errhint("%s", entry.hint.c_str()),
                        entry.context.empty()
                            ? 0
                            : (errcontext("%s", entry.context.c_str()))));  // a macro with a comma
    });
    (void)status.ok();  // there is nowhere left to report that reporting failed
}

}  // namespace

void log(int level, std::string_view message, std::string_view detail,
         std::string_view hint) noexcept try {
    if (level < settings.log_level) return;
    std::string texts[] = {printable(message, false), printable(detail, true),
                           printable(hint, true), std::string()};
    write({level, 0, texts[0], texts[1], texts[2], texts[3]});
} catch (...) {
    // No memory for a line of the log: nothing else depends on it.
}

void log(int level, std::string_view what, const Error& error) noexcept try {
    if (level < settings.log_level) return;
    std::string message(what);
    message += ": ";
    message += error.message;
    std::string texts[] = {printable(message, false), printable(error.detail, true),
                           printable(error.hint, true), printable(error.context, true)};
    write({level, error.sqlstate, texts[0], texts[1], texts[2], texts[3]});
} catch (...) {
    // As above.
}

}  // namespace pgmqtt::pg
