// The router's metrics: one table makes the text of /metrics and its part of the documentation.
#pragma once

#include <string>

#include "http/listener.h"
#include "router/hub.h"

namespace baton::router {

// On the client loop's thread.
std::string metrics_text(const Hub& hub, const http::Counters& listener, const std::string& version);
std::string metrics_reference();
// The fleet as JSON, for the page and for people.
std::string fleet_json(const Hub& hub, const std::string& version, bool draining);

}  // namespace baton::router
