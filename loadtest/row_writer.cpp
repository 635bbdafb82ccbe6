#include "loadtest/row_writer.h"

#include <chrono>
#include <exception>

namespace pgmqtt::loadtest {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // at whether it is over

void append_hex(std::string& out, base::ByteView bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (char byte : bytes) {
        out += kDigits[static_cast<uint8_t>(byte) >> 4];
        out += kDigits[static_cast<uint8_t>(byte) & 15];
    }
}

}  // namespace

RowWriter::RowWriter(const Options& options, uint32_t number, uint64_t receivers)
    : options_(options), number_(number), receivers_(receivers), payload_(options.payload_size) {
    if (options.rate > 0) pacer_.emplace(monotonic_now(), options.rate / options.publishers);
    thread_ = std::thread([this] { work(); });
}

RowWriter::~RowWriter() {
    finish();
}

void RowWriter::finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
}

void RowWriter::delivered() {
    ++delivered_;
    std::lock_guard guard(mutex_);
    changed_.notify_one();
}

std::string RowWriter::error() const {
    std::lock_guard guard(mutex_);
    return error_;
}

void RowWriter::work() {
    try {
        Postgres postgres(options_.pg);
        while (size_t rows = wait_for_turn()) insert(postgres, rows);
    } catch (const std::exception& error) {
        std::lock_guard guard(mutex_);
        error_ = "writer " + std::to_string(number_) + ": " + error.what();
    }
}

size_t RowWriter::wait_for_turn() {
    due_.clear();
    auto in_flight = [this] { return committed_ - delivered_ / receivers_; };
    while (!stop_) {
        if (pacer_) {
            Nanos now = monotonic_now();
            while (pacer_->is_due(now) && due_.size() < options_.rows_per_transaction) {
                Nanos at = pacer_->take();
                ++offered_;
                if (in_flight() < options_.max_inflight / options_.publishers) {
                    due_.push_back(at);
                } else {
                    ++shed_;
                }
            }
            if (!due_.empty()) return due_.size();
            std::unique_lock lock(mutex_);
            Nanos next = pacer_->next();
            auto wait = std::chrono::nanoseconds(next > now ? next - now : 0);
            changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(wait, kLook));
        } else {
            if (in_flight() < options_.end_to_end_window()) {
                due_.assign(options_.rows_per_transaction, monotonic_now());
                offered_ += due_.size();
                return due_.size();
            }
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, kLook);
        }
    }
    return 0;
}

void RowWriter::insert(Postgres& postgres, size_t rows) {
    std::string sequences = "{", bodies = "{";
    uint64_t first = committed_;
    for (size_t i = 0; i < rows; ++i) {
        Stamp stamp{
            .run = options_.run, .publisher = number_, .sequence = first + i, .scheduled = due_[i]};
        const char* comma = i == 0 ? "" : ",";
        sequences += comma + std::to_string(first + i);
        bodies += std::string(comma) + "\"\\\\x";
        append_hex(bodies, payload_.stamp(stamp));
        bodies += '"';
    }
    Nanos began = monotonic_now();
    postgres.query("INSERT INTO " + options_.table +
                       " (publisher, sequence, body) SELECT $1::bigint, s, b FROM "
                       "unnest($2::bigint[], $3::bytea[]) AS u(s, b)",
                   {std::to_string(number_), sequences + "}", bodies + "}"});
    committed_ += rows;
    if (measuring_) statements_.record(monotonic_now() - began);
}

}  // namespace pgmqtt::loadtest
