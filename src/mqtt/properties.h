// The property section of a 5.0 packet, section 2.2.2.
#pragma once

#include <cstdint>
#include <string>

#include "mqtt/codec.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {

// Where a property section stands: a packet, the will inside CONNECT, or a message in storage.
enum class Place : uint32_t {
    kConnect = 1 << 0,
    kWill = 1 << 1,
    kConnack = 1 << 2,
    kPublish = 1 << 3,
    kAcknowledgement = 1 << 4,  // PUBACK, PUBREC, PUBREL, PUBCOMP
    kSubscribe = 1 << 5,
    kSuback = 1 << 6,
    kUnsubscribe = 1 << 7,
    kUnsuback = 1 << 8,
    kDisconnect = 1 << 9,
    kAuth = 1 << 10,
    kStored = 1 << 11,
};

// Replaces what `properties` holds by the section at the front of `in`, with its length.
void decode_properties(wire::Reader& in, Place place, Properties& properties);

// Appends the section with its length; properties are in the order of their identifiers.
void encode_properties(const Properties& properties, Place place, std::string& out);

// The same when the caller knows properties_size() already.
void encode_properties(const Properties& properties, Place place, size_t size, std::string& out);

// Bytes of the section without its length.
size_t properties_size(const Properties& properties, Place place);

}  // namespace pgmqtt::mqtt
