#include "loadtest/client.h"
#include "loadtest/load_error.h"
#include "loadtest/raw_client.h"

namespace pgmqtt::loadtest {

std::unique_ptr<Client> new_client(ClientKind kind, EventLoop& loop, const ClientOptions& options,
                                   ClientEvents& events) {
    if (kind == ClientKind::kPaho) throw LoadError("--client paho is not built in; use raw");
    return std::make_unique<RawClient>(loop, options, events);
}

}  // namespace pgmqtt::loadtest
