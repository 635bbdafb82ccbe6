#include "pg/properties.h"

extern "C" {
#include <mb/pg_wchar.h>
#include <utils/builtins.h>
#include <utils/jsonb.h>
#include <utils/numeric.h>
}

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "mqtt/codec.h"
#include "mqtt/topic.h"
#include "mqtt/utf8.h"
#include "pg/datum.h"
#include "pg/hops.h"

namespace pgmqtt::pg {
namespace {

constexpr base::ByteView kHopsProperty = "pgmqtt-hops";

// One token of a jsonb document, flat, so that it can leave the guard in which it was read.
struct Token {
    JsonbIteratorToken kind;
    jbvType type;
    const char* text;  // UTF-8; of keys, strings and numbers
    int size;
};

struct Tokens {
    Token* items;
    int count;
};

void read_text(const JsonbValue& value, Token& token) {
    token.type = value.type;
    token.text = nullptr;
    token.size = 0;
    if (value.type == jbvString) {
        char* utf8 = pg_server_to_any(value.val.string.val, value.val.string.len, PG_UTF8);
        token.text = utf8;
        token.size =
            utf8 == value.val.string.val ? value.val.string.len : static_cast<int>(strlen(utf8));
    } else if (value.type == jbvNumeric) {
        token.text =
            DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
        token.size = static_cast<int>(strlen(token.text));
    }
}

// Pallocs; inside a guard.
Tokens tokenize(Datum datum) {
    Jsonb* jsonb = DatumGetJsonbP(datum);
    int capacity = 16;
    Tokens tokens{static_cast<Token*>(palloc(sizeof(Token) * 16)), 0};
    JsonbIterator* iterator = JsonbIteratorInit(&jsonb->root);
    JsonbValue value;
    JsonbIteratorToken kind;
    while ((kind = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE) {
        if (tokens.count == capacity) {
            capacity *= 2;
            tokens.items = static_cast<Token*>(
                repalloc(tokens.items, sizeof(Token) * static_cast<size_t>(capacity)));
        }
        Token& token = tokens.items[tokens.count++];
        token.kind = kind;
        token.type = jbvNull;
        token.text = nullptr;
        token.size = 0;
        if (kind == WJB_KEY || kind == WJB_VALUE || kind == WJB_ELEM) read_text(value, token);
    }
    return tokens;
}

[[noreturn]] void refuse(const std::string& message, const std::string& hint = {}) {
    throw Raised(make_error(ERRCODE_INVALID_PARAMETER_VALUE, message, {}, hint));
}

base::ByteView view(const Token& token) {
    return {token.text, static_cast<size_t>(token.size)};
}

// A string property: well-formed and short enough for its 16-bit length.
base::ByteView string_value(const Token& key, const Token& value) {
    if (value.kind != WJB_VALUE || value.type != jbvString)
        refuse("property \"" + std::string(view(key)) + "\" must be a string");
    if (view(value).size() > 65535 || !mqtt::is_valid_string(view(value)))
        refuse("property \"" + std::string(view(key)) +
               "\" must be at most 65535 bytes of text without U+0000");
    return view(value);
}

uint32_t number_value(const Token& key, const Token& value, uint64_t limit) {
    std::string text(view(value));
    if (value.kind != WJB_VALUE || value.type != jbvNumeric || text.empty() || text.size() > 10 ||
        text.find_first_not_of("0123456789") != std::string::npos || std::stoull(text) > limit)
        refuse("property \"" + std::string(view(key)) + "\" must be an integer from 0 to " +
               std::to_string(limit));
    return static_cast<uint32_t>(std::stoull(text));
}

// Reads the object of user_properties that begins at `position`; leaves it behind its end.
void read_user_properties(const Tokens& tokens, int& position, mqtt::Properties& properties) {
    const char* shape =
        "property \"user_properties\" must be an object of strings or arrays of strings";
    if (tokens.items[position].kind != WJB_BEGIN_OBJECT) refuse(shape);
    for (++position; tokens.items[position].kind != WJB_END_OBJECT; ++position) {
        const Token& key = tokens.items[position];
        if (view(key).size() > 65535 || !mqtt::is_valid_string(view(key)))
            refuse("a user property's name must be at most 65535 bytes of text");
        const Token& value = tokens.items[++position];
        if (value.kind == WJB_VALUE) {
            properties.user_properties.emplace_back(view(key), string_value(key, value));
            continue;
        }
        if (value.kind != WJB_BEGIN_ARRAY) refuse(shape);
        for (++position; tokens.items[position].kind != WJB_END_ARRAY; ++position) {
            Token element = tokens.items[position];
            if (element.kind != WJB_ELEM || element.type != jbvString) refuse(shape);
            element.kind = WJB_VALUE;
            properties.user_properties.emplace_back(view(key), string_value(key, element));
        }
    }
}

void read_property(const Tokens& tokens, int& position, mqtt::Properties& properties) {
    const Token& key = tokens.items[position++];
    const Token& value = tokens.items[position];
    base::ByteView name = view(key);
    if (name == "user_properties") {
        read_user_properties(tokens, position, properties);
    } else if (name == "message_expiry_interval") {
        properties.message_expiry_interval = number_value(key, value, UINT32_MAX);
    } else if (name == "payload_format_indicator") {
        properties.payload_format_indicator = static_cast<uint8_t>(number_value(key, value, 1));
    } else if (name == "content_type") {
        properties.content_type = string_value(key, value);
    } else if (name == "correlation_data") {
        properties.correlation_data = string_value(key, value);
    } else if (name == "response_topic") {
        properties.response_topic = string_value(key, value);
        if (!mqtt::is_valid_topic_name(*properties.response_topic))
            refuse("property \"response_topic\" must be a topic name without wildcards");
    } else {
        refuse("unknown message property \"" + std::string(name) + "\"",
               "Known are message_expiry_interval, content_type, response_topic, correlation_data, "
               "payload_format_indicator and user_properties.");
    }
}

// --- the way back

void push_key(JsonbParseState*& state, const char* name, size_t size) {
    JsonbValue key;
    key.type = jbvString;
    key.val.string.val = const_cast<char*>(name);
    key.val.string.len = static_cast<int>(size);
    pushJsonbValue(&state, WJB_KEY, &key);
}

void push_text(JsonbParseState*& state, JsonbIteratorToken token, base::ByteView utf8) {
    JsonbValue value;
    char* text = pg_any_to_server(pnstrdup(utf8.data(), utf8.size()), static_cast<int>(utf8.size()),
                                  PG_UTF8);
    value.type = jbvString;
    value.val.string.val = text;
    value.val.string.len = static_cast<int>(strlen(text));
    pushJsonbValue(&state, token, &value);
}

void push_number(JsonbParseState*& state, int64 number) {
    JsonbValue value;
    value.type = jbvNumeric;
    value.val.numeric = int64_to_numeric(number);
    pushJsonbValue(&state, WJB_VALUE, &value);
}

void push_string_property(JsonbParseState*& state, const char* name,
                          const std::optional<base::ByteView>& text) {
    if (!text) return;
    push_key(state, name, strlen(name));
    push_text(state, WJB_VALUE, *text);
}

// Object of arrays, so that duplicates of a name survive in order. A name met a second time has
// been written with its first.
void push_user_properties(JsonbParseState*& state, const mqtt::UserProperty* list, size_t count) {
    push_key(state, "user_properties", strlen("user_properties"));
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    bool* written = static_cast<bool*>(palloc0(count));
    for (size_t i = 0; i < count; ++i) {
        if (written[i]) continue;
        char* name = pg_any_to_server(pnstrdup(list[i].first.data(), list[i].first.size()),
                                      static_cast<int>(list[i].first.size()), PG_UTF8);
        push_key(state, name, strlen(name));
        pushJsonbValue(&state, WJB_BEGIN_ARRAY, nullptr);
        for (size_t j = i; j < count; ++j) {
            if (written[j] || list[j].first != list[i].first) continue;
            written[j] = true;
            push_text(state, WJB_ELEM, list[j].second);
        }
        pushJsonbValue(&state, WJB_END_ARRAY, nullptr);
    }
    pushJsonbValue(&state, WJB_END_OBJECT, nullptr);
}

// Binary on the wire, text in SQL: bytes that are no text are shown as bytea shows them.
void push_correlation_data(JsonbParseState*& state, const mqtt::Properties& properties) {
    if (!properties.correlation_data) return;
    base::ByteView bytes = *properties.correlation_data;
    if (mqtt::is_valid_string(bytes)) {
        push_string_property(state, "correlation_data", properties.correlation_data);
        return;
    }
    char* hex = static_cast<char*>(palloc(bytes.size() * 2 + 3));
    strcpy(hex, "\\x");
    size_t written = hex_encode(bytes.data(), bytes.size(), hex + 2);
    push_key(state, "correlation_data", strlen("correlation_data"));
    push_text(state, WJB_VALUE, {hex, written + 2});
}

}  // namespace

Datum jsonb_from_properties(const mqtt::Properties& properties) {
    JsonbParseState* state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    if (properties.payload_format_indicator) {
        push_key(state, "payload_format_indicator", strlen("payload_format_indicator"));
        push_number(state, *properties.payload_format_indicator);
    }
    if (properties.message_expiry_interval) {
        push_key(state, "message_expiry_interval", strlen("message_expiry_interval"));
        push_number(state, *properties.message_expiry_interval);
    }
    push_string_property(state, "content_type", properties.content_type);
    push_string_property(state, "response_topic", properties.response_topic);
    push_correlation_data(state, properties);
    if (!properties.user_properties.empty())
        push_user_properties(state, properties.user_properties.data(),
                             properties.user_properties.size());
    return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr)));
}

