// main() of the tests: without a GPU it reports that once, instead of failing in every test.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "trainer/device/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && oarlock::cuda_devices().visible == 0) {
    std::fputs("error: this machine shows no CUDA device; look at the driver and CUDA_VISIBLE_DEVICES\n", stderr);
    return oarlock::to_int(oarlock::ExitCode::kUnavailable);
  }
  // LibTorch reads this variable at the first matrix product, and some tests enable determinism later.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/1);
  if (!GTEST_FLAG_GET(list_tests) && !oarlock::configure_device({}, c10::Device(c10::kCUDA, 0))) return 1;
  return RUN_ALL_TESTS();
}
