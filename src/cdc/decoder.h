// The decoding context: opened once, kept open across wakes, read forward on demand.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <replication/logical.h>
}

#include "cdc/capture.h"
#include "pg/guard.h"

namespace pgmqtt::cdc {

class Decoder {
   public:
    Decoder(Capture& capture, ChangeLog& log);
    ~Decoder();
    Decoder(const Decoder&) = delete;

    // The slot is acquired. Decoding starts at its confirmed position.
    pg::Status open();
    void close();
    bool is_open() const { return context_ != nullptr; }

    // Decodes flushed WAL up to `target`. Stops early when the log has grown past `log_bytes`
    // (between records: a transaction comes whole) or when `interrupted` says so; reached() tells.
    pg::Status decode(XLogRecPtr target, size_t log_bytes,
                      const volatile sig_atomic_t& interrupted);
    bool reached(XLogRecPtr target) const { return position_ >= target; }
    XLogRecPtr position() const { return position_; }

    // Everything before `lsn` is done; nothing of it comes again after save().
    pg::Status confirm(XLogRecPtr lsn);
    XLogRecPtr confirmed() const { return confirmed_; }
    // Writes the confirmed position to disk, if it moved.
    pg::Status save();
    bool is_saved() const { return saved_ == confirmed_; }

    // The slot keeps WAL, and a start reads it again, from a record of the running transactions on.
    // The server writes one every 15 s; this one as soon as there is much WAL behind the last.
    pg::Status keep_restart_near();

   private:
    void process_record();

    Capture& capture_;
    ChangeLog& log_;
    LogicalDecodingContext* context_ = nullptr;
    MemoryContext memory_ = nullptr;
    XLogRecPtr position_ = InvalidXLogRecPtr;
    XLogRecPtr confirmed_ = InvalidXLogRecPtr;
    XLogRecPtr saved_ = InvalidXLogRecPtr;
    XLogRecPtr restart_asked_ = InvalidXLogRecPtr;  // where our last such record is
};

}  // namespace pgmqtt::cdc
