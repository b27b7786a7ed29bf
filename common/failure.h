// An Error where only an exception gets through.
#pragma once

#include <stdexcept>
#include <utility>

#include "common/error.h"

namespace oarlock {

// Out of a backward pass or a task's step, say. Whoever catches exceptions takes the Error out again.
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

}  // namespace oarlock
