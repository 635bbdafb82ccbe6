// UTF-8 as MQTT wants it, section 1.5.4.
#pragma once

#include "base/bytes.h"

namespace pgmqtt::mqtt {

// Well-formed, no surrogates, no overlong forms, nothing above U+10FFFF [MQTT-1.5.4-1].
bool is_well_formed_utf8(base::ByteView text);

// The above, and no U+0000 [MQTT-1.5.4-2]. What every string of a packet must be.
bool is_valid_string(base::ByteView text);

}  // namespace pgmqtt::mqtt
