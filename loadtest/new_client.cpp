#include "loadtest/client.h"
#include "loadtest/paho_client.h"
#include "loadtest/raw_client.h"

namespace pgmqtt::loadtest {

std::unique_ptr<Client> new_client(ClientKind kind, EventLoop& loop, const ClientOptions& options,
                                   ClientEvents& events) {
    if (kind == ClientKind::kPaho) return std::make_unique<PahoClient>(loop, options, events);
    return std::make_unique<RawClient>(loop, options, events);
}

}  // namespace pgmqtt::loadtest
