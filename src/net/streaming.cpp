// The life of one connection: its bytes in, its bytes out, its end.
//
// References into the table stay good throughout: only accepting adds to it.
#include <algorithm>
#include <cstring>
#include <new>

#include "net/server_state.h"

namespace pgmqtt::net {

namespace {

// Enough to send what a turn gathers for one client; IOV_MAX would only make the array cold.
constexpr size_t kVectors = 64;

constexpr const char* kByPeer = "closed by the peer";
constexpr const char* kByServer = "closed by the server";

}  // namespace

void Server::State::serve(uint32_t slot, size_t budget, Handler& handler) {
    Connection& c = table.at(slot);
    if (!c.alive()) return;
    const bool broken = c.write_error != 0;
    try {
        // What the transport decrypted along with its handshake is announced by nobody.
        if (c.phase == Phase::kHandshake && shake_hands(slot)) c.readable = true;
        if (c.writable) send_blocked(slot, handler);
        if (c.closing()) {
            advance_close(slot, budget, handler);
        } else if (c.phase == Phase::kOpen) {
            read(slot, budget, handler);
            // The last words of a peer that does not listen any more are worth hearing.
            const bool heard = !c.readable || c.paused || c.starved;
            if (broken && heard && c.phase == Phase::kOpen) fail(slot, c.write_error);
        }
    } catch (const std::bad_alloc&) {
        if (c.alive()) finish(slot, "out of memory");
    }
    if (!c.alive()) return;
    count_input(c);
    if (c.readable && !c.paused && !c.starved && c.phase == Phase::kOpen) enqueue(slot);
}

bool Server::State::shake_hands(uint32_t slot) {
    Connection& c = table.at(slot);
    IoResult result;
    do {
        result = c.transport->handshake();
    } while (result.status == IoStatus::kPartial && c.hangup);  // see note_read()
    switch (result.status) {
        case IoStatus::kOk:
            c.phase = Phase::kOpen;
            return true;
        case IoStatus::kPartial:
        case IoStatus::kBlocked:
            note_read(slot, result);
            return false;
        case IoStatus::kEnd:
            finish(slot, kByPeer);
            return false;
        case IoStatus::kFailed:
            fail(slot, result.error);
            return false;
    }
    return false;
}

void Server::State::read(uint32_t slot, size_t budget, Handler& handler) {
    Connection& c = table.at(slot);
    if (c.show_again && !c.paused) {
        c.show_again = false;
        if (!c.input.empty()) show(slot, c.input.bytes(), true, handler);
    }
    while (c.phase == Phase::kOpen && c.readable && !c.paused && budget > 0 && may_read(slot)) {
        budget -= read_once(slot, budget, handler);
        count_input(c);
    }
}

size_t Server::State::read_once(uint32_t slot, size_t budget, Handler& handler) {
    Connection& c = table.at(slot);
    // A short remainder goes in front of the new bytes. A long one, part of a large packet, stays
    // where it is: copying it at every read would be quadratic.
    const bool in_place = c.input.size() > kMovedInput;
    char* into = scratch_.get();
    size_t room = kReadBytes;
    if (in_place) {
        into = c.input.reserve();
        room = c.input.reserved();
    } else if (!c.input.empty()) {
        std::memcpy(into, c.input.bytes().data(), c.input.size());
        into += c.input.size();
    }
    if (!has_input_room()) room = std::min(room, kScarceReadBytes);
    const IoResult result = c.transport->read(into, std::min(room, budget));
    note_read(slot, result);
    if (result.bytes > 0 && in_place) {
        c.input.commit(result.bytes);
        show(slot, c.input.bytes(), true, handler);
    } else if (result.bytes > 0) {
        show(slot, {scratch_.get(), c.input.size() + result.bytes}, false, handler);
    }
    if (result.status == IoStatus::kEnd) end_of_stream(slot, handler);
    if (result.status == IoStatus::kFailed) fail(slot, result.error);
    return result.bytes;
}

void Server::State::show(uint32_t slot, base::ByteView bytes, bool in_place, Handler& handler) {
    Connection& c = table.at(slot);
    shown_in_place_ = in_place ? &c.input : nullptr;
    expected_ = 0;
    const size_t consumed = std::min(handler.on_bytes(table.id_of(slot), bytes), bytes.size());
    shown_in_place_ = nullptr;
    if (c.phase != Phase::kOpen) return;
    const size_t room = room_for(bytes.size() - consumed);
    if (in_place) {
        c.input.consume(consumed);
        if (room > 0) c.input.prepare(room);
    } else {
        c.input.assign(bytes.substr(consumed), room);
    }
    // Left by a handler that paused, the rest may be many packets; otherwise it is part of one.
    if (c.input.size() > limits.max_input && !c.paused && !c.show_again) {
        finish(slot, "packet too large");
    }
}

base::KeptInput Server::State::keep(size_t bytes) {
    if (shown_in_place_ == nullptr || bytes < shown_in_place_->capacity() / 2) return {};
    return {shown_in_place_->keep(), shown_in_place_->capacity()};
}

void Server::State::note_read(uint32_t slot, const IoResult& result) {
    Connection& c = table.at(slot);
    // A hangup is reported once, so it must be read up to, also past a short read.
    const bool drained = result.status == IoStatus::kPartial && !c.hangup;
    if (!drained && result.status != IoStatus::kBlocked) return;
    c.readable = false;
    if (result.waits_for_other) {
        c.input_waits_for_write = true;
        watch(slot, c.watching_read, true);
    }
}

void Server::State::end_of_stream(uint32_t slot, Handler& handler) {
    Connection& c = table.at(slot);
    c.ended = true;
    c.readable = false;
    if (c.phase != Phase::kOpen) return;
    // It may have closed its direction only, and wait for the answers.
    const base::Outbox* outbox = handler.outbox(table.id_of(slot));
    if (outbox == nullptr || outbox->empty()) return finish(slot, kByPeer);
    begin_close(slot, kByPeer);
}

void Server::State::flush(ConnectionId id, Handler& handler) {
    if (table.find(id) != nullptr) send(id.slot, handler);
}

// Whether anything went.
bool Server::State::send(uint32_t slot, Handler& handler) {
    Connection& c = table.at(slot);
    if (c.phase != Phase::kOpen && c.phase != Phase::kClosing) return false;
    if (c.output_blocked || c.write_error != 0) return false;
    base::Outbox* outbox = handler.outbox(table.id_of(slot));
    bool progress = false;
    iovec vectors[kVectors];
    while (!c.output_blocked) {
        const size_t count = outbox == nullptr ? 0 : outbox->gather(vectors, kVectors);
        if (count == 0 && !c.transport->holds_output()) break;
        const IoResult result = c.transport->writev(vectors, count);
        if (result.bytes > 0) {
            outbox->consume(result.bytes);
            progress = true;
        }
        if (result.status == IoStatus::kFailed) {
            // Told in the next turn, after what can still be read.
            c.write_error = result.error;
            c.readable = c.hangup = true;
            enqueue(slot);
            return false;
        }
        c.output_blocked = result.status != IoStatus::kOk;
        c.output_waits_for_read = c.output_blocked && result.waits_for_other;
    }
    const bool await_write = c.output_blocked && !c.output_waits_for_read;
    watch(slot, c.watching_read || c.output_waits_for_read, await_write || c.input_waits_for_write);
    return progress;
}

void Server::State::send_blocked(uint32_t slot, Handler& handler) {
    Connection& c = table.at(slot);
    c.writable = false;
    // A hangup, reported as writable too, or what the input waited for.
    if (!c.output_blocked) return watch(slot, c.watching_read, c.input_waits_for_write);
    c.output_blocked = c.output_waits_for_read = false;
    const bool progress = send(slot, handler);
    // Also when the handler had emptied the outbox itself: it may be waiting for this.
    if (c.phase == Phase::kOpen && c.write_error == 0 && (progress || !c.output_blocked)) {
        handler.on_drained(table.id_of(slot));
    }
}

void Server::State::close(ConnectionId id) {
    Connection* connection = table.find(id);
    if (connection == nullptr || connection->closing()) return;
    if (connection->phase == Phase::kHandshake) return finish(id.slot, kByServer);
    begin_close(id.slot, kByServer);
}

// May run inside on_bytes(): the input, which the handler is looking at, is released later.
void Server::State::begin_close(uint32_t slot, const char* reason) {
    Connection& c = table.at(slot);
    c.phase = Phase::kClosing;
    c.close_reason = reason;
    c.paused = c.show_again = c.starved = false;
    c.readable = !c.ended;  // what came while it was paused
    watch(slot, true, c.watching_write);
    const std::chrono::milliseconds linger(limits.linger_ms);
    table.linger(slot, base::MonoTime::clock::now() + linger);
    closing_.push_back(slot);
}

void Server::State::advance_close(uint32_t slot, size_t budget, Handler& handler) {
    Connection& c = table.at(slot);
    c.input.release();
    count_input(c);
    if (c.phase == Phase::kClosing) {
        send(slot, handler);
        if (c.write_error != 0) return finish(slot, c.close_reason);
        if (!c.output_blocked) {
            const IoResult result = c.transport->shutdown();
            c.output_blocked = result.status == IoStatus::kBlocked;
            if (c.output_blocked) {
                c.output_waits_for_read = result.waits_for_other;
                watch(slot, true, !result.waits_for_other);
            } else if (c.ended || result.status != IoStatus::kOk) {
                return finish(slot, c.close_reason);
            } else {
                c.phase = Phase::kDraining;
            }
        }
    }
    discard(slot, budget);
    if (c.alive() && c.readable) enqueue(slot);
}

// A socket closed with unread bytes sends a reset, and a reset makes the peer forget what it has
// not read: our DISCONNECT. And a peer that writes before it reads would never take our last bytes.
void Server::State::discard(uint32_t slot, size_t budget) {
    Connection& c = table.at(slot);
    while (c.readable && budget > 0) {
        const IoResult result = c.transport->read(scratch_.get(), std::min(kReadBytes, budget));
        budget -= result.bytes;
        note_read(slot, result);
        if (result.status == IoStatus::kFailed) return finish(slot, c.close_reason);
        if (result.status != IoStatus::kEnd) continue;
        c.ended = true;
        c.readable = false;
        if (c.phase == Phase::kDraining) return finish(slot, c.close_reason);
    }
}

void Server::State::finish(uint32_t slot, std::string_view reason) noexcept {
    Connection& c = table.at(slot);
    Closed closed{table.id_of(slot), {}};
    try {
        closed.reason = reason;
    } catch (const std::bad_alloc&) {
        // The handler hears of the end, if not of its cause.
    }
    c.transport.reset();
    c.input.release();
    count_input(c);
    c.starved = false;
    if (favoured_ == slot) favoured_ = ConnectionTable::kNone;
    table.unlinger(slot);
    c.phase = Phase::kDead;
    closed_.push_back(std::move(closed));
}

void Server::State::fail(uint32_t slot, int error) noexcept {
    std::string reason;
    try {
        reason = table.at(slot).transport->describe(error);
    } catch (const std::bad_alloc&) {
        reason = "out of memory";
    }
    finish(slot, reason);
}

void Server::State::count_input(Connection& connection) {
    input_bytes += connection.input.size() - connection.input_counted;
    connection.input_counted = connection.input.size();
}

}  // namespace pgmqtt::net
