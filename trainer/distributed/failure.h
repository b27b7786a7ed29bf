// Exceptions become values here: the one place that knows what LibTorch and Gloo throw.
#pragma once

#include <exception>

#include "common/error.h"

namespace oarlock {

// kPeerLost for what a collective throws when another rank is gone or late, kOsErr where memory ran out, kSoftware for
// the rest. The message is one line.
Error to_error(const std::exception_ptr& exception);

// Calls body() and turns what it throws into an Error.
template <typename Body>
auto catch_errors(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return tl::make_unexpected(to_error(std::current_exception()));
  }
}

}  // namespace oarlock
