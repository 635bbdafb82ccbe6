// What an application on paho C does, one scenario a run:  scenarios PORT SCENARIO TOPIC
// Exit status 0 when all was as it should be; the first thing that was not is told on stderr.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <MQTTClient.h>

enum { TIMEOUT_MS = 20000 };

static char address[64];
static const char *topic;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);       \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

typedef struct {
    const char *payload;
    int size;
    int qos;
    int retained;
} Text;

static Text text(const char *payload) {
    Text made = {payload, (int)strlen(payload), 1, 0};
    return made;
}

static MQTTClient create(const char *client_id) {
    MQTTClient client;
    MQTTClient_createOptions options = MQTTClient_createOptions_initializer;
    options.MQTTVersion = MQTTVERSION_5;
    CHECK(MQTTClient_createWithOptions(&client, address, client_id, MQTTCLIENT_PERSISTENCE_NONE,
                                       NULL, &options) == MQTTCLIENT_SUCCESS);
    return client;
}

// Connects with a session that lasts for so many seconds, and perhaps a will.
static void connect_client(MQTTClient client, int clean_start, int expiry,
                           MQTTClient_willOptions *will) {
    MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer5;
    MQTTProperties properties = MQTTProperties_initializer;
    MQTTProperty session_expiry = {.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL,
                                   .value.integer4 = (unsigned int)expiry};
    MQTTProperties_add(&properties, &session_expiry);
    options.cleanstart = clean_start;
    options.will = will;
    MQTTResponse response = MQTTClient_connect5(client, &options, &properties, NULL);
    CHECK(response.reasonCode == MQTTREASONCODE_SUCCESS);
    MQTTProperties_free(&properties);
    MQTTResponse_free(response);
}

static void subscribe(MQTTClient client, const char *filter, int qos) {
    MQTTResponse response = MQTTClient_subscribe5(client, filter, qos, NULL, NULL);
    CHECK((int)response.reasonCode == qos);
    MQTTResponse_free(response);
}

static void publish(MQTTClient client, const char *to, Text what, MQTTProperties *properties) {
    MQTTClient_deliveryToken token;
    MQTTResponse response = MQTTClient_publish5(client, to, what.size, what.payload, what.qos,
                                                what.retained, properties, &token);
    CHECK((int)response.reasonCode <= MQTTREASONCODE_NO_MATCHING_SUBSCRIBERS);
    MQTTResponse_free(response);
    CHECK(MQTTClient_waitForCompletion(client, token, TIMEOUT_MS) == MQTTCLIENT_SUCCESS);
}

static MQTTClient_message *receive(MQTTClient client, const char *from, unsigned long patience_ms) {
    char *name = NULL;
    int length = 0;
    MQTTClient_message *message = NULL;
    int code = MQTTClient_receive(client, &name, &length, &message, patience_ms);
    CHECK(code == MQTTCLIENT_SUCCESS || code == MQTTCLIENT_TOPICNAME_TRUNCATED);
    if (message != NULL) {
        CHECK(strcmp(name, from) == 0);
        MQTTClient_free(name);
    }
    return message;
}

static void expect(MQTTClient client, const char *from, Text what) {
    MQTTClient_message *message = receive(client, from, TIMEOUT_MS);
    CHECK(message != NULL);
    CHECK(message->payloadlen == what.size);
    CHECK(memcmp(message->payload, what.payload, (size_t)what.size) == 0);
    CHECK(message->qos == what.qos);
    CHECK(message->retained == what.retained);
    MQTTClient_freeMessage(&message);
}

static void leave(MQTTClient client) {
    CHECK(MQTTClient_disconnect5(client, 1000, MQTTREASONCODE_SUCCESS, NULL) == MQTTCLIENT_SUCCESS);
}

static void persistent_session(void) {
    MQTTClient client = create("paho c session"), publisher = create("paho c publisher");
    connect_client(client, 1, 300, NULL);
    subscribe(client, topic, 2);
    leave(client);
    connect_client(publisher, 1, 0, NULL);
    for (int qos = 1; qos <= 2; qos++) {
        Text message = text("waiting");
        message.qos = qos;
        publish(publisher, topic, message, NULL);
    }
    connect_client(client, 0, 0, NULL);
    for (int qos = 1; qos <= 2; qos++) {
        Text message = text("waiting");
        message.qos = qos;
        expect(client, topic, message);
    }
    leave(client);
}

