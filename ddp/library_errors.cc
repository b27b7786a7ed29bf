#include "ddp/library_errors.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <gloo/common/error.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <system_error>

namespace oarlock {
namespace {

// ---- classification of error texts ----

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct Phrase {
  std::string_view text;
  FaultKind kind;
};

// The kind of the first phrase that the text contains.
std::optional<FaultKind> find_kind(std::string_view text, std::span<const Phrase> phrases) {
  const auto found =
      std::find_if(phrases.begin(), phrases.end(), [&](const Phrase& phrase) { return contains(text, phrase.text); });
  return found == phrases.end() ? std::nullopt : std::optional(found->kind);
}

// Phrases of cudaGetErrorString(), cuGetErrorName(), cuBLAS, cuDNN, NVML and the driver's Xid lines.
constexpr auto kDevicePhrases = std::to_array<Phrase>({
    // Errors that are certain to repeat.
    {"device-side assert triggered", FaultKind::kKernel},
    {"an illegal memory access was encountered", FaultKind::kKernel},
    {"CUDA_ERROR_ILLEGAL_ADDRESS", FaultKind::kKernel},
    {"CUDA_ERROR_ASSERT", FaultKind::kKernel},
    {"misaligned address", FaultKind::kKernel},
    {"an illegal instruction was encountered", FaultKind::kKernel},
    {"invalid program counter", FaultKind::kKernel},
    {"operation not supported on global/shared address space", FaultKind::kKernel},
    {"driver version is insufficient", FaultKind::kDeviceSetup},
    {"NVIDIA driver on your system is too old", FaultKind::kDeviceSetup},
    {"Found no NVIDIA driver", FaultKind::kDeviceSetup},
    {"CUDA driver is a stub library", FaultKind::kDeviceSetup},
    {"API call is not supported in the installed CUDA driver", FaultKind::kDeviceSetup},
    {"forward compatibility was attempted on non supported HW", FaultKind::kDeviceSetup},
    {"no kernel image is available", FaultKind::kDeviceSetup},
    {"device kernel image is invalid", FaultKind::kDeviceSetup},
    {"compiled with an unsupported toolchain", FaultKind::kDeviceSetup},
    {"invalid device ordinal", FaultKind::kDeviceSetup},
    {"CUDA out of memory", FaultKind::kDeviceMemory},
    {"CUDA error: out of memory", FaultKind::kDeviceMemory},
    {"CUDA driver error: out of memory", FaultKind::kDeviceMemory},
    {"CUDA_ERROR_OUT_OF_MEMORY", FaultKind::kDeviceMemory},
    {"STATUS_ALLOC_FAILED", FaultKind::kDeviceMemory},
    // Hardware.
    {"uncorrectable ECC error", FaultKind::kDevice},
    {"CUDA_ERROR_ECC_UNCORRECTABLE", FaultKind::kDevice},
    {"uncorrectable NVLink error", FaultKind::kDevice},
    {"CUDA_ERROR_NVLINK_UNCORRECTABLE", FaultKind::kDevice},
    {"or a hardware error", FaultKind::kDevice},  // cudaErrorContained
    {"hardware stack error", FaultKind::kDevice},
    {"GPU is lost", FaultKind::kDevice},
    {"off the bus", FaultKind::kDevice},  // "has fallen", "fell"
    {"NVRM: Xid", FaultKind::kDevice},
    {"Xid (", FaultKind::kDevice},
    {"GPU requires reset", FaultKind::kDevice},
    // A transient state of the driver or of the node.
    {"system not yet initialized", FaultKind::kDevice},
    {"system has unsupported display driver / cuda driver combination", FaultKind::kDevice},
    {"Driver/library version mismatch", FaultKind::kDevice},
    {"CUDA driver initialization failed", FaultKind::kDevice},
    {"device(s) is/are busy or unavailable", FaultKind::kDevice},
    {"exclusive-thread device already in use", FaultKind::kDevice},
    {"no CUDA-capable device is detected", FaultKind::kDevice},
    {"startup failure in cuda runtime", FaultKind::kDevice},
    {"an async error has occured in external entity outside of CUDA", FaultKind::kDevice},
    {"OS call failed or operation not supported on this OS", FaultKind::kDevice},
    {"MPS client", FaultKind::kDevice},
    {"MPS server", FaultKind::kDevice},
    // Hardware or software.
    {"unspecified launch failure", FaultKind::kDevice},
    {"CUDA_ERROR_LAUNCH_FAILED", FaultKind::kDevice},
    {"the launch timed out and was terminated", FaultKind::kDevice},
    {"CUDA error: unknown error", FaultKind::kDevice},
    {"CUDA driver error: unknown error", FaultKind::kDevice},
    {"CUDA error: initialization error", FaultKind::kDevice},
    {"CUDA error: driver shutting down", FaultKind::kDevice},
    {"CUBLAS_STATUS_EXECUTION_FAILED", FaultKind::kDevice},
    {"CUBLAS_STATUS_INTERNAL_ERROR", FaultKind::kDevice},
    {"CUBLAS_STATUS_MAPPING_ERROR", FaultKind::kDevice},
    {"CUBLAS_STATUS_NOT_INITIALIZED", FaultKind::kDevice},
    {"CUDNN_STATUS_EXECUTION_FAILED", FaultKind::kDevice},
    {"CUDNN_STATUS_INTERNAL_ERROR", FaultKind::kDevice},
    {"CUDNN_STATUS_NOT_INITIALIZED", FaultKind::kDevice},
});

// c10's host allocator throws no dedicated type (c10/core/impl/alloc_cpu.cpp), and ProcessGroupGloo and Work convert
// Gloo's errors to c10::Error, so both are recognized by their text.
constexpr auto kLibraryPhrases = std::to_array<Phrase>({
    {"can't allocate memory", FaultKind::kHostMemory},
    {"Operation timed out!", FaultKind::kLatePeer},
    {"Gloo connectFullMesh failed", FaultKind::kPeer},
    {"Connection closed by peer", FaultKind::kPeer},
    {"Connection was likely closed", FaultKind::kPeer},
});

// NCCL reports a CUDA error as "Cuda failure 2 'out of memory'", and a failed system call with the text of its errno.
constexpr auto kCollectivePhrases = std::to_array<Phrase>({
    {"'out of memory'", FaultKind::kDeviceMemory},
    {"ncclInvalidUsage", FaultKind::kNcclUsage},
    {"invalid usage", FaultKind::kNcclUsage},
    {"Duplicate GPU detected", FaultKind::kNcclUsage},
    {"creating shared memory segment", FaultKind::kSharedMemory},
    {"/dev/shm", FaultKind::kSharedMemory},
    {"unhandled cuda error", FaultKind::kDevice},
    {"ncclUnhandledCudaError", FaultKind::kDevice},
    {"CUDA error", FaultKind::kUnknown},  // one of the API's own, such as "invalid argument"
    {"ncclInvalidArgument", FaultKind::kUnknown},
    {"ncclRemoteError", FaultKind::kPeer},
    {"remote process exited", FaultKind::kPeer},
    {"Connection ", FaultKind::kPeer},  // "closed by remote peer", "refused", "reset by peer", "timed out"
    {"Broken pipe", FaultKind::kPeer},
    {"No route to host", FaultKind::kPeer},
    {"Network is unreachable", FaultKind::kPeer},
    {"Host is down", FaultKind::kPeer},
    {"Timed out", FaultKind::kLatePeer},
    {"timed out", FaultKind::kLatePeer},
    {"timing out", FaultKind::kLatePeer},
    {"timeout", FaultKind::kLatePeer},
    {"Timeout", FaultKind::kLatePeer},
    {"ncclSystemError", FaultKind::kDevice},
    {"unhandled system error", FaultKind::kDevice},
});

}  // namespace

FaultKind classify_fault(std::string_view text, FaultOrigin origin) {
  if (const std::optional<FaultKind> device = find_kind(text, kDevicePhrases)) return *device;
  if (origin == FaultOrigin::kLibrary) return find_kind(text, kLibraryPhrases).value_or(FaultKind::kUnknown);
  return find_kind(text, kCollectivePhrases).value_or(FaultKind::kPeer);
}

std::string fault_detail(std::string_view text) {
  constexpr std::string_view kLastError = "\nLast error:\n";
  std::string out(text.substr(0, text.find('\n')));
  const size_t at = text.find(kLastError);
  if (at == std::string_view::npos) return out;
  const std::string_view rest = text.substr(at + kLastError.size());
  const std::string_view last = rest.substr(0, rest.find('\n'));
  return last.empty() ? out : out.append("; ").append(last);
}

// ---- conversion to Error ----

namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Removes the source location with which Gloo's messages begin.
std::string without_location(const std::string& text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

Error out_of_memory_error() {
  return {ExitCode::kOsErr, "out of memory; lower the batch size or give the rank more memory"};
}

Error out_of_device_memory_error(const std::string& detail) {
  return {ExitCode::kOsErr,
          fmt::format("out of device memory: {}; lower the batch size, or raise the memory fraction of LibTorch's "
                      "allocator if it is below 1",
                      detail)};
}

Error libtorch_error(const std::string& detail) { return {ExitCode::kSoftware, fmt::format("LibTorch: {}", detail)}; }

bool is_errno(const std::error_code& code) {
  return code.category() == std::generic_category() || code.category() == std::system_category();
}

std::string message_of(const c10::Error& error) { return error.what_without_backtrace(); }

}  // namespace

Error peer_timeout_error(const std::string& detail) {
  return {ExitCode::kPeerLost,
          fmt::format("a collective timed out: another rank hangs or is too slow ({}); see the other ranks' last "
                      "messages, or raise the timeout of the process group",
                      detail)};
}

Error peer_lost_error(const std::string& detail) {
  return {ExitCode::kPeerLost, fmt::format("another rank was lost ({}); its own last message names the cause", detail)};
}

void silence_libtorch_log() {
  constexpr int kFatal = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kFatal;
}

Error to_error(const std::string& text, FaultOrigin origin) {
  const std::string detail = fault_detail(text);
  switch (classify_fault(text, origin)) {
    case FaultKind::kDevice:
      return {ExitCode::kDeviceFailed,
              fmt::format("the device or its driver failed: {}; look for Xid lines in the node's kernel log, and drain "
                          "the node if it fails again",
                          detail)};
    case FaultKind::kDeviceMemory:
      return out_of_device_memory_error(detail);
    case FaultKind::kDeviceSetup:
      return {ExitCode::kUnavailable,
              fmt::format("this build does not run on this device: {}; update the node's driver, or use a build for "
                          "this GPU",
                          detail)};
    case FaultKind::kPeer:
      return peer_lost_error(detail);
    case FaultKind::kLatePeer:
      return peer_timeout_error(detail);
    case FaultKind::kNcclUsage:
      return {ExitCode::kUnavailable,
              fmt::format("NCCL rejects the ranks: {}; every rank needs its own GPU, and NCCL_DEBUG=INFO shows more",
                          detail)};
    case FaultKind::kSharedMemory:
      return {
          ExitCode::kOsErr,
          fmt::format("NCCL has too little shared memory: {}; enlarge /dev/shm, or set NCCL_SHM_DISABLE=1", detail)};
    case FaultKind::kHostMemory:
      return out_of_memory_error();
    case FaultKind::kKernel:
    case FaultKind::kUnknown:
      return libtorch_error(detail);
  }
  return libtorch_error(detail);
}

Error to_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const ErrorException& error) {
    return error.error();
  } catch (const ::gloo::Exception& error) {
    return to_error(without_location(error.what()), FaultOrigin::kCollective);
  } catch (const c10::DistError& error) {
    return to_error(message_of(error), FaultOrigin::kCollective);
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_device_memory_error(first_line(message_of(error)));
  } catch (const c10::Error& error) {
    return to_error(message_of(error), FaultOrigin::kLibrary);
  } catch (const std::bad_alloc&) {
    return out_of_memory_error();
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
