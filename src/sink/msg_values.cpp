#include "sink/msg_values.h"

extern "C" {
#include <mb/pg_wchar.h>
#include <utils/datum.h>
#include <utils/fmgrprotos.h>
#include <utils/memutils.h>
}

#include <optional>
#include <utility>

#include "mqtt/utf8.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/properties.h"
#include "sink/verdict.h"

namespace pgmqtt::sink {
namespace {

using base::ByteView;
using Kind = MsgColumns::Kind;

// Runs `body`, a conversion that can fail for what the bytes are. There is no subtransaction around
// it: jsonb_in and the conversions between encodings take no lock, write nothing and hold no
// resource when they raise; what they leave is memory of the current context. Whatever says nothing
// about the bytes (cancel, out of memory) goes on its way.
template <class Body>
bool converts(Body&& body) {
    pg::Status status = pg::guard(std::forward<Body>(body));
    if (status) return true;
    if (is_transient(status.error().sqlstate)) throw pg::Raised(std::move(status.error()));
    return false;
}

// The text as jsonb_in wants it: in the server's encoding, with a NUL behind it.
char* server_cstring(ByteView utf8) {
    char* copy = static_cast<char*>(palloc_extended(utf8.size() + 1, MCXT_ALLOC_HUGE));
    memcpy(copy, utf8.data(), utf8.size());
    copy[utf8.size()] = '\0';
    return pg_any_to_server(copy, static_cast<int>(utf8.size()), PG_UTF8);
}

// False when it is not JSON, or JSON that jsonb cannot hold: \u0000, numbers without end, nesting
// deeper than the stack. The parser's garbage is many times the text, so it gets a context of its
// own.
bool json_value(ByteView utf8, Datum* value) {
    MemoryContext result = CurrentMemoryContext;
    MemoryContext scratch = AllocSetContextCreate(result, "pgmqtt json", ALLOCSET_DEFAULT_SIZES);
    bool parsed = converts([&] {
        MemoryContextSwitchTo(scratch);
        Datum json = DirectFunctionCall1(jsonb_in, CStringGetDatum(server_cstring(utf8)));
        MemoryContextSwitchTo(result);
        *value = datumCopy(json, false, -1);
    });
    MemoryContextDelete(scratch);
    return parsed;
}

bool optional_text(const std::optional<ByteView>& utf8, Datum* value) {
    return utf8 && text_value(*utf8, value);
}

bool user_properties_value(const Message& message, Datum* value) {
    char* json = nullptr;
    size_t size = 0;
    {
        std::string text = user_properties_json(message);
        size = text.size();
        if (size == 0) return false;
        // Does not raise while the string is alive.
        json = static_cast<char*>(palloc_extended(size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM));
        if (json != nullptr) memcpy(json, text.data(), size);
    }
    if (json == nullptr) ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
    bool holds = json_value({json, size}, value);
    pfree(json);
    return holds;
}

}  // namespace

bool text_value(ByteView utf8, Datum* value) {
    if (GetDatabaseEncoding() == PG_UTF8) {  // the codec has checked it
        *value = pg::text_datum(utf8);
        return true;
    }
    return converts([&] { *value = pg::utf8_text_datum(utf8); });
}

bool properties_value(const Message& message, Datum* value) {
    if (message.properties.empty()) return false;
    return converts([&] { *value = pg::jsonb_from_properties(message.decoded_properties()); });
}

bool message_value(const Message& message, Kind kind, Datum* value) {
    switch (kind) {
        case Kind::kTopic:
            return text_value(message.topic, value);
        case Kind::kPayload:
            *value = pg::bytea_datum(message.payload);
            return true;
        case Kind::kText:
            return mqtt::is_valid_string(message.payload) && text_value(message.payload, value);
        case Kind::kJson:
            return !message.payload.empty() && mqtt::is_valid_string(message.payload) &&
                   json_value(message.payload, value);
        case Kind::kQos:
            *value = Int32GetDatum(static_cast<int32>(message.qos));
            return true;
        case Kind::kRetain:
            *value = BoolGetDatum(message.retain);
            return true;
        case Kind::kClientId:
            return !message.client_id.empty() && text_value(message.client_id, value);
        case Kind::kUsername:
            return !message.username.empty() && text_value(message.username, value);
        case Kind::kContentType:
            return optional_text(message.decoded_properties().content_type, value);
        case Kind::kResponseTopic:
            return optional_text(message.decoded_properties().response_topic, value);
        case Kind::kCorrelationData:
            if (!message.decoded_properties().correlation_data) return false;
            *value = pg::bytea_datum(*message.decoded_properties().correlation_data);
            return true;
        case Kind::kUserProperties:
            return user_properties_value(message, value);
        case Kind::kReceivedAt:
            *value = pg::timestamptz_datum(message.received_at);
            return true;
        case Kind::kMessageKey:
            return !message.key.empty() && text_value(message.key, value);
        case Kind::kCapture:
            break;
    }
    return false;
}

}  // namespace pgmqtt::sink