static void will(void) {
    MQTTClient watcher = create("paho c watcher");
    connect_client(watcher, 1, 0, NULL);
    subscribe(watcher, topic, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        MQTTClient_willOptions options = MQTTClient_willOptions_initializer;
        options.topicName = topic;
        options.message = "gone";
        options.qos = 1;
        connect_client(create("paho c mortal"), 1, 0, &options);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect(watcher, topic, text("gone"));
    leave(watcher);
}

static void shared_subscription(void) {
    char filter[512];
    snprintf(filter, sizeof filter, "$share/paho/%s", topic);
    MQTTClient members[2] = {create("paho c one"), create("paho c two")};
    MQTTClient publisher = create("paho c publisher");
    for (int i = 0; i < 2; i++) {
        connect_client(members[i], 1, 0, NULL);
        subscribe(members[i], filter, 1);
    }
    connect_client(publisher, 1, 0, NULL);
    for (int i = 0; i < 10; i++) publish(publisher, topic, text("work"), NULL);
    int got[2] = {0, 0};
    for (int turn = 0; got[0] + got[1] < 10 && turn < 100; turn++) {
        MQTTClient_message *message = receive(members[turn % 2], topic, 200);
        if (message != NULL) {
            got[turn % 2]++;
            MQTTClient_freeMessage(&message);
        }
    }
    CHECK(got[0] + got[1] == 10);
    CHECK(got[0] > 0 && got[1] > 0);
}

static void add_text(MQTTProperties *properties, enum MQTTPropertyCodes code, char *value) {
    MQTTProperty property = {.identifier = code, .value.data = {(int)strlen(value), value}};
    CHECK(MQTTProperties_add(properties, &property) == 0);
}

static void add_pair(MQTTProperties *properties, char *name, char *value) {
    MQTTProperty property = {.identifier = MQTTPROPERTY_CODE_USER_PROPERTY,
                             .value = {.data = {(int)strlen(name), name},
                                       .value = {(int)strlen(value), value}}};
    CHECK(MQTTProperties_add(properties, &property) == 0);
}

// All properties of a PUBLISH, with user properties that repeat, and an answer to where they say.
static void request_and_response(void) {
    char answer_topic[512];
    snprintf(answer_topic, sizeof answer_topic, "%s/answer", topic);
    MQTTClient asking = create("paho c asking"), answering = create("paho c answering");
    connect_client(asking, 1, 0, NULL);
    connect_client(answering, 1, 0, NULL);
    subscribe(asking, answer_topic, 1);
    subscribe(answering, topic, 1);

    MQTTProperties properties = MQTTProperties_initializer;
    MQTTProperty format = {.identifier = MQTTPROPERTY_CODE_PAYLOAD_FORMAT_INDICATOR,
                           .value.byte = 1};
    MQTTProperties_add(&properties, &format);
    add_text(&properties, MQTTPROPERTY_CODE_CONTENT_TYPE, "text/plain");
    add_text(&properties, MQTTPROPERTY_CODE_RESPONSE_TOPIC, answer_topic);
    add_text(&properties, MQTTPROPERTY_CODE_CORRELATION_DATA, "question 1");
    add_pair(&properties, "b", "1");
    add_pair(&properties, "a", "2");
    add_pair(&properties, "b", "1");
    publish(asking, topic, text("question"), &properties);

    MQTTClient_message *question = receive(answering, topic, TIMEOUT_MS);
    CHECK(question != NULL);
    CHECK(MQTTProperties_getNumericValue(&question->properties,
                                         MQTTPROPERTY_CODE_PAYLOAD_FORMAT_INDICATOR) == 1);
    const char *names = "bab", *values = "121";
    for (int i = 0; i < 3; i++) {
        MQTTProperty *pair = MQTTProperties_getPropertyAt(&question->properties,
                                                          MQTTPROPERTY_CODE_USER_PROPERTY, i);
        CHECK(pair != NULL && pair->value.data.len == 1 && pair->value.value.len == 1);
        CHECK(pair->value.data.data[0] == names[i] && pair->value.value.data[0] == values[i]);
    }
    MQTTProperty *to = MQTTProperties_getProperty(&question->properties,
                                                  MQTTPROPERTY_CODE_RESPONSE_TOPIC);
    MQTTProperty *data = MQTTProperties_getProperty(&question->properties,
                                                    MQTTPROPERTY_CODE_CORRELATION_DATA);
    CHECK(to != NULL && data != NULL);
    char where[512];
    snprintf(where, sizeof where, "%.*s", to->value.data.len, to->value.data.data);
    MQTTProperties answer = MQTTProperties_initializer;
    MQTTProperties_add(&answer, data);
    publish(answering, where, text("answer"), &answer);
    expect(asking, answer_topic, text("answer"));
}

static void large_payload(void) {
    int size = 1000 * 1000;
    char *bytes = malloc((size_t)size);
    CHECK(bytes != NULL);
    for (int i = 0; i < size; i++) bytes[i] = (char)(i * 31 + i / 7919);
    MQTTClient client = create("paho c large");
    connect_client(client, 1, 0, NULL);
    subscribe(client, topic, 1);
    Text large = {bytes, size, 1, 0};
    publish(client, topic, large, NULL);
    expect(client, topic, large);
    free(bytes);
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%s", arguments[1]);
    topic = arguments[3];
    struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"session", persistent_session},   {"will", will},
                     {"shared", shared_subscription},   {"request", request_and_response},
                     {"large", large_payload}};
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(arguments[2], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no scenario %s\n", arguments[2]);
    return 2;
}
