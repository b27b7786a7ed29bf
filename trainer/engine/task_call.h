// Calls of a task's functions: their exceptions name the function and the samples.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "common/error.h"
#include "trainer/data/batch.h"

namespace oarlock {

// Returns the indices of the samples of a batch for a message: "samples 5, 17, 3 and 61 more".
std::string samples_of(const Batch& batch);

// Converts an exception that a task's function threw. Like to_error(), with two differences: an index or a value that
// LibTorch rejects, and an error of a TorchScript model, are kDataErr rather than kSoftware; and the message of
// kSoftware, kDataErr and kConfig begins with `place`, for example "train_step at step 5 (samples 3, 1)".
Error to_task_error(const std::exception_ptr& exception, const std::string& place);

// Calls body() and returns its result. An exception is rethrown as an ErrorException of to_task_error(), for which
// describe_place() returns the place.
template <typename Body, typename DescribePlace>
auto call_task(Body&& body, DescribePlace&& describe_place) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    throw ErrorException(to_task_error(std::current_exception(), describe_place()));
  }
}

}  // namespace oarlock
