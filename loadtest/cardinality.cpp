// cardinality: many more topics, sessions, filters or retained messages than are active.
#include "loadtest/cardinality.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "loadtest/event_loop.h"
#include "loadtest/guest.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"

namespace pgmqtt::loadtest {
namespace {

constexpr uint32_t kSessionExpiry = 3600;

// Makes persistent sessions with a subscription each while the traffic runs, in a thread of its
// own.
class SessionMaker {
   public:
    explicit SessionMaker(const Options& options) : options_(options) {
        options_.sessions = options.sessions;
        thread_ = std::thread([this] { work(); });
    }
    ~SessionMaker() {
        if (thread_.joinable()) finish();
    }

    // Stops making them, and removes those that were made.
    void finish() {
        stop_ = true;
        thread_.join();
    }
    uint64_t made() const { return made_; }
    const std::string& error() const { return error_; }

   private:
    void work() {
        attempt([this] {
            while (!stop_ && !is_stopping() && made_ < options_.sessions)
                made_ += visit(made_, options_.sessions, true);
        });
        // Of the last batch some may be there though not all came.
        attempt([this] {
            for (uint64_t i = 0; i < begun_;) i += visit(i, begun_, false);
        });
    }
    // What happens first is the error; the rest follows from it.
    template <class Act>
    void attempt(Act act) {
        try {
            act();
        } catch (const std::exception& error) {
            if (error_.empty()) error_ = std::string("sessions: ") + error.what();
        }
    }

    // Connects and disconnects clients from `first` on, below `end`, as many as may at once;
    // persistent ones leave a session behind. How many it were.
    uint64_t visit(uint64_t first, uint64_t end, bool persistent) {
        uint64_t count = std::min<uint64_t>(options_.concurrency, end - first);
        if (persistent) begun_ = first + count;
        std::vector<std::unique_ptr<Guest>> guests;
        Attendance attendance;
        for (uint64_t i = first; i < first + count; ++i) {
            ClientOptions client = client_options(options_, client_id(options_, "m", i));
            client.clean = !persistent;
            client.session_expiry = persistent ? kSessionExpiry : 0;
            std::vector<std::string> filters;
            if (persistent) filters.push_back("loadtest-sessions/" + std::to_string(i) + "/+");
            guests.push_back(std::make_unique<Guest>(options_.client, client, filters, uint8_t{1},
                                                     loop_, meter_, attendance));
        }
        gather(
            loop_, attendance, guests.size(), guests.size(),
            [&](size_t i) { guests[i]->connect(); }, OnStop::kGoOn);
        for (auto& guest : guests) guest->disconnect();
        return count;
    }

    Options options_;
    EventLoop loop_;
    Meter meter_;
    std::atomic<bool> stop_ = false;
    uint64_t made_ = 0;
    uint64_t begun_ = 0;
    std::string error_;
    std::thread thread_;
};

}  // namespace

RunResult run_cardinality(const Options& options) {
    if (options.filters != 0 || options.retained != 0) {
        Options one_topic_each = options;
        one_topic_each.topics = 1;
        return options.filters != 0 ? run_many_filters(one_topic_each)
                                    : run_many_retained(one_topic_each);
    }
    SessionMaker sessions(options);
    RunResult result = run_traffic(options);
    sessions.finish();
    result.figures.push_back({"sessions_made", static_cast<double>(sessions.made()), "sessions"});
    result.figures.push_back(
        {"topics", static_cast<double>(options.topics) * options.publishers, "topics"});
    if (!sessions.error().empty()) result.errors.push_back(sessions.error());
    return result;
}

}  // namespace pgmqtt::loadtest
