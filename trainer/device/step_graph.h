// A training step as a CUDA graph: recorded once, then replayed by one call to the driver instead of one per kernel.
//
// What is recorded must do the same work every time: no branch on values that live on the device, no copy to the host,
// no generator seeded inside. What changes from step to step (learning rate, gradient scale) must lie in device tensors
// that are filled before run(). The random numbers of dropout follow the device's default generator, so a replay draws
// what the eager step would.
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
  // One step, backward and optimizer included, from the batch to what shall be read of it: the loss, say.
  using Outputs = std::vector<at::Tensor>;
  using Body = std::function<Outputs(const Batch&)>;

  virtual ~StepGraph() = default;

  // The first calls run the body as it is (the reducer rearranges its buckets, libraries choose their kernels); then it
  // is recorded, and from there on replayed. A batch with other names, shapes or types than the recorded one runs as it
  // is, which is logged once. The outputs are valid until the next call.
  virtual Outputs run(const Batch& batch, const Body& body) = 0;

  virtual bool recorded() const = 0;
};

struct StepGraphOptions {
  int warm_up_steps = 11;  // DDP's logger records events in its first ten
};

// For the thread and the stream that configure_device() set up. kUnavailable in a build without CUDA.
Result<std::unique_ptr<StepGraph>> make_step_graph(at::Device device, const Logger& logger,
                                                   const StepGraphOptions& options = {});

}  // namespace oarlock
