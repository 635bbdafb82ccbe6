#include "loadtest/option_table.h"

#include <charconv>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value,
                         const std::string& wanted) {
    throw LoadError(option + " " + (value.empty() ? "''" : value) + ": give " + wanted +
                    "; see loadtest MODE --help");
}

// Both ends are allowed.
struct Range {
    double least;
    double most;
};

constexpr Range kPort{1, 65535};
constexpr Range kPid{1, 1 << 22};
constexpr Range kYear{0.01, 365 * 86400};
constexpr Range kYearOrNone{0, 365 * 86400};
constexpr Range kClients{1, 1'000'000};
constexpr Range kMany{1, 100'000'000};

std::string text_of(double value) {
    std::ostringstream out;
    out << std::setprecision(15) << value;
    return out.str();
}

// Not a number (nan) is in no range.
template <class T>
T number(const char* option, const std::string& text, Range range) {
    T value{};
    const char* end = text.data() + text.size();
    auto [at, error] = std::from_chars(text.data(), end, value);
    auto read = static_cast<double>(value);
    if (error != std::errc{} || at != end || !(read >= range.least && read <= range.most)) {
        const char* kind = std::is_integral_v<T> ? "a whole number from " : "a number from ";
        refuse(option, text, kind + text_of(range.least) + " to " + text_of(range.most));
    }
    return value;
}

template <class T>
Option numeric(const char* name, const char* argument, const char* modes, T Options::*member,
               Range range, const char* text) {
    return {name,
            argument,
            text,
            modes,
            [=](Options& o, const std::string& v) { o.*member = number<T>(name, v, range); },
            [=](const Options& o) { return text_of(static_cast<double>(o.*member)); }};
}

Option textual(const char* name, const char* argument, const char* modes,
               std::string Options::*member, const char* text) {
    return {name,
            argument,
            text,
            modes,
            [=](Options& o, const std::string& v) { o.*member = v; },
            [=](const Options& o) { return o.*member; }};
}

Option flag(const char* name, const char* modes, bool Options::*member, bool value,
            const char* text) {
    return {name,
            "",
            text,
            modes,
            [=](Options& o, const std::string&) { o.*member = value; },
            [=](const Options& o) { return o.*member == value ? "yes" : "no"; }};
}

// One of the words, whose values follow.
template <class T>
Option choice(const char* name, const char* argument, const char* modes, T Options::*member,
              std::vector<std::pair<const char*, T>> words, const char* text) {
    auto set = [=](Options& o, const std::string& v) {
        for (const auto& [word, value] : words)
            if (v == word) {
                o.*member = value;
                return;
            }
        refuse(name, v, argument);
    };
    auto get = [=](const Options& o) -> std::string {
        for (const auto& [word, value] : words)
            if (o.*member == value) return word;
        return "?";
    };
    return {name, argument, text, modes, set, get};
}

constexpr const char* kTraffic =
    "closedloop openloop fanin fanout soak offline sink cdc cardinality";
constexpr const char* kLoops = "closedloop openloop fanin fanout soak";
constexpr const char* kHeard = "closedloop openloop fanin fanout soak cdc cardinality";
constexpr const char* kPaced = "openloop soak sink cdc";

Option port_option() {
    Option option = textual("--port", "PORT", "", &Options::port, "its MQTT port (1883)");
    option.set = [](Options& o, const std::string& v) {
        o.port = std::to_string(number<uint32_t>("--port", v, kPort));
    };
    return option;
}

Option topic_prefix_option() {
    Option option = textual("--topic-prefix", "TEXT", "", &Options::topic_prefix,
                            "topics are PREFIX/RUN/PUBLISHER (loadtest)");
    option.set = [](Options& o, const std::string& v) {
        if (v.empty() || v.front() == '$' || v.find_first_of("+#") != std::string::npos)
            refuse("--topic-prefix", v, "a topic without + and # that does not begin with $");
        o.topic_prefix = v;
    };
    return option;
}

std::vector<Option> broker_options() {
    return {
        textual("--host", "NAME", "", &Options::host, "the broker (127.0.0.1)"),
        port_option(),
        textual("--username", "NAME", "", &Options::username, "to log in with"),
        textual("--password", "TEXT", "", &Options::password, "to log in with"),
        numeric("--broker-pid", "PID", "", &Options::broker_pid, kPid,
                "process whose CPU and memory count as the broker's"),
        textual("--pg", "CONNINFO", "", &Options::pg,
                "the PostgreSQL with pgmqtt: finds the broker's pid, samples the database"),
        choice<ClientKind>("--client", "raw|paho", "", &Options::client,
                           {{"raw", ClientKind::kRaw}, {"paho", ClientKind::kPaho}},
                           "raw: fast, our own (the default); paho: libpaho-mqtt, for fidelity"),
        choice<int>("--protocol", "4|5", "", &Options::protocol, {{"4", 4}, {"5", 5}},
                    "4 is MQTT 3.1.1 (5)"),
        textual("--client-prefix", "TEXT", "", &Options::client_prefix,
                "client identifiers begin with this (lt)"),
        textual("--label", "TEXT", "", &Options::label, "name of the run in its reports"),
        textual("--json", "FILE", "", &Options::json, "append one JSON line; - is standard output"),
        textual("--html", "FILE", "", &Options::html, "write a report with plots"),
        flag("--quiet", "", &Options::quiet, true, "no summary on standard output"),
    };
}

