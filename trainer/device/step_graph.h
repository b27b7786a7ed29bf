// A training step as a CUDA graph: captured once, then replayed with one driver call instead of one per kernel.
//
// The step must do the same work every time: no branch on device values, no copy to the host, no generator that is
// seeded inside. Values that change from step to step (learning rate, gradient scale) must be in device tensors that
// are filled before run(). The random numbers of dropout come from the device's default generator, so that a replay
// draws the same numbers as an eager step.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/batch.h"

namespace oarlock {

class StepGraph {
 public:
  // Runs one step on a batch, including backward and optimizer, and returns the tensors that the caller reads, such as
  // the loss.
  using Outputs = std::vector<at::Tensor>;
  using Body = std::function<Outputs(const Batch&)>;

  virtual ~StepGraph() = default;

  // Runs the step. The first calls run the body eagerly (the reducer rebuilds its buckets, libraries select their
  // kernels); then it is captured, and from then on replayed. A batch whose names, shapes or types differ from the
  // captured one runs eagerly, which is logged once. The outputs are valid until the next call.
  virtual Outputs run(const Batch& batch, const Body& body) = 0;

  virtual bool is_captured() const = 0;
};

struct StepGraphOptions {
  int warm_up_steps = 11;  // DDP's logger records events in its first ten
};

// Must be called on the thread, and with the stream, that configure_device() has set up. kUnavailable in a build
// without CUDA.
Result<std::unique_ptr<StepGraph>> make_step_graph(at::Device device, const Logger& logger,
                                                   const StepGraphOptions& options = {});

}  // namespace oarlock
