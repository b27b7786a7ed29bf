#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <string>

#include "trainer/device/step_graph.h"

namespace oarlock {
namespace {

bool has_same_layout(const Batch& a, const Batch& b) {
  if (a.tensors.size() != b.tensors.size()) return false;
  for (auto left = a.tensors.begin(), right = b.tensors.begin(); left != a.tensors.end(); ++left, ++right) {
    if (left->first != right->first || left->second.sizes() != right->second.sizes() ||
        left->second.strides() != right->second.strides() ||
        left->second.scalar_type() != right->second.scalar_type()) {
      return false;
    }
  }
  return true;
}

class CudaStepGraph final : public StepGraph {
 public:
  CudaStepGraph(const Logger& logger, const StepGraphOptions& options) : logger_(logger), options_(options) {}

  Outputs run(const Batch& batch, const Body& body) override {
    if (steps_ < options_.warm_up_steps) {
      ++steps_;
      return body(batch);
    }
    if (!captured_) capture(batch, body);
    if (!has_same_layout(batch, input_)) {
      if (!warned_)
        logger_.warn("cuda.graphs: a batch whose shape differs from the captured step runs without the graph");
      warned_ = true;
      return body(batch);
    }
    for (auto& [name, tensor] : input_.tensors) tensor.copy_(batch.tensors.at(name), /*non_blocking=*/true);
    input_.ids = batch.ids;
    graph_.replay();
    return outputs_;
  }

  bool is_captured() const override { return captured_; }

 private:
  // Capturing runs nothing on the device; the first replay runs the step.
  void capture(const Batch& batch, const Body& body) {
    input_.ids = batch.ids;
    for (const auto& [name, tensor] : batch.tensors) input_.tensors[name] = at::empty_like(tensor);
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();  // the graph has its own pool, so the cache of the warm-up would
                                                    // stay unused
    // Other threads (NCCL's watchdog, the prefetcher) continue to call the driver.
    graph_.capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      outputs_ = body(input_);
      graph_.capture_end();
    } catch (const c10::OutOfMemoryError&) {
      abandon();
      throw;
    } catch (const c10::Error& error) {
      abandon();
      const std::string what = error.what_without_backtrace();
      TORCH_CHECK(false, "cuda.graphs: the training step cannot be captured (", what.substr(0, what.find('\n')),
                  "); it must not wait for the device or depend on device values: change the task, or set "
                  "cuda.graphs: false");
    } catch (...) {
      abandon();
      throw;
    }
    captured_ = true;
    logger_.info("captured the training step as a CUDA graph");
  }

  // The error of the body has more detail than the error of ending a failed capture. The allocator is unusable
  // afterwards.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  Logger logger_;
  StepGraphOptions options_;
  int steps_ = 0;
  bool captured_ = false;
  bool warned_ = false;
  Batch input_;  // the tensors that the captured step reads
  Outputs outputs_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

Result<std::unique_ptr<StepGraph>> make_step_graph(at::Device device, const Logger& logger,
                                                   const StepGraphOptions& options) {
  if (!device.is_cuda())
    return fail(ExitCode::kConfig, "cuda.graphs needs a CUDA device; remove it, or use device: cuda");
  if (c10::cuda::getCurrentCUDAStream(device.index()) == c10::cuda::getDefaultCUDAStream(device.index())) {
    return fail(ExitCode::kSoftware,
                "a step cannot be captured on the default stream: configure_device() was not called");
  }
  return std::make_unique<CudaStepGraph>(logger, options);
}

}  // namespace oarlock
