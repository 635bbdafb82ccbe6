// Inserts stamped rows through a connection and a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "loadtest/histogram.h"
#include "loadtest/options.h"
#include "loadtest/pacer.h"
#include "loadtest/payload.h"
#include "loadtest/postgres.h"

namespace pgmqtt::loadtest {

class RowWriter {
   public:
    // Begins to insert at once. `receivers`: deliveries that each row causes.
    RowWriter(const Options& options, uint32_t number, uint64_t receivers);
    ~RowWriter();

    // A delivery of one of its rows came.
    void delivered();
    // From here on its statements are measured, until the next call.
    void measure(bool is_on) { measuring_ = is_on; }
    // No more rows. The rest may be read afterwards.
    void finish();

    uint64_t committed() const { return committed_; }
    uint64_t offered() const { return offered_; }
    uint64_t shed() const { return shed_; }
    bool is_well() const { return error().empty(); }
    std::string error() const;
    const Histogram& statements() const { return statements_; }

   private:
    void work();
    // How many rows may go now, and when the first of them was due.
    size_t wait_for_turn();
    void insert(Postgres& postgres, size_t rows);

    const Options& options_;
    uint32_t number_;
    uint64_t receivers_;
    Payload payload_;
    std::atomic<bool> stop_ = false;
    std::atomic<bool> measuring_ = false;
    std::atomic<uint64_t> committed_ = 0;
    std::atomic<uint64_t> delivered_ = 0;
    std::atomic<uint64_t> offered_ = 0;
    std::atomic<uint64_t> shed_ = 0;
    std::vector<Nanos> due_;  // scheduled instants of the rows of the next statement
    std::optional<Pacer> pacer_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::string error_;
    Histogram statements_;
    std::thread thread_;
};

}  // namespace pgmqtt::loadtest
