#include "trainer/distributed/failure.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <gloo/common/error.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

namespace oarlock {
namespace {

// The first line, without c10's backtrace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Gloo begins with the place in its own source.
std::string without_place(const std::string& text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

Error lost(const std::string& detail) {
  const bool late = detail.find("Timed out") != std::string::npos || detail.find("timeout") != std::string::npos;
  return {ExitCode::kPeerLost,
          late
              ? fmt::format("a collective timed out: another rank hangs or is too slow ({}); see the other ranks' last "
                            "messages, or raise distributed.timeout_seconds",
                            detail)
              : fmt::format("another rank was lost ({}); its own last message names the cause", detail)};
}

}  // namespace

void silence_libtorch_log() {
  constexpr int kErrors = 2;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kErrors;
}

Error to_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const ::gloo::Exception& error) {
    return lost(without_place(first_line(error.what())));
  } catch (const c10::DistError& error) {
    return lost(first_line(error.what_without_backtrace()));
  } catch (const c10::OutOfMemoryError& error) {
    return {ExitCode::kOsErr,
            fmt::format("out of device memory: {}; lower batch.size", first_line(error.what_without_backtrace()))};
  } catch (const c10::Error& error) {
    return {ExitCode::kSoftware, fmt::format("LibTorch: {}", first_line(error.what_without_backtrace()))};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kOsErr, "out of memory; lower batch.size or give the rank more memory"};
  } catch (const std::exception& error) {
    return {ExitCode::kSoftware, fmt::format("unexpected exception: {}", first_line(error.what()))};
  } catch (...) {
    return {ExitCode::kSoftware, "unexpected exception of an unknown type"};
  }
}

}  // namespace oarlock
