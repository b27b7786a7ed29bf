// What LibTorch and its backends throw, as exit codes. The texts are those of LibTorch 2.11.
#include "trainer/distributed/failure.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(NcclErrors, ALateRank) {
  const Error late = of_nccl(
      kWatchdog +
      "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, "
      "NumelOut=10, Timeout(ms)=600000) ran for 600047 milliseconds before timing out.\nException raised from");
  EXPECT_EQ(late.code, ExitCode::kPeerLost);
  EXPECT_THAT(late.message, AllOf(HasSubstr("a collective timed out"), HasSubstr("SeqNum=77, OpType=ALLREDUCE"),
                                  Not(HasSubstr("\n"))));
}

TEST(NcclErrors, ALostRank) {
  const Error lost =
      of_nccl("NCCL error in: ProcessGroupNCCL.cpp:2500, remote process exited or there was a network error");
  EXPECT_EQ(lost.code, ExitCode::kPeerLost);
  EXPECT_THAT(lost.message, HasSubstr("another rank was lost"));
}

// NCCL's watchdog throws it as if it were the group's; the rank that is to blame must not look like collateral.
TEST(NcclErrors, AFaultOfTheOwnDeviceIsNotALostRank) {
  const Error own = of_nccl(kWatchdog + "CUDA error: an illegal memory access was encountered\nSearch for it");
  EXPECT_EQ(own.code, ExitCode::kSoftware);
  EXPECT_THAT(own.message, AllOf(HasSubstr("an illegal memory access"), Not(HasSubstr("\n"))));
  EXPECT_EQ(of_nccl("NCCL error in: x.cpp:1, unhandled cuda error (run with NCCL_DEBUG=INFO)").code,
            ExitCode::kSoftware);
}

TEST(OutOfMemory, NamesTheCapAndTheBatch) {
  const Error error = error_of([] {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which "
                     "75.02 GiB is free. 1.58 GiB allowed; see the documentation");
  });
  EXPECT_EQ(error.code, ExitCode::kOsErr);
  EXPECT_THAT(error.message, AllOf(HasSubstr("1.58 GiB allowed"), HasSubstr("lower batch.size"),
                                   HasSubstr("raise cuda.memory_fraction"), Not(HasSubstr("\n"))));
  EXPECT_EQ(error_of([] { throw std::bad_alloc(); }).code, ExitCode::kOsErr);
}

TEST(OutOfMemory, OfTheHostIsToldAsLibTorchsAllocatorThrowsIt) {
  const Error error = error_of([] { at::empty({int64_t{1} << 60}, at::kByte); });
  EXPECT_EQ(error.code, ExitCode::kOsErr);
  EXPECT_THAT(error.message, AllOf(HasSubstr("out of memory"), HasSubstr("lower batch.size")));
}

TEST(OtherErrors, AreOneLine) {
  const Error bug = error_of([] { TORCH_CHECK(false, "size mismatch\nand more"); });
  EXPECT_EQ(bug.code, ExitCode::kSoftware);
  EXPECT_EQ(bug.message, "LibTorch: size mismatch");
  EXPECT_EQ(error_of([] { throw Failure({ExitCode::kConfig, "as it is"}); }).message, "as it is");
  EXPECT_THAT(error_of([] { throw 3; }).message, HasSubstr("unknown type"));
}

}  // namespace
}  // namespace oarlock
