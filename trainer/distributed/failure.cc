#include "trainer/distributed/failure.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <gloo/common/error.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <system_error>

#include "common/device_failed.h"

namespace oarlock {
namespace {

// Gloo begins with the place in its own source.
std::string without_place(const std::string& text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

Error out_of_memory() { return {ExitCode::kOsErr, "out of memory; lower batch.size or give the rank more memory"}; }

Error out_of_device_memory(const std::string& detail) {
  return {ExitCode::kOsErr,
          fmt::format("out of device memory: {}; lower batch.size, or raise cuda.memory_fraction if it is below 1",
                      detail)};
}

Error of_libtorch(const std::string& detail) { return {ExitCode::kSoftware, fmt::format("LibTorch: {}", detail)}; }

bool is_errno(const std::error_code& code) {
  return code.category() == std::generic_category() || code.category() == std::system_category();
}

std::string text_of(const c10::Error& error) { return error.what_without_backtrace(); }

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

Error to_error(const std::string& text, FaultOrigin origin) {
  const std::string detail = fault_detail(text);
  switch (classify_fault(text, origin)) {
    case FaultKind::kDevice:
      return {kDeviceFailed,
              fmt::format("the device or its driver failed: {}; look for Xid lines in the node's kernel log, and drain "
                          "the node if it fails again",
                          detail)};
    case FaultKind::kDeviceMemory:
      return out_of_device_memory(detail);
    case FaultKind::kDeviceSetup:
      return {ExitCode::kUnavailable,
              fmt::format("this build does not run on this device: {}; update the node's driver, or use a build for "
                          "this GPU",
                          detail)};
    case FaultKind::kPeer:
      return lost_peer(detail);
    case FaultKind::kLatePeer:
      return late_peer(detail);
    case FaultKind::kNcclUsage:
      return {ExitCode::kUnavailable,
              fmt::format("NCCL rejects the ranks: {}; every rank needs its own GPU, and NCCL_DEBUG=INFO shows more",
                          detail)};
    case FaultKind::kSharedMemory:
      return {
          ExitCode::kOsErr,
          fmt::format("NCCL has too little shared memory: {}; enlarge /dev/shm, or set NCCL_SHM_DISABLE=1", detail)};
    case FaultKind::kHostMemory:
      return out_of_memory();
    case FaultKind::kKernel:
    case FaultKind::kUnknown:
      return of_libtorch(detail);
  }
  return of_libtorch(detail);
}

Error to_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const ::gloo::Exception& error) {
    return to_error(without_place(error.what()), FaultOrigin::kCollective);
  } catch (const c10::DistError& error) {
    return to_error(text_of(error), FaultOrigin::kCollective);
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_device_memory(first_line(text_of(error)));
  } catch (const c10::Error& error) {
    return to_error(text_of(error), FaultOrigin::kLibrary);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::system_error& error) {
    return {is_errno(error.code()) ? fail_errno(error.code().value(), "").value().code : ExitCode::kSoftware,
            fmt::format("unexpected exception: {}", first_line(error.what()))};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (classify_fault(text, FaultOrigin::kLibrary) != FaultKind::kUnknown)
      return to_error(text, FaultOrigin::kLibrary);
    return {ExitCode::kSoftware, fmt::format("unexpected exception: {}", first_line(text))};
  } catch (...) {
    return {ExitCode::kSoftware, "unexpected exception of an unknown type"};
  }
}

}  // namespace oarlock
