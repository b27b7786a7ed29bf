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

// Gloo begins with the place in its own source.
std::string without_place(const std::string& text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

Error of_collective(const std::string& detail) {
  return contains(detail, "Timed out") || contains(detail, "timeout") ? late_peer(detail) : lost_peer(detail);
}

Error of_libtorch(const std::string& detail) { return {ExitCode::kSoftware, fmt::format("LibTorch: {}", detail)}; }

// NCCL's watchdog comes upon the faults of this rank's own device, too, and throws them as if they were the group's.
bool is_of_own_device(const std::string& detail) {
  return contains(detail, "CUDA error") || contains(detail, "unhandled cuda error");
}

// Of the host: c10's allocator throws no type of its own (c10/core/impl/alloc_cpu.cpp).
bool is_out_of_memory(const std::string& detail) { return contains(detail, "can't allocate memory"); }

Error out_of_memory() { return {ExitCode::kOsErr, "out of memory; lower batch.size or give the rank more memory"}; }

}  // namespace

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Error late_peer(const std::string& detail) {
  return {ExitCode::kPeerLost,
          fmt::format("a collective timed out: another rank hangs or is too slow ({}); see the other ranks' last "
                      "messages, or raise distributed.timeout_seconds",
                      detail)};
}

Error lost_peer(const std::string& detail) {
  return {ExitCode::kPeerLost, fmt::format("another rank was lost ({}); its own last message names the cause", detail)};
}

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
    return of_collective(without_place(first_line(error.what())));
  } catch (const c10::DistError& error) {
    const std::string detail = first_line(error.what_without_backtrace());
    return is_of_own_device(detail) ? of_libtorch(detail) : of_collective(detail);
  } catch (const c10::OutOfMemoryError& error) {
    return {ExitCode::kOsErr,
            fmt::format("out of device memory: {}; lower batch.size, or raise cuda.memory_fraction if it is below 1",
                        first_line(error.what_without_backtrace()))};
  } catch (const c10::Error& error) {
    const std::string detail = first_line(error.what_without_backtrace());
    return is_out_of_memory(detail) ? out_of_memory() : of_libtorch(detail);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return {ExitCode::kSoftware, fmt::format("unexpected exception: {}", first_line(error.what()))};
  } catch (...) {
    return {ExitCode::kSoftware, "unexpected exception of an unknown type"};
  }
}

}  // namespace oarlock
