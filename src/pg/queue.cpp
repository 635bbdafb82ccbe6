// A shm_mq can be attached once by each side, so a new connection means creating it again over the
// same memory, and that only when neither side has a hand on it any more. Each end therefore says
// in shared memory where it stands, under a spinlock:
//
//   kAbsent     no process, or one that does not want a link
//   kWaiting    wants a link; touches no ring
//   kCreating   found the other end waiting, moved it to kOffered, and makes the rings
//   kOffered    the other end makes the rings
//   kReady      the rings of `epoch` are there: attach, use, and go back to kWaiting when the other
//               end is no longer ready under the same epoch
//
// Only an end in kCreating or kReady touches the rings, and an end enters kCreating only while the
// other is kWaiting: so nobody creates what somebody uses.
#include "pg/queue.h"

extern "C" {
#include <storage/ipc.h>
#include <storage/shm_mq.h>
#include <storage/spin.h>
}

#include <deque>
#include <utility>

#include "pg/guard.h"
#include "pg/log.h"

namespace pgmqtt::pg {
namespace {

// Each way. A turn's batch at full load is some hundred kB: several fit while the other end works
// on one, and three links stay at 24 MB. Larger batches are streamed through it; the receiver's
// copy of the largest (up to twice its size) lives as long as the connection.
constexpr Size kRingSize = 4 * 1024 * 1024;
constexpr int kLinkCount = 3;
constexpr int kBrokerEnd = 0;
constexpr int kPeerEnd = 1;

enum class Stage : int { kAbsent, kWaiting, kCreating, kOffered, kReady };

struct End {
    Stage stage;
    int process_number;
    uint32_t epoch;  // of kReady
};

struct LinkControl {
    slock_t mutex;
    uint32_t epoch;  // of the newest rings
    End ends[2];
};

LinkControl* controls = nullptr;  // one per link
char* rings = nullptr;            // two per link

char* ring_of(int link, int sending_end) {
    return rings + (2 * link + sending_end) * kRingSize;
}

}  // namespace

// One end. The ends of a process form a list for its exit callback.
struct Link::State {
    State(int link_number, int own_end)
        : link(link_number), end(own_end), control(controls + link_number) {}

    const int link;
    const int end;
    LinkControl* const control;
    MemoryContext context = nullptr;  // of the handles and of what shm_mq needs for large batches
    shm_mq_handle* out = nullptr;
    shm_mq_handle* in = nullptr;
    uint32_t epoch = 0;
    bool broken = false;  // a queue said "detached" or raised: connect() starts anew
    std::deque<std::string> unsent;
    size_t unsent_bytes = 0;
    State* next = nullptr;
    static State* first;

    bool attached() const { return in != nullptr; }
    End& own() { return control->ends[end]; }
    End& other() { return control->ends[1 - end]; }

    // The steps of a connection; see the head of this file.
    bool stands();
    Stage advance();
    void create(int other_number);
    void attach();
    void detach();
    void leave();

    shm_mq_result send(base::ByteView batch);
    void forget_unsent();
    static void leave_all(int, Datum);

