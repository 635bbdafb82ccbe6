// Inside the server. accepting.cpp brings connections in, streaming.cpp moves their bytes and
// closes them, server.cpp orders the turn.
//
// Two rules keep handlers free to call anything from anywhere: calls from outside only set flags
// and queue slots (a write excepted), and a connection's end is told by settle() alone, when no
// other callback is running. The queues have room for every slot before a connection is admitted,
// so nothing but buffers can run out of memory afterwards.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "net/connection.h"
#include "net/listener.h"
#include "net/poller.h"
#include "net/server.h"

namespace pgmqtt::net {

// A read takes at most this much at once, and moves at most that much of a remainder in front of
// it.
inline constexpr size_t kReadBytes = 64 << 10;
inline constexpr size_t kMovedInput = 4 << 10;
// What it takes when there is little room for input.
inline constexpr size_t kScarceReadBytes = 4 << 10;
inline constexpr size_t kScratchBytes = kMovedInput + kReadBytes;
// A packet's announced length is believed up to this many times what has arrived of it, as long as
// that could not exceed Limits::max_input_total if all did the same.
inline constexpr size_t kBelieved = 8;

class Server::State {
   public:
    explicit State(const Limits& limits);
    ~State();
    State(const State&) = delete;

    // What Server says of its methods of the same names holds.
    void turn(Handler& handler);
    bool has_backlog() const;
    void flush(ConnectionId id, Handler& handler);
    void pause(ConnectionId id);
    void resume(ConnectionId id);
    void close(ConnectionId id);
    int deadline_ms() const;
    void expect(size_t size) { expected_ = size; }
    base::KeptInput keep(size_t bytes);

    Limits limits;
    Poller poller;
    Listeners listeners{poller};
    ConnectionTable table;
    size_t input_bytes = 0;

   private:
    struct Closed {
        ConnectionId id;
        std::string reason;
    };
    enum class Refused { kOne, kNobody, kImpossible };

    // The turn, in this order.
    void collect_events();
    void note_event(const PollEvent& event);
    void serve_queue(Handler& handler);
    void settle(Handler& handler);
    void finish_lingering();
    void tell_closed(Handler& handler);

    // accepting.cpp
    void accept_waiting(Handler& handler);
    bool admit(const Listeners::Accepted& accepted, Handler& handler);
    void reserve_queues();
    Refused refuse_with_reserve();
    void suspend_accepting();
    void retry_accepting();

    // streaming.cpp: one connection
    void serve(uint32_t slot, size_t budget, Handler& handler);
    bool shake_hands(uint32_t slot);
    void read(uint32_t slot, size_t budget, Handler& handler);
    size_t read_once(uint32_t slot, size_t budget, Handler& handler);
    void show(uint32_t slot, base::ByteView bytes, bool in_place, Handler& handler);
    void note_read(uint32_t slot, const IoResult& result);
    void end_of_stream(uint32_t slot, Handler& handler);
    bool send(uint32_t slot, Handler& handler);
    void send_blocked(uint32_t slot, Handler& handler);
    void begin_close(uint32_t slot, const char* reason);
    void advance_close(uint32_t slot, size_t budget, Handler& handler);
    void discard(uint32_t slot, size_t budget);
    void finish(uint32_t slot, std::string_view reason) noexcept;
    void fail(uint32_t slot, int error) noexcept;

    // input_limit.cpp: Limits::max_input_total
    size_t room_for(size_t arrived) const;
    bool has_input_room() const;
    size_t input_share() const;
    bool may_read(uint32_t slot);
    void feed_starved();
    void feed(uint32_t slot);
    uint32_t largest_starved() const;

    void enqueue(uint32_t slot);
    void watch(uint32_t slot, bool read, bool write);
    void count_input(Connection& connection);

    // Slots to serve next turn and, swapped out, in this one.
    std::vector<uint32_t> queue_;
    std::vector<uint32_t> serving_;
    std::vector<uint32_t> closing_;  // close() was called: settle() starts it
    std::vector<Closed> closed_;     // on_closed() is due
    std::vector<uint32_t> starved_;  // not read for want of memory; may hold some that are by now
    uint32_t favoured_ = ConnectionTable::kNone;  // read all the same
    base::MonoTime favoured_until_{};

    InputBuffer* shown_in_place_ = nullptr;  // while a handler looks at it
    size_t expected_ = 0;                    // what it then said
    std::unique_ptr<char[]> scratch_;        // what idle connections would each need for reading
    int reserve_fd_;  // given up to accept and refuse when there are none left
    base::MonoTime retry_accept_at_ = base::kNever;  // while accepting is suspended
};

}  // namespace pgmqtt::net
