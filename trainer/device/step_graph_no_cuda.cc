// In place of step_graph_cuda.cc in a build without OARLOCK_CUDA.
#include "trainer/device/step_graph.h"

namespace oarlock {

Result<std::unique_ptr<StepGraph>> make_step_graph(at::Device, const Logger&, const StepGraphOptions&) {
  return fail(ExitCode::kUnavailable,
              "cuda.graphs is not in this build; remove it, or use a build with -DOARLOCK_CUDA=ON");
}

}  // namespace oarlock