std::vector<Option> traffic_options() {
    return {
        numeric("--duration", "SECONDS", "", &Options::duration, kYear, "measured window (10)"),
        numeric("--warmup", "SECONDS", "", &Options::warmup, kYearOrNone, "before it (2)"),
        numeric("--drain", "SECONDS", "", &Options::drain, kYearOrNone,
                "most that the last messages may take after it (10)"),
        numeric("--threads", "N", kLoops, &Options::threads, {1, 256},
                "spreads independent groups of the topology over N threads (1)"),
        numeric("--publishers", "N", kTraffic, &Options::publishers, kClients,
                "publishing clients (1)"),
        numeric("--subscribers", "N", kHeard, &Options::subscribers, {0, 1'000'000},
                "subscribing clients (1)"),
        choice<Topology>("--topology", "pairs|fanout|fanin|all|none", kLoops, &Options::topology,
                         {{"pairs", Topology::kPairs},
                          {"all", Topology::kAll},
                          {"fanout", Topology::kAll},
                          {"fanin", Topology::kAll},
                          {"none", Topology::kNone}},
                         "who hears whom: subscriber j publisher j mod N (the default), all all, "
                         "nobody"),
        choice<uint8_t>("--qos", "0|1|2", "", &Options::qos, {{"0", 0}, {"1", 1}, {"2", 2}},
                        "of publishes and subscriptions (0)"),
        numeric("--payload-size", "BYTES", "", &Options::payload_size, {32, 256'000'000},
                "at least 32 (64)"),
        numeric("--topics", "N", "", &Options::topics, kMany, "per publisher, in turn (1)"),
        topic_prefix_option(),
        flag("--retain", kLoops, &Options::retain, true, "publish retained messages"),
        flag("--clean", kLoops, &Options::persistent, false,
             "clean sessions that end with their connection (the default)"),
        flag("--persistent", kLoops, &Options::persistent, true,
             "subscribers' sessions outlive their connections"),
        numeric("--window", "N", kTraffic, &Options::window, kMany,
                "most messages in flight end to end, per publisher (1000 with QoS 0, else 100)"),
        numeric("--ack-window", "N", kTraffic, &Options::ack_window, {1, 65534},
                "most publishes that await PUBACK or PUBCOMP, per publisher (as --window)"),
        numeric("--rate", "N", kPaced, &Options::rate, {0.001, 100'000'000},
                "messages a second of all publishers together"),
        numeric("--max-inflight", "N", kPaced, &Options::max_inflight, kMany,
                "of the pacer: what would exceed this many undelivered messages is shed (100000)"),
    };
}

std::vector<Option> mode_options() {
    return {
        numeric("--messages", "N", "offline", &Options::messages, kMany,
                "to queue per session (100000)"),
        numeric("--sessions", "N", "offline cardinality", &Options::sessions, kMany,
                "persistent sessions (10)"),
        numeric("--filters", "N", "cardinality", &Options::filters, kMany,
                "subscriptions to install before routed publishes are measured"),
        numeric("--retained", "N", "cardinality", &Options::retained, kMany,
                "retained messages to store, then to receive through one subscription"),
        numeric("--connections", "N", "idle cardinality", &Options::connections, kClients,
                "clients that stay connected (1000)"),
        numeric("--concurrency", "N", "storm idle cardinality", &Options::concurrency, kClients,
                "connects that may be under way at once (50)"),
        flag("--subscribe", "storm", &Options::subscribe, true,
             "each connection subscribes before it ends"),
        flag("--reconnect", "storm", &Options::reconnect, true,
             "the same persistent sessions come back again and again"),
        numeric("--report-every", "SECONDS", "soak", &Options::report_every, {1, 86400},
                "a line of the state so far (60)"),
        numeric("--rows-per-transaction", "N", "cdc", &Options::rows_per_transaction, kClients,
                "rows that one INSERT commits (1)"),
        textual("--table", "NAME", "sink cdc", &Options::table,
                "made for the run, dropped after it (loadtest_row)"),
    };
}

std::vector<Option> compare_options() {
    auto set_peer = [](Options& o, const std::string& v) {
        size_t colon = v.rfind(':');
        if (colon == std::string::npos || colon == 0 || colon + 1 == v.size())
            refuse("--peer", v, "HOST:PORT");
        o.peer_host = v.substr(0, colon);
        o.peer_port =
            std::to_string(number<uint32_t>("the port of --peer", v.substr(colon + 1), kPort));
    };
    auto get_peer = [](const Options& o) { return o.peer_host + ":" + o.peer_port; };
    return {
        {"--peer", "HOST:PORT", "the second broker", "compare", set_peer, get_peer},
        numeric("--peer-pid", "PID", "compare", &Options::peer_pid, kPid, "its process"),
        textual("--peer-label", "TEXT", "compare", &Options::peer_label, "its name (peer)"),
        numeric("--rounds", "N", "compare", &Options::rounds, {1, 100'000},
                "of one run against each; medians count (5)"),
    };
}

bool knows(const Option& option, const std::string& mode) {
    std::string_view modes = option.modes;
    if (modes.empty()) return true;
    return (" " + std::string(modes) + " ").find(" " + mode + " ") != std::string::npos;
}

}  // namespace

std::vector<Option> options_of(const std::string& mode) {
    std::vector<Option> all;
    for (auto part : {broker_options(), traffic_options(), mode_options(), compare_options()})
        for (Option& option : part)
            if (knows(option, mode)) all.push_back(std::move(option));
    return all;
}

bool is_of_workload(const Option& option) {
    std::string_view name = option.name;
    return std::string_view(option.modes).empty() && name != "--json" && name != "--html" &&
           name != "--label" && name != "--quiet";
}

}  // namespace pgmqtt::loadtest
