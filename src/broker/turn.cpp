#include "broker/turn.h"

namespace pgmqtt::broker {

void Turn::clear() {
    dirty.clear();
    close.clear();
    resumed.clear();
    authenticate.clear();
    publishes_done.clear();
    outbox_done.clear();
    commands_done.clear();
    store.clear();
    sink.clear();
    fetch.clear();
    log.clear();
}

}  // namespace pgmqtt::broker
