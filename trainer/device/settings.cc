#include "trainer/device/settings.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace oarlock {

void apply_global_settings(const CudaConfig& config) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(config.tf32);
  context.setAllowTF32CuDNN(config.tf32);
  context.setBenchmarkCuDNN(config.cudnn_benchmark);
  if (!config.deterministic) return;
  // cuBLAS is repeatable only with a workspace of fixed size, which it reads from here when its handle is made.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // our code reads nothing that it has not written
}

}  // namespace oarlock
