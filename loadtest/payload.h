// What every message carries, so that its receiver can tell that it is whole, whose and which it
// is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "loadtest/clock.h"

namespace pgmqtt::loadtest {

struct Stamp {
    uint32_t run = 0;  // messages of another run (retained, or of an old session) are not ours
    uint32_t publisher = 0;
    uint64_t sequence = 0;
    Nanos scheduled = 0;

    bool operator==(const Stamp&) const = default;
};

// XXH3 of all that follows it (8), run (4), publisher (4), sequence (8), scheduled instant (8):
// little endian, then filler. One payload per publisher, stamped anew for each message.
class Payload {
   public:
    static constexpr size_t kMinSize = 32;

    // At least kMinSize bytes.
    explicit Payload(size_t size);

    base::ByteView stamp(const Stamp& stamp);
    // As JSON, for sinks that read it as such: {"r":..,"p":..,"s":..,"t":..,"f":"filler"}. No hash:
    // the rows are compared field by field.
    base::ByteView stamp_json(const Stamp& stamp);

   private:
    std::string bytes_;
    std::string json_;
};

// Nothing if the hash or the size is wrong.
std::optional<Stamp> read_stamp(base::ByteView payload);

}  // namespace pgmqtt::loadtest
