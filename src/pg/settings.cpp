#include "pg/settings.h"

extern "C" {
#include <arpa/inet.h>
}

#include <climits>
#include <string_view>

namespace pgmqtt::pg {

Settings settings;

namespace {

// --- what can be known to be wrong before it is used

bool is_address(std::string_view item) {
    char text[INET6_ADDRSTRLEN];
    unsigned char address[sizeof(in6_addr)];
    size_t zone = item.find('%');
    bool is_v6 = item.find(':') != item.npos;
    if (is_v6) item = item.substr(0, zone);
    if (item.size() >= sizeof(text)) return false;
    text[item.copy(text, sizeof(text) - 1)] = '\0';
    return inet_pton(is_v6 ? AF_INET6 : AF_INET, text, address) == 1;
}

bool is_listen_address(std::string_view item) {
    if (item == "*") return true;
    if (item.empty() || item.size() > 255) return false;
    if (item.find(':') != item.npos || item.find_first_not_of("0123456789.") == item.npos)
        return is_address(item);
    constexpr std::string_view kHostName =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return item.find_first_not_of(kHostName) == item.npos && item.front() != '-';
}

std::string_view trimmed(std::string_view text) {
    size_t begin = text.find_first_not_of(" \t\n\r");
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\n\r") - begin + 1);
}

bool check_listen_addresses(char** value, void**, GucSource) {
    std::string_view rest = trimmed(*value);
    if (rest.empty()) return true;  // no TCP at all
    for (;;) {
        size_t comma = rest.find(',');
        std::string_view item = trimmed(rest.substr(0, comma));
        if (!is_listen_address(item)) {
            GUC_check_errdetail(
                "\"%.*s\" is neither \"*\", a host name nor an IPv4 or IPv6 address.",
                static_cast<int>(item.size()), item.data());
            GUC_check_errhint("Give a comma-separated list such as 'localhost, 192.0.2.7, ::1'.");
            return false;
        }
        if (comma == rest.npos) return true;
        rest.remove_prefix(comma + 1);
    }
}

bool check_database(char** value, void**, GucSource) {
    std::string_view name = *value;
    if (!name.empty() && name.size() < NAMEDATALEN) return true;
    GUC_check_errdetail("A database name has 1 to %d bytes.", NAMEDATALEN - 1);
    return false;
}

// --- the table

const config_enum_entry kAllowAnonymousOptions[] = {
    {"off", kAnonymousOff, false}, {"local", kAnonymousLocal, false},
    {"on", kAnonymousOn, false},   {"false", kAnonymousOff, true},
    {"no", kAnonymousOff, true},   {"0", kAnonymousOff, true},
    {"true", kAnonymousOn, true},  {"yes", kAnonymousOn, true},
    {"1", kAnonymousOn, true},     {nullptr, 0, false},
};

const config_enum_entry kQueuePolicyOptions[] = {
    {"drop_oldest", kQueueDropOldest, false},
    {"drop_newest", kQueueDropNewest, false},
    {"reject", kQueueReject, false},
    {"disconnect", kQueueDisconnect, false},
    {nullptr, 0, false},
};

const config_enum_entry kDurabilityOptions[] = {
    {"durable", kDurable, false},
    {"async", kAsync, false},
    {"unlogged", kUnlogged, false},
    {nullptr, 0, false},
};

const config_enum_entry kLogLevelOptions[] = {
    {"debug5", DEBUG5, false}, {"debug4", DEBUG4, false}, {"debug3", DEBUG3, false},
    {"debug2", DEBUG2, false}, {"debug1", DEBUG1, false}, {"log", LOG, false},
    {"info", INFO, false},     {"notice", NOTICE, false}, {"warning", WARNING, false},
    {nullptr, 0, false},
};

struct StringSetting {
    const char* name;
    char** value;
    const char* initial;
    GucContext context;
    int flags;
    GucStringCheckHook check;
    const char* description;
    const char* details;
};

struct IntSetting {
    const char* name;
    int* value;
    int initial;
    int least;
    int most;
    GucContext context;
    int flags;  // the unit
    const char* description;
    const char* details;
};

struct EnumSetting {
    const char* name;
    int* value;
    int initial;
    const config_enum_entry* options;
    const char* description;
    const char* details;
};

struct BoolSetting {
    const char* name;
    bool* value;
    bool initial;
    const char* description;
    const char* details;
};

constexpr int kKilobyte = 1024;
constexpr int kMegabyte = 1024 * 1024;

const StringSetting kStrings[] = {
    {"pgmqtt.database", &settings.database, "postgres", PGC_POSTMASTER, 0, check_database,
     "Database that the broker serves.",
     "CREATE EXTENSION pgmqtt is refused in every other database."},
    {"pgmqtt.listen_addresses", &settings.listen_addresses, "localhost", PGC_SIGHUP, GUC_LIST_INPUT,
     check_listen_addresses, "Host names or IP addresses to listen on.",
     "Comma-separated; \"*\" is all addresses, an empty list none."},
};

const IntSetting kInts[] = {
    {"pgmqtt.port", &settings.port, 1883, 0, 65535, PGC_SIGHUP, 0, "TCP port for MQTT without TLS.",
     "0 turns the listener off."},
    {"pgmqtt.max_connections", &settings.max_connections, 10000, 1, 1000000, PGC_POSTMASTER, 0,
     "Clients that may be connected at once.",
     "They take no connection slots of the server, but one file descriptor each."},
    {"pgmqtt.max_packet_size", &settings.max_packet_size, kMegabyte, kKilobyte, 256 * kMegabyte,
     PGC_SIGHUP, GUC_UNIT_BYTE, "Largest MQTT packet that clients may send.",
     "MQTT 5 clients are told as Maximum Packet Size."},
    {"pgmqtt.max_inflight", &settings.max_inflight, 100, 1, 65535, PGC_SIGHUP, 0,
     "Unacknowledged QoS 1 and 2 publishes per client and direction.",
     "MQTT 5 clients are told as Receive Maximum."},
    {"pgmqtt.max_queued_messages", &settings.max_queued_messages, 100000, 0, INT_MAX, PGC_SIGHUP, 0,
     "Messages that wait for one offline or slow client.",
     "pgmqtt.queue_policy says what happens to more."},
    {"pgmqtt.max_queued_bytes", &settings.max_queued_bytes, 100 * kKilobyte, 0, MAX_KILOBYTES,
     PGC_SIGHUP, GUC_UNIT_KB, "Bytes that wait for one offline or slow client.",
     "pgmqtt.queue_policy says what happens to more."},
    {"pgmqtt.client_buffer", &settings.client_buffer, 256 * kKilobyte, 4 * kKilobyte,
     256 * kMegabyte, PGC_SIGHUP, GUC_UNIT_BYTE,
     "Unread input and unsent output kept per client and direction.",
     "A client that reads too slowly loses QoS 0 messages beyond it."},
    {"pgmqtt.max_memory", &settings.max_memory, 512 * kKilobyte, 16 * kKilobyte, MAX_KILOBYTES,
     PGC_SIGHUP, GUC_UNIT_KB, "Memory that the broker uses for messages and clients.",
     "Near it publishers are slowed down and new work is refused."},
    {"pgmqtt.tick", &settings.tick, 5, 1, 1000, PGC_SIGHUP, GUC_UNIT_MS,
     "Time between two storing transactions under lasting load.",
     "Up to 1,000 in a burst are not delayed."},
    {"pgmqtt.cdc_tick", &settings.cdc_tick, 100, 1, 60000, PGC_SIGHUP, GUC_UNIT_MS,
     "Longest time that a committed change waits to be decoded.",
     "A commit wakes the worker at once; this is the ceiling."},
    {"pgmqtt.cdc_batch_size", &settings.cdc_batch_size, 2048, 1, 100000, PGC_SIGHUP, 0,
     "Changes that are evaluated by one statement of a mapping.", nullptr},
    {"pgmqtt.max_keep_alive", &settings.max_keep_alive, 65535, 1, 65535, PGC_SIGHUP, GUC_UNIT_S,
     "Longest keep-alive that clients may ask for.",
     "MQTT 5 clients are told as Server Keep Alive."},
    {"pgmqtt.max_session_expiry", &settings.max_session_expiry, 30 * 86400, 0, INT_MAX, PGC_SIGHUP,
     GUC_UNIT_S, "Longest time that a session is kept for a client that is away.",
     "MQTT 5 clients are told as Session Expiry Interval; those of 3.1.1 with clean session 0 get "
     "this."},
    {"pgmqtt.connect_timeout", &settings.connect_timeout, 10000, 100, 3600000, PGC_SIGHUP,
     GUC_UNIT_MS, "Time from accepting a connection to a complete CONNECT.", nullptr},
    {"pgmqtt.shutdown_timeout", &settings.shutdown_timeout, 2000, 100, 3600000, PGC_SIGHUP,
     GUC_UNIT_MS, "Time in which the workers end when the server shuts down.",
     "Statements that still run after half of it are cancelled."},
    {"pgmqtt.max_subscriptions", &settings.max_subscriptions, 1000, 1, 1000000, PGC_SIGHUP, 0,
     "Subscriptions of one session.", nullptr},
    {"pgmqtt.max_retained", &settings.max_retained, 1000000, 0, INT_MAX, PGC_SIGHUP, 0,
     "Retained messages.", nullptr},
    {"pgmqtt.max_retained_bytes", &settings.max_retained_bytes, kMegabyte, 0, MAX_KILOBYTES,
     PGC_SIGHUP, GUC_UNIT_KB, "Bytes of all retained messages together.", nullptr},
    {"pgmqtt.store_timeout", &settings.store_timeout, 30000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
     "Longest time a publisher of MQTT 5.0 waits for its message to be stored.",
     "After that it is told 0x97, Quota exceeded. 0 waits for ever."},
    {"pgmqtt.sys_interval", &settings.sys_interval, 10000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
     "Time between publishes to the topics $SYS/broker/....",
     "They are published while somebody subscribes to them; 0 turns them off."},
};

const EnumSetting kEnums[] = {
    {"pgmqtt.allow_anonymous", &settings.allow_anonymous, kAnonymousLocal, kAllowAnonymousOptions,
     "Who may connect without a user name.", "\"local\": clients on this machine."},
    {"pgmqtt.queue_policy", &settings.queue_policy, kQueueDropOldest, kQueuePolicyOptions,
     "What happens when a client's queue is full.",
     "\"reject\" refuses the publish, \"disconnect\" ends the slow client's session."},
    {"pgmqtt.durability", &settings.durability, kDurable, kDurabilityOptions,
     "What the acknowledgement of a QoS 1 or 2 message promises.",
     "\"durable\": it is committed and flushed; \"async\": committed and written; \"unlogged\": it "
     "is "
     "in a table that survives a clean restart only."},
    {"pgmqtt.log_level", &settings.log_level, LOG, kLogLevelOptions,
     "Most detailed messages that pgmqtt itself writes to the server log.", nullptr},
};

const BoolSetting kBools[] = {
    {"pgmqtt.log_connections", &settings.log_connections, false,
     "Logs every connecting and disconnecting client.", nullptr},
};

}  // namespace

void define_settings() {
    // The server defines settings of PGC_POSTMASTER only while it preloads. In a session that loads
    // the library later nothing serves anybody, so there the context matters to nobody.
    auto context_of = [](GucContext context) {
        return process_shared_preload_libraries_in_progress ? context : PGC_SIGHUP;
    };
    for (const StringSetting& s : kStrings)
        DefineCustomStringVariable(s.name, s.description, s.details, s.value, s.initial,
                                   context_of(s.context), s.flags, s.check, nullptr, nullptr);
    for (const IntSetting& s : kInts)
        DefineCustomIntVariable(s.name, s.description, s.details, s.value, s.initial, s.least,
                                s.most, context_of(s.context), s.flags, nullptr, nullptr, nullptr);
    for (const EnumSetting& s : kEnums)
        DefineCustomEnumVariable(s.name, s.description, s.details, s.value, s.initial, s.options,
                                 PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    for (const BoolSetting& s : kBools)
        DefineCustomBoolVariable(s.name, s.description, s.details, s.value, s.initial, PGC_SIGHUP,
                                 0, nullptr, nullptr, nullptr);
    reserve_setting_prefix("pgmqtt");
}

}  // namespace pgmqtt::pg