// A count that is no number of ours says nothing; of several the highest holds.
int hops_of(const mqtt::Properties& properties) {
    int hops = 0;
    for (const auto& [name, value] : properties.user_properties) {
        if (name != kHopsProperty) continue;
        int count = 0;
        auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
        if (error == std::errc::result_out_of_range) count = kMaxHops;
        if (error == std::errc::invalid_argument || end != value.data() + value.size()) continue;
        hops = std::max(hops, std::clamp(count, 0, kMaxHops));
    }
    return hops;
}

void set_hops(std::string& encoded, int hops) {
    std::string before = std::move(encoded);
    encoded.clear();
    mqtt::Properties properties;
    if (!mqtt::decode_message_properties(before, properties)) properties = {};
    std::erase_if(properties.user_properties,
                  [](const auto& property) { return property.first == kHopsProperty; });
    std::string value = std::to_string(hops);
    properties.user_properties.emplace_back(kHopsProperty, value);
    mqtt::encode_message_properties(properties, encoded);
}

std::string properties_from_jsonb(Datum jsonb) {
    Tokens tokens{nullptr, 0};
    value_or_throw(guard([&] { tokens = tokenize(jsonb); }));
    if (tokens.count == 0 || tokens.items[0].kind != WJB_BEGIN_OBJECT)
        refuse("message properties must be a JSON object");
    mqtt::Properties properties;
    for (int position = 1; tokens.items[position].kind != WJB_END_OBJECT; ++position)
        read_property(tokens, position, properties);
    std::string encoded;
    mqtt::encode_message_properties(properties, encoded);
    return encoded;
}

}  // namespace pgmqtt::pg
