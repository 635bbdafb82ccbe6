#include "loadtest/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <random>
#include <sstream>
#include <string_view>

#include "loadtest/load_error.h"
#include "loadtest/mode.h"

namespace pgmqtt::loadtest {
namespace {

struct Option {
    const char* name;
    const char* argument;  // "" of a flag
    const char* text;
    const char* modes;  // "" for all, else the list of those that know it
    std::function<void(Options&, const std::string&)> set;
    std::function<std::string(const Options&)> get;
};

[[noreturn]] void refuse(const std::string& option, const std::string& value, const char* wanted) {
    throw LoadError(option + " " + value + ": give " + wanted + "; see loadtest MODE --help");
}

template <class T>
T number(const char* option, const std::string& text) {
    T value{};
    const char* end = text.data() + text.size();
    auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end || text.empty()) refuse(option, text, "a number");
    if constexpr (std::is_signed_v<T>)
        if (value < 0) refuse(option, text, "a number that is not negative");
    return value;
}

std::string text_of(double value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

template <class T>
Option numeric(const char* name, const char* argument, const char* modes, T Options::*member,
               const char* text) {
    return {name,
            argument,
            text,
            modes,
            [=](Options& o, const std::string& v) { o.*member = number<T>(name, v); },
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

std::vector<Option> broker_options() {
    return {
        textual("--host", "NAME", "", &Options::host, "the broker (127.0.0.1)"),
        textual("--port", "PORT", "", &Options::port, "its MQTT port (1883)"),
        textual("--username", "NAME", "", &Options::username, "to log in with"),
        textual("--password", "TEXT", "", &Options::password, "to log in with"),
        numeric("--broker-pid", "PID", "", &Options::broker_pid,
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
        numeric("--duration", "SECONDS", "", &Options::duration, "measured window (10)"),
        numeric("--warmup", "SECONDS", "", &Options::warmup, "before it (2)"),
        numeric("--drain", "SECONDS", "", &Options::drain,
                "most that the last messages may take after it (10)"),
        numeric("--threads", "N", kLoops, &Options::threads,
                "spreads independent groups of the topology over N threads (1)"),
        numeric("--publishers", "N", kTraffic, &Options::publishers, "publishing clients (1)"),
        numeric("--subscribers", "N", kHeard, &Options::subscribers, "subscribing clients (1)"),
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
        numeric("--payload-size", "BYTES", "", &Options::payload_size, "at least 32 (64)"),
        numeric("--topics", "N", "", &Options::topics, "per publisher, in turn (1)"),
        textual("--topic-prefix", "TEXT", "", &Options::topic_prefix,
                "topics are PREFIX/RUN/PUBLISHER (loadtest)"),
        flag("--retain", kLoops, &Options::retain, true, "publish retained messages"),
        flag("--clean", kLoops, &Options::persistent, false,
             "clean sessions that end with their connection (the default)"),
        flag("--persistent", kLoops, &Options::persistent, true,
             "subscribers' sessions outlive their connections"),
        numeric("--window", "N", kTraffic, &Options::window,
                "most messages in flight end to end, per publisher (1000 with QoS 0, else 100)"),
        numeric("--ack-window", "N", kTraffic, &Options::ack_window,
                "most publishes that await PUBACK or PUBCOMP, per publisher (as --window)"),
        numeric("--rate", "N", kPaced, &Options::rate,
                "messages a second of all publishers together"),
        numeric("--max-inflight", "N", kPaced, &Options::max_inflight,
                "of the pacer: what would exceed this many undelivered messages is shed (100000)"),
    };
}

std::vector<Option> mode_options() {
    return {
        numeric("--messages", "N", "offline", &Options::messages, "to queue per session (100000)"),
        numeric("--sessions", "N", "offline cardinality", &Options::sessions,
                "persistent sessions (10)"),
        numeric("--filters", "N", "cardinality", &Options::filters,
                "subscriptions to install before routed publishes are measured"),
        numeric("--retained", "N", "cardinality", &Options::retained,
                "retained messages to store, then to receive through one subscription"),
        numeric("--connections", "N", "idle cardinality", &Options::connections,
                "clients that stay connected (1000)"),
        numeric("--concurrency", "N", "storm idle cardinality", &Options::concurrency,
                "connects that may be under way at once (50)"),
        flag("--subscribe", "storm", &Options::subscribe, true,
             "each connection subscribes before it ends"),
        flag("--reconnect", "storm", &Options::reconnect, true,
             "the same persistent sessions come back again and again"),
        numeric("--report-every", "SECONDS", "soak", &Options::report_every,
                "a line of the state so far (60)"),
        numeric("--rows-per-transaction", "N", "cdc", &Options::rows_per_transaction,
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
        o.peer_port = v.substr(colon + 1);
    };
    auto get_peer = [](const Options& o) { return o.peer_host + ":" + o.peer_port; };
    return {
        {"--peer", "HOST:PORT", "the second broker", "compare", set_peer, get_peer},
        numeric("--peer-pid", "PID", "compare", &Options::peer_pid, "its process"),
        textual("--peer-label", "TEXT", "compare", &Options::peer_label, "its name (peer)"),
        numeric("--rounds", "N", "compare", &Options::rounds,
                "of one run against each; medians count (5)"),
    };
}

bool knows(const Option& option, const std::string& mode) {
    std::string_view modes = option.modes;
    if (modes.empty()) return true;
    return (" " + std::string(modes) + " ").find(" " + mode + " ") != std::string::npos;
}

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

void check(Options& options) {
    if (options.payload_size < 32 || options.payload_size > 256'000'000)
        throw LoadError("--payload-size must be 32 to 256000000: the stamp needs 32 bytes");
    if (options.publishers == 0 || options.topics == 0 || options.threads == 0)
        throw LoadError("--publishers, --topics and --threads must be at least 1");
    bool loops = options.mode == "closedloop" || options.mode == "openloop" ||
                 options.mode == "soak" || options.mode == "fanin" || options.mode == "fanout";
    if (loops && options.subscribers == 0) options.topology = Topology::kNone;
    if (loops && options.topology == Topology::kPairs &&
        options.subscribers % options.publishers != 0)
        throw LoadError("--topology pairs wants --subscribers to be a multiple of --publishers");
    if (options.mode == "openloop" && options.rate <= 0)
        throw LoadError("openloop needs --rate, messages a second; closedloop finds the highest");
    if (options.duration <= 0) throw LoadError("--duration must be more than 0 seconds");
    if (options.label.empty()) options.label = options.mode;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    if (arguments.empty()) throw LoadError("give a mode; see loadtest --help");
    options.mode = arguments[0];
    const Mode* mode = find_mode(options.mode);
    if (mode == nullptr)
        throw LoadError("there is no mode " + options.mode + "; see loadtest --help");
    mode->preset(options);
    std::random_device random;
    options.run = random();
    std::vector<Option> known = options_of(options.mode);
    std::vector<std::string> passed_on;
    for (size_t i = 1; i < arguments.size(); ++i) {
        if (arguments[i] == "--" && options.mode == "compare") {
            options.compared.assign(arguments.begin() + static_cast<ptrdiff_t>(i) + 1,
                                    arguments.end());
            if (!options.compared.empty())
                options.compared.insert(options.compared.begin() + 1, passed_on.begin(),
                                        passed_on.end());
            break;
        }
        auto option = std::find_if(known.begin(), known.end(),
                                   [&](const Option& o) { return arguments[i] == o.name; });
        if (option == known.end())
            throw LoadError(arguments[i] + " is no option of " + options.mode + "; see loadtest " +
                            options.mode + " --help");
        bool has_argument = *option->argument != '\0';
        if (has_argument && i + 1 == arguments.size())
            throw LoadError(arguments[i] + " needs " + option->argument);
        if (options.mode == "compare" && is_of_workload(*option)) {
            passed_on.push_back(arguments[i]);
            if (has_argument) passed_on.push_back(arguments[i + 1]);
        }
        option->set(options, has_argument ? arguments[++i] : "");
    }
    check(options);
    return options;
}

std::string help_text(const std::string& mode) {
    std::string text;
    const Mode* wanted = find_mode(mode);
    if (wanted == nullptr) {
        text = "loadtest MODE [options]     loadtest MODE --help lists the options\n\n";
        for (const Mode& each : all_modes()) {
            std::string name = each.name;
            name.resize(13, ' ');
            text += "  " + name + each.text + "\n";
        }
        return text;
    }
    text = "loadtest " + mode + " [options]" +
           (mode == "compare" ? " -- MODE [options of MODE]" : "") + "\n" + wanted->text + "\n\n";
    for (const Option& option : options_of(mode)) {
        std::string name = std::string(option.name) + " " + option.argument;
        name.resize(std::max<size_t>(30, name.size() + 1), ' ');
        text += "  " + name + option.text + "\n";
    }
    return text;
}

std::vector<std::pair<std::string, std::string>> describe(const Options& options) {
    std::vector<std::pair<std::string, std::string>> described;
    for (const Option& option : options_of(options.mode)) {
        std::string name = std::string(option.name).substr(2);
        if (name == "password" || name == "label" || name == "json" || name == "html" ||
            name == "quiet" || name == "clean")
            continue;
        std::string value = option.get(options);
        if (name == "window") value = std::to_string(options.end_to_end_window());
        if (name == "ack-window") value = std::to_string(options.acknowledgement_window());
        if (name == "pg" && !value.empty()) value = "given";  // it may hold a password
        described.emplace_back(name, value);
    }
    return described;
}

}  // namespace pgmqtt::loadtest
