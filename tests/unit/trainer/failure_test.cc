// Classification of the exceptions of LibTorch and its backends by exit code. The texts are those of LibTorch 2.11.
#include "ddp/library_errors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gloo/common/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <system_error>
#include <vector>

#ifdef OARLOCK_SANITIZED
// Allocations that must fail return null, as without AddressSanitizer, instead of ending the program.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }  // NOLINT
#endif

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <typename Throw>
Error error_of(Throw&& throw_it) {
  try {
    throw_it();
  } catch (...) {
    return to_error(std::current_exception());
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

Error of_nccl(const std::string& text) {
  return error_of([&] { C10_THROW_ERROR(DistBackendError, text); });
}

const std::string kWatchdog =
    "[PG ID 0 PG GUID 0(ranks) Rank 1] Process group watchdog thread terminated with exception: ";
// The text that C10_CUDA_CHECK appends.
const std::string kCudaHint =
    "\nSearch for `cudaErrorName' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
    "information.\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to "
    "enable device-side assertions.\n";

std::string nccl_text(const std::string& what, const std::string& meaning, const std::string& last_error = "") {
  return "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:94, " + what +
         ", NCCL version 2.28.9\n" + meaning + (last_error.empty() ? "" : "\nLast error:\n" + last_error);
}
std::string nccl_system(const std::string& last_error) {
  return nccl_text(
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
      last_error);
}
std::string nccl_cuda(const std::string& last_error) {
  return nccl_text("unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                   "ncclUnhandledCudaError: Call to CUDA function failed.", last_error);
}

struct ThrownText {
  std::string text;
  ExitCode code;
};

// Texts of cudaGetErrorString(). A restart is worthwhile unless the error is certain to repeat.
TEST(CudaErrors, AreRetryableUnlessCertainToRepeat) {
  const std::vector<ThrownText> table = {
      {"uncorrectable ECC error encountered", ExitCode::kDeviceFailed},
      {"uncorrectable NVLink error detected during the execution", ExitCode::kDeviceFailed},
      {"Invalid access of peer GPU memory over nvlink or a hardware error", ExitCode::kDeviceFailed},
      {"hardware stack error", ExitCode::kDeviceFailed},
      {"unspecified launch failure", ExitCode::kDeviceFailed},
      {"the launch timed out and was terminated", ExitCode::kDeviceFailed},
      {"unknown error", ExitCode::kDeviceFailed},
      {"initialization error", ExitCode::kDeviceFailed},
      {"no CUDA-capable device is detected", ExitCode::kDeviceFailed},
      {"CUDA-capable device(s) is/are busy or unavailable", ExitCode::kDeviceFailed},
      {"system not yet initialized", ExitCode::kDeviceFailed},
      {"system has unsupported display driver / cuda driver combination", ExitCode::kDeviceFailed},
      {"OS call failed or operation not supported on this OS", ExitCode::kDeviceFailed},
      {"the MPS client has been terminated by the server", ExitCode::kDeviceFailed},
      {"out of memory", ExitCode::kOsErr},
      {"CUDA driver version is insufficient for CUDA runtime version", ExitCode::kUnavailable},
      {"no kernel image is available for execution on the device", ExitCode::kUnavailable},
      {"forward compatibility was attempted on non supported HW", ExitCode::kUnavailable},
      {"invalid device ordinal", ExitCode::kUnavailable},
      {"device-side assert triggered", ExitCode::kSoftware},
      {"an illegal memory access was encountered", ExitCode::kSoftware},
      {"an illegal instruction was encountered", ExitCode::kSoftware},
      {"misaligned address", ExitCode::kSoftware},
      {"invalid argument", ExitCode::kSoftware},
      {"invalid configuration argument", ExitCode::kSoftware},
      {"operation not permitted when stream is capturing", ExitCode::kSoftware},
  };
  for (const ThrownText& row : table) {
    const std::string text = "CUDA error: " + row.text + kCudaHint;
    for (const Error& error : {error_of([&] { TORCH_CHECK(false, text); }),  // thrown by a kernel
                               error_of([&] { throw c10::AcceleratorError({"f", "f.cc", 1}, 1, text); }),
                               error_of([&] { throw std::runtime_error(text); }),  // thrown by thrust
                               of_nccl(kWatchdog + text)}) {                       // thrown by NCCL's watchdog
      EXPECT_EQ(to_int(error.code), to_int(row.code)) << row.text;
      EXPECT_THAT(error.message, AllOf(HasSubstr(row.text), Not(HasSubstr("\n"))));
    }
  }
}

TEST(DriverErrors, AreClassifiedByName) {
  const std::vector<ThrownText> table = {
      {"CUDA driver error: uncorrectable ECC error encountered", ExitCode::kDeviceFailed},
      {"CUDA_ERROR_ECC_UNCORRECTABLE", ExitCode::kDeviceFailed},
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", ExitCode::kDeviceFailed},
      {"Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost", ExitCode::kDeviceFailed},
      {"the GPU fell off the bus", ExitCode::kDeviceFailed},
      {"Failed to initialize NVML: Driver/library version mismatch", ExitCode::kDeviceFailed},
      {"CUDA driver initialization failed, you might not have a CUDA gpu.", ExitCode::kDeviceFailed},
      {"CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`", ExitCode::kDeviceFailed},
      {"cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", ExitCode::kDeviceFailed},
      {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", ExitCode::kOsErr},
      {"CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(...)`", ExitCode::kSoftware},
      {"The NVIDIA driver on your system is too old (found version 11040).", ExitCode::kUnavailable},
      {"Found no NVIDIA driver on your system.", ExitCode::kUnavailable},
  };
  for (const ThrownText& row : table)
    EXPECT_EQ(to_int(error_of([&] { TORCH_CHECK(false, row.text); }).code), to_int(row.code)) << row.text;
}

TEST(NcclErrors, DefaultToPeerLost) {
  const std::vector<ThrownText> table = {
      {nccl_text(
           "remote process exited or there was a network error",
           "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
           "socketProgress: Connection closed by remote peer job-0-1.job<41000>"),
       ExitCode::kPeerLost},
      {nccl_system("socketStartConnect: Connect to 10.0.0.7<41000> failed : Connection refused"), ExitCode::kPeerLost},
      {nccl_system("Call to connect to 10.0.0.7<41000> failed : No route to host"), ExitCode::kPeerLost},
      {nccl_system("socketPollConnect: Connect to 10.0.0.7<41000> returned 113(No route to host) errno 115"),
       ExitCode::kPeerLost},
      {nccl_text("internal error - please report this issue to the NCCL developers",
                 "ncclInternalError: Internal check failed."),
       ExitCode::kPeerLost},
      {kWatchdog +
           "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, "
           "NumelOut=10, Timeout(ms)=600000) ran for 600047 milliseconds before timing out.\nException raised from",
       ExitCode::kPeerLost},
      {"[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', "
       "but store->get('0') got error: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
       "server "
       "shutdown or crash?",
       ExitCode::kPeerLost},
      {"wait timeout after 30000ms, keys: /nccl/0", ExitCode::kPeerLost},
      {nccl_system("Call to ibv_modify_qp failed with error Invalid argument"), ExitCode::kDeviceFailed},
      {nccl_cuda("Cuda failure 214 'uncorrectable ECC error encountered'"), ExitCode::kDeviceFailed},
      {nccl_cuda("Cuda failure 'unspecified launch failure'"), ExitCode::kDeviceFailed},
      {nccl_cuda(""), ExitCode::kDeviceFailed},
      {nccl_cuda("Cuda failure 2 'out of memory'"), ExitCode::kOsErr},
      {nccl_cuda("Cuda failure 35 'CUDA driver version is insufficient for CUDA runtime version'"),
       ExitCode::kUnavailable},
      {nccl_cuda("Cuda failure 700 'an illegal memory access was encountered'"), ExitCode::kSoftware},
      {nccl_system("Error while creating shared memory segment /dev/shm/nccl-Xy12Ab (size 9637888)"), ExitCode::kOsErr},
      {nccl_text("invalid usage (run with NCCL_DEBUG=WARN for details)",
                 "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
                 "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000"),
       ExitCode::kUnavailable},
      {nccl_text("invalid argument (run with NCCL_DEBUG=WARN for details)",
                 "ncclInvalidArgument: Invalid value for an argument."),
       ExitCode::kSoftware},
  };
  for (const ThrownText& row : table) {
    const Error error = of_nccl(row.text);
    EXPECT_EQ(to_int(error.code), to_int(row.code)) << row.text;
    EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  }
}

TEST(NcclErrors, IncludeLastErrorOfNccl) {
  const Error refused =
      of_nccl(nccl_system("socketStartConnect: Connect to 10.0.0.7<41000> failed : Connection refused"));
  EXPECT_THAT(refused.message, AllOf(HasSubstr("another rank was lost"), HasSubstr("unhandled system error"),
                                     HasSubstr("10.0.0.7<41000>")));
  const Error late = of_nccl(kWatchdog + "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77)");
  EXPECT_THAT(late.message, AllOf(HasSubstr("a collective timed out"), HasSubstr("SeqNum=77")));
}

// ProcessGroupGloo and its Work objects throw some peer errors as plain c10::Error.
TEST(GlooErrors, MeanPeerLost) {
  const std::vector<std::string> plain = {
      "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
      "Operation timed out!", "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:1234"};
  for (const std::string& text : plain)
    EXPECT_EQ(error_of([&] { TORCH_CHECK(false, text); }).code, ExitCode::kPeerLost) << text;
  const std::vector<std::string> io = {
      "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:1234",
      "[/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1000ms for recv "
      "operation to complete",
      "[/gloo/transport/tcp/pair.cc:1] Read error [10.0.0.7]:1: Connection reset by peer"};
  for (const std::string& text : io) {
    const Error error = error_of([&] { throw ::gloo::IoException(text); });
    EXPECT_EQ(error.code, ExitCode::kPeerLost) << text;
    EXPECT_THAT(error.message, Not(HasSubstr("pair.cc")));
  }
}

TEST(StoreErrors, MeanPeerLost) {
  EXPECT_EQ(error_of([] { C10_THROW_ERROR(DistStoreError, "wait timeout after 30000ms, keys: /a"); }).code,
            ExitCode::kPeerLost);
  EXPECT_EQ(error_of([] {
              C10_THROW_ERROR(DistNetworkError,
                              "Failed to recv, got 0 bytes. Connection was likely closed. Did the "
                              "remote server shutdown or crash?");
            }).code,
            ExitCode::kPeerLost);
  EXPECT_EQ(error_of([] {
              C10_THROW_ERROR(DistNetworkError,
                              "The client socket has failed to connect to any network address of (job-0-0, 29500).");
            }).code,
            ExitCode::kPeerLost);
}

TEST(OutOfMemory, NamesLimitAndBatchSize) {
  const Error error = error_of([] {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which "
                     "75.02 GiB is free. 1.58 GiB allowed; see the documentation");
  });
  EXPECT_EQ(error.code, ExitCode::kOsErr);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("1.58 GiB allowed"), HasSubstr("lower the batch size"),
                    HasSubstr("raise the memory fraction of LibTorch's allocator"), Not(HasSubstr("\n"))));
  EXPECT_EQ(error_of([] { throw std::bad_alloc(); }).code, ExitCode::kOsErr);
}

TEST(OutOfMemory, RecognizesErrorOfHostAllocator) {
  const Error error = error_of([] { at::empty({int64_t{1} << 60}, at::kByte); });
  EXPECT_EQ(error.code, ExitCode::kOsErr);
  EXPECT_THAT(error.message, AllOf(HasSubstr("out of memory"), HasSubstr("lower the batch size")));
}

TEST(OtherErrors, HaveOneLine) {
  const Error bug = error_of([] { TORCH_CHECK(false, "size mismatch\nand more"); });
  EXPECT_EQ(bug.code, ExitCode::kSoftware);
  EXPECT_EQ(bug.message, "LibTorch: size mismatch");
  EXPECT_EQ(error_of([] { throw ErrorException({ExitCode::kConfig, "as it is"}); }).message, "as it is");
  EXPECT_THAT(error_of([] { throw 3; }).message, HasSubstr("unknown type"));
  // Phrases are ignored in texts of other origins, such as a path.
  EXPECT_EQ(error_of([] { TORCH_CHECK(false, "/data/timeout/Connection: size mismatch"); }).code, ExitCode::kSoftware);
  EXPECT_EQ(error_of([] { throw std::system_error(EAGAIN, std::generic_category(), "thread"); }).code,
            ExitCode::kOsErr);
}

}  // namespace
}  // namespace oarlock