   private:
    bool mine() { return own().process_number == own_process_number(); }
    bool other_is_ready() { return other().stage == Stage::kReady && other().epoch == own().epoch; }
    void enter(Stage stage);
    void wake_other();
};

Link::State* Link::State::first = nullptr;

void Link::State::wake_other() {
    SpinLockAcquire(&control->mutex);
    int number = other().stage == Stage::kAbsent ? -1 : other().process_number;
    SpinLockRelease(&control->mutex);
    if (number >= 0) SetLatch(&process_of_number(number)->procLatch);
}

void Link::State::enter(Stage stage) {
    SpinLockAcquire(&control->mutex);
    if (mine()) own().stage = stage;
    SpinLockRelease(&control->mutex);
    wake_other();
}

// Whether the other end is still there, under the same epoch.
bool Link::State::stands() {
    SpinLockAcquire(&control->mutex);
    bool ready = other_is_ready();
    SpinLockRelease(&control->mutex);
    return ready;
}

// Moves this end as far as what the other end says allows, and says where it stands now.
Stage Link::State::advance() {
    int other_number = -1;
    SpinLockAcquire(&control->mutex);
    Stage before = own().stage;
    if (before == Stage::kAbsent) {
        own() = {Stage::kWaiting, own_process_number(), 0};
    } else if (!mine()) {
        // The process before this one has not left yet.
        SpinLockRelease(&control->mutex);
        return Stage::kAbsent;
    } else if ((before == Stage::kOffered && other().stage != Stage::kCreating) ||
               (before == Stage::kReady && !attached() && !other_is_ready())) {
        own().stage = Stage::kWaiting;
    }
    if (own().stage == Stage::kWaiting && other().stage == Stage::kWaiting) {
        own().stage = Stage::kCreating;
        other().stage = Stage::kOffered;
        other_number = other().process_number;
    }
    Stage now = own().stage;
    SpinLockRelease(&control->mutex);
    if (now == Stage::kCreating) {
        create(other_number);
        return advance();
    }
    if (now != before) wake_other();
    return now;
}

void Link::State::create(int other_number) {
    PGPROC* peer = process_of_number(other_number);
    Status made = guard([this, peer] {
        shm_mq* forth = shm_mq_create(ring_of(link, end), kRingSize);
        shm_mq_set_sender(forth, MyProc);
        shm_mq_set_receiver(forth, peer);
        shm_mq* back = shm_mq_create(ring_of(link, 1 - end), kRingSize);
        shm_mq_set_sender(back, peer);
        shm_mq_set_receiver(back, MyProc);
    });
    SpinLockAcquire(&control->mutex);
    // Meanwhile the other end may have left; another that came after it is waiting, not offered.
    if (made.ok() && other().stage == Stage::kOffered) {
        uint32_t newest = ++control->epoch;
        own().stage = other().stage = Stage::kReady;
        own().epoch = other().epoch = newest;
    } else {
        own().stage = Stage::kWaiting;
    }
    SpinLockRelease(&control->mutex);
    wake_other();
}

void Link::State::attach() {
    Status attached_now = guard([this] {
        context = AllocSetContextCreate(TopMemoryContext, "pgmqtt link", ALLOCSET_SMALL_SIZES);
        MemoryContext before = MemoryContextSwitchTo(context);
        out = shm_mq_attach(reinterpret_cast<shm_mq*>(ring_of(link, end)), nullptr, nullptr);
        in = shm_mq_attach(reinterpret_cast<shm_mq*>(ring_of(link, 1 - end)), nullptr, nullptr);
        MemoryContextSwitchTo(before);
    });
    if (!attached_now) {
        log(WARNING, "pgmqtt could not attach to a queue", attached_now.error());
        detach();
        return;
    }
    broken = false;
    epoch = own().epoch;  // nobody changes it while this end is ready
}

void Link::State::detach() {
    shm_mq_handle* handles[] = {std::exchange(out, nullptr), std::exchange(in, nullptr)};
    MemoryContext handles_context = std::exchange(context, nullptr);
    Status detached = guard([&handles, handles_context] {
        for (shm_mq_handle* handle : handles)
            if (handle != nullptr) shm_mq_detach(handle);
        if (handles_context != nullptr) MemoryContextDelete(handles_context);
    });
    if (!detached) log(WARNING, "pgmqtt could not detach from a queue", detached.error());
    broken = false;
    forget_unsent();
    enter(Stage::kWaiting);
}

void Link::State::leave() {
    detach();
    enter(Stage::kAbsent);
}

void Link::State::forget_unsent() {
    unsent.clear();
    unsent_bytes = 0;
}

void Link::State::leave_all(int, Datum) {
    for (State* state = first; state != nullptr; state = state->next) state->leave();
}

// Begun and not finished (SHM_MQ_WOULD_BLOCK), it has to be tried again with the same bytes.
shm_mq_result Link::State::send(base::ByteView batch) {
    shm_mq_result result = SHM_MQ_DETACHED;
    Status sent =
        guard([this, &result, batch] { result = send_nowait(out, batch.data(), batch.size()); });
    if (!sent) log(WARNING, "pgmqtt could not send to another worker", sent.error());
    if (!sent || result == SHM_MQ_DETACHED) broken = true;
    return broken ? SHM_MQ_DETACHED : result;
}

Link::Link(Worker self, Worker peer)
    : state_(std::make_unique<State>(static_cast<int>(peer) - 1,
                                     self == Worker::kBroker ? kBrokerEnd : kPeerEnd)) {
    static bool registered = false;
    if (!registered) value_or_throw(guard([] { before_shmem_exit(State::leave_all, Datum{0}); }));
    registered = true;
    state_->next = State::first;
    State::first = state_.get();
}

Link::~Link() {
    close();
    State** link = &State::first;
    while (*link != state_.get()) link = &(*link)->next;
    *link = state_->next;
}

bool Link::connect() {
    // Handles go before the stage does: the other end may create new rings from then on.
    if (state_->attached() && (state_->broken || !state_->stands())) state_->detach();
    if (state_->advance() == Stage::kReady && !state_->attached()) state_->attach();
    return connected();
}

bool Link::connected() const {
    return state_->attached() && !state_->broken;
}

uint32_t Link::epoch() const {
    return state_->epoch;
}

bool Link::send(base::ByteView batch) {
    if (!connected()) return false;
    if (batch.empty()) return true;
    if (state_->unsent.empty()) {
        shm_mq_result result = state_->send(batch);
        if (result != SHM_MQ_WOULD_BLOCK) return result == SHM_MQ_SUCCESS;
    }
    try {
        state_->unsent.emplace_back(batch);
    } catch (...) {
        // A part of it may be in the ring already, which makes the ring useless without the rest.
        state_->broken = true;
        throw;
    }
    state_->unsent_bytes += batch.size();
    return true;
}

bool Link::flush() {
    while (connected() && !state_->unsent.empty()) {
        if (state_->send(state_->unsent.front()) != SHM_MQ_SUCCESS) break;
        state_->unsent_bytes -= state_->unsent.front().size();
        state_->unsent.pop_front();
    }
    if (!connected()) state_->forget_unsent();
    return state_->unsent.empty();
}

size_t Link::unsent_bytes() const {
    return state_->unsent_bytes;
}

bool Link::receive(base::ByteView& batch) {
    if (!connected()) return false;
    shm_mq_result result = SHM_MQ_DETACHED;
    Size size = 0;
    void* data = nullptr;
    Status received = guard(
        [this, &result, &size, &data] { result = shm_mq_receive(state_->in, &size, &data, true); });
    if (!received) log(WARNING, "pgmqtt could not receive from another worker", received.error());
    if (!received || result == SHM_MQ_DETACHED) state_->broken = true;
    if (state_->broken || result != SHM_MQ_SUCCESS) return false;
    batch = {static_cast<const char*>(data), size};
    return true;
}

void Link::close() {
    state_->leave();
}

Size link_memory_size() {
    return CACHELINEALIGN(kLinkCount * sizeof(LinkControl)) + 2 * kLinkCount * kRingSize;
}

void initialize_link_memory(void* memory) {
    controls = static_cast<LinkControl*>(memory);
    rings = static_cast<char*>(memory) + CACHELINEALIGN(kLinkCount * sizeof(LinkControl));
    for (int i = 0; i < kLinkCount; ++i) {
        controls[i] = {};
        SpinLockInit(&controls[i].mutex);
    }
}

}  // namespace pgmqtt::pg
