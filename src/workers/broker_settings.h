// From settings to what the broker and the network floor want to know.
#pragma once

#include "pg/backend.h"

#include <vector>

#include "broker/config.h"
#include "net/server.h"

namespace pgmqtt::workers {

broker::Config broker_config();
net::Limits network_limits();
// Of pgmqtt.listen_addresses and pgmqtt.port; empty when the port is 0.
std::vector<net::ListenAddress> listen_addresses();

}  // namespace pgmqtt::workers
