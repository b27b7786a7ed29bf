// Base64 (RFC 4648) of kubeconfig fields and proxy credentials.
#pragma once

#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock::kube {

std::string base64_encode(std::string_view bytes);

// Ignores white space in `text`. Fails with kConfig and the message "not base64".
Result<std::string> base64_decode(std::string_view text);

}  // namespace oarlock::kube
