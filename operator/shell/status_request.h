// GET /statusz of a rank or a launcher. Pods are not trusted: the response is bounded in size and time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "common/status_query.h"
#include "http/client/transport.h"

namespace oarlock::control {

// Creates a transport to "http://10.0.0.1:9400"; returns null if the address is invalid.
using Connect = std::function<std::shared_ptr<http::Transport>(const std::string& url)>;

// Returns the body of a response with status 200 and at most 64 KiB.
std::optional<std::string> request_status(const Connect& connect, const std::string& url, const StatusQuery& query,
                                          std::chrono::milliseconds timeout, const std::stop_token& stop);

}  // namespace oarlock::control
