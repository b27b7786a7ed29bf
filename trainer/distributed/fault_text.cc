#include "trainer/distributed/fault_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace oarlock {
namespace {

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

// The words are those of cudaGetErrorString(), cuGetErrorName(),
// cuBLAS, cuDNN, NVML and the driver's Xid lines.
constexpr auto kDevicePhrases = std::to_array<Phrase>({
    // Certain to fail again.
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
    // A state of the driver or of the node.
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

// c10's allocator for the host throws no type of its own (c10/core/impl/alloc_cpu.cpp); ProcessGroupGloo and Work turn
// Gloo's errors into c10::Error.
constexpr auto kLibraryPhrases = std::to_array<Phrase>({
    {"can't allocate memory", FaultKind::kHostMemory},
    {"Operation timed out!", FaultKind::kLatePeer},
    {"Gloo connectFullMesh failed", FaultKind::kPeer},
    {"Connection closed by peer", FaultKind::kPeer},
    {"Connection was likely closed", FaultKind::kPeer},
});

// NCCL reports a CUDA error as "Cuda failure 2 'out of memory'", and a failed system call as the words of its errno.
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

}  // namespace oarlock
