// DistributedDataParallel for C++, after torch.nn.parallel.DistributedDataParallel (torch/nn/parallel/distributed.py):
// each rank trains a copy of the module on its own batches, and the gradients are averaged over the ranks during the
// backward pass.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/error.h"
#include "ddp/comm_hook_function.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/options.h"
#include "ddp/process_group.h"

namespace oarlock {

// Adds the tensors of a module's output to `tensors`: of a tensor, or of vectors, pairs and tuples of outputs.
inline void append_output_tensors(at::Tensor& output, std::vector<at::Tensor*>& tensors);
template <typename Output>
void append_output_tensors(std::vector<Output>& outputs, std::vector<at::Tensor*>& tensors);
template <typename First, typename Second>
void append_output_tensors(std::pair<First, Second>& outputs, std::vector<at::Tensor*>& tensors);
template <typename... Outputs>
void append_output_tensors(std::tuple<Outputs...>& outputs, std::vector<at::Tensor*>& tensors);

inline void append_output_tensors(at::Tensor& output, std::vector<at::Tensor*>& tensors) {
  if (output.defined()) tensors.push_back(&output);
}
template <typename Output>
void append_output_tensors(std::vector<Output>& outputs, std::vector<at::Tensor*>& tensors) {
  for (Output& output : outputs) append_output_tensors(output, tensors);
}
template <typename First, typename Second>
void append_output_tensors(std::pair<First, Second>& outputs, std::vector<at::Tensor*>& tensors) {
  append_output_tensors(outputs.first, tensors);
  append_output_tensors(outputs.second, tensors);
}
template <typename... Outputs>
void append_output_tensors(std::tuple<Outputs...>& outputs, std::vector<at::Tensor*>& tensors) {
  std::apply([&](auto&... output) { (append_output_tensors(output, tensors), ...); }, outputs);
}

// Module is the class with forward(): NetImpl for TORCH_MODULE(Net). It is deduced from the module:
//
//   oarlock::DistributedDataParallel model(net, group);
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   torch::nll_loss(model.forward(images), labels).backward();  // gradients: the mean over the ranks
//   optimizer.step();
//
// All ranks must construct it together, and must call forward() and the backward pass in the same order. Not
// thread-safe. It must outlive the backward passes of its outputs.
template <typename Module>
class DistributedDataParallel {
 public:
  // Parameters and buffers get the values of rank 0. The module must be on the device of the group, which must outlive
  // this object. Throws an ErrorException (common/error.h) with kConfig on all ranks if a parameter or buffer differs
  // from rank 0's in name, shape or type, if options.sync_batch_norm meets a torch::nn::BatchNorm
  // (ddp/sync_batchnorm.h), or if options.comm_hook meets an embedding with sparse gradients.
  DistributedDataParallel(std::shared_ptr<Module> module, const ProcessGroup& group, const DdpOptions& options = {})
      : module_(std::move(module)) {
    Result<std::unique_ptr<DistributedDataParallelBase>> base =
        DistributedDataParallelBase::create(module_, group, options);
    if (!base) throw ErrorException(std::move(base).error());
    base_ = std::move(*base);
  }
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& module, const ProcessGroup& group,
                          const DdpOptions& options = {})
      : DistributedDataParallel(module.ptr(), group, options) {}
  DistributedDataParallel(std::shared_ptr<Module> module, ProcessGroup&& group,
                          const DdpOptions& options = {}) = delete;
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& module, ProcessGroup&& group,
                          const DdpOptions& options = {}) = delete;

  // Returns module.forward(arguments...), which is a tensor, or a vector, pair or tuple of such outputs. The backward
  // pass from any function of it averages the gradients over the ranks; each parameter then has the same bits on all
  // ranks. If the loss is the mean over the rank's batch, and all batches have the same size, the gradients are those
  // of the mean over the joined batch. Throws an ErrorException with kConfig if the last backward pass did not use all
  // parameters and options.find_unused_parameters is off.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    base_->begin_forward();
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    std::vector<at::Tensor*> tensors;
    append_output_tensors(output, tensors);
    base_->end_forward(tensors);
    return output;
  }
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  // Accumulates gradients locally until the result is destroyed, as no_sync() of Python does. It must cover the forward
  // as well as the backward pass:
  //
  //   const auto no_sync = model.no_sync();
  [[nodiscard]] DistributedDataParallelBase::NoSync no_sync() { return DistributedDataParallelBase::NoSync(*base_); }

  // Replaces the all-reduce of the gradients by `hook`, a function of a bucket (c10d::GradBucket&) that returns a
  // future or a tensor (comm_hook_function.h). The bucket has this rank's own gradients, and the result replaces them,
  // so that the hook also divides by the number of ranks. It is called in the backward pass, for the buckets in the
  // same order on all ranks; its exceptions are those of backward(). A bucket of an embedding with sparse gradients is
  // a sparse tensor.
  //
  //   model.register_comm_hook([&](c10d::GradBucket& bucket) {
  //     const at::Tensor scaled = bucket.getBuffer() / group.world_size();
  //     group.all_reduce(scaled);
  //     return scaled;
  //   });
  //
  // Called by all ranks, once, before the first forward(); throws an ErrorException with kConfig otherwise, or if
  // options.comm_hook is set. Gradients are then not averaged in shared memory. A group of one rank does not call it.
  template <typename Hook>
  void register_comm_hook(Hook hook) {
    base_->register_comm_hook(make_comm_hook_function(std::move(hook)));
  }

  // Calls `steps`, in which the ranks may train with different numbers of batches. A rank that has no more takes part
  // in the steps of the others with gradients of zero, and all ranks end with the parameters and buffers of a rank that
  // had the last batch. `steps` must contain no other collectives, such as those of synchronized batch normalization,
  // unless options.throw_on_early_termination is set. Every forward() costs one small collective more.
  //
  //   model.join([&] {
  //     for (const auto& batch : batches) { ... }
  //   });
  //
  // Called by all ranks. Passes on the exceptions of `steps`; the other ranks then fail as after the loss of this one.
  // Throws an ErrorException with kDataErr on all ranks if options.throw_on_early_termination is set and only some
  // ranks have another batch; and with kConfig for a module, or options, that it does not support: static_graph, and
  // sparse gradients.
  template <typename Steps>
  void join(Steps&& steps, const JoinOptions& options = {}) {
    base_->run_with_uneven_inputs(std::forward<Steps>(steps), options);
  }

  // Discards the gradients of all parameters. Required instead of the optimizer's zero_grad() with
  // options.gradient_as_bucket_view.
  void zero_grad() { base_->zero_grad(); }

  // Broadcasts the parameters and buffers of the rank `source`; or rank 0's buffers alone, before an evaluation.
  void broadcast_state(int source = 0) { base_->broadcast_state(source); }
  void broadcast_buffers() { base_->broadcast_buffers(); }

  Module& module() { return *module_; }
  DistributedDataParallelBase& base() { return *base_; }
  // Data that one synchronized backward pass sends.
  GradientTraffic traffic() const { return base_->traffic(); }
  // Whether gradients are averaged in memory that the ranks share instead of by the group's backend.
  bool uses_shared_memory() const { return base_->uses_shared_memory(); }

 private:
  std::shared_ptr<Module> module_;
  std::unique_ptr<DistributedDataParallelBase> base_;
};

}  // namespace oarlock
