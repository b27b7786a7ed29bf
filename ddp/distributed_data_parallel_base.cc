#include "ddp/distributed_data_parallel_base.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <utility>

#include "common/error.h"
#include "common/status_macros.h"
#include "ddp/comm_hook.h"
#include "ddp/reducer.h"
#include "ddp/sync_batchnorm.h"

namespace oarlock {
namespace {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  out.reserve(named.size());
  for (const NamedTensor& item : named) out.push_back(item.tensor.detach());
  return out;
}

int64_t bucket_bytes_cap(const DdpOptions& config) { return static_cast<int64_t>(config.bucket_cap_mb * 1024 * 1024); }
int64_t first_bucket_bytes_cap(const DdpOptions& config) {
  return std::min<int64_t>(bucket_bytes_cap(config), c10d::kDefaultFirstBucketBytes);
}

// One line per tensor, with the properties that must be equal on all ranks.
std::string describe_tensors(const std::vector<NamedTensor>& tensors, const char* kind) {
  std::string out;
  for (const NamedTensor& item : tensors) {
    out += fmt::format("{} '{}' {} [{}] strides [{}]{}\n", kind, item.name, c10::toString(item.tensor.scalar_type()),
                       fmt::join(item.tensor.sizes(), ", "), fmt::join(item.tensor.strides(), ", "),
                       item.tensor.requires_grad() ? " trainable" : "");
  }
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

}  // namespace

DistributedDataParallelBase::DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module,
                                                         const ProcessGroup& group, const DdpOptions& config,
                                                         std::function<void()> on_wait)
    : module_(std::move(module)),
      group_(group),
      config_(config),
      on_wait_(std::move(on_wait)),
      parameters_(unique_parameters(*module_)),
      hook_state_(std::make_unique<CommHookState>()) {}

DistributedDataParallelBase::~DistributedDataParallelBase() = default;

bool DistributedDataParallelBase::uses_shared_memory() const { return hook_state_->shared_memory != nullptr; }

Result<std::unique_ptr<DistributedDataParallelBase>> DistributedDataParallelBase::create(
    std::shared_ptr<torch::nn::Module> module, const ProcessGroup& group, const DdpOptions& config,
    std::function<void()> on_wait) {
  if (config.sync_batch_norm) RETURN_IF_ERROR(convert_sync_batchnorm(*module, group));
  const bool is_alone = group.world_size() == 1;
  const bool is_connected = group.is_connected();
  std::unique_ptr<DistributedDataParallelBase> model(
      new DistributedDataParallelBase(std::move(module), group, config, std::move(on_wait)));
  const std::string sparse = model->first_sparse_parameter();
  if (!sparse.empty() && config.comm_hook != CommHook::kNone) {
    return fail(ExitCode::kConfig, fmt::format("comm_hook cannot compress the sparse gradients of '{}'; set comm_hook "
                                               "to none, or build the embedding without sparse gradients",
                                               sparse));
  }
  model->has_joined_ = is_alone || is_connected;
  if (is_alone || !is_connected) return model;
  RETURN_IF_ERROR(model->verify_against_rank_0());
  model->broadcast_state();
  model->open_shared_memory();
  model->build_reducer();
  return model;
}

std::string DistributedDataParallelBase::first_sparse_parameter() const {
  const std::vector<NamedTensor> trainable = trainable_parameters();
  const std::vector<bool> sparse = expect_sparse_gradients(*module_, trainable);
  const auto found = std::ranges::find(sparse, true);
  return found == sparse.end() ? "" : trainable[static_cast<size_t>(found - sparse.begin())].name;
}

// Sparse gradients are reduced by the group's backend.
void DistributedDataParallelBase::open_shared_memory() {
  if (config_.shared_memory && config_.comm_hook == CommHook::kNone && !hook_state_->user_hook &&
      !group_.device().is_cuda() && first_sparse_parameter().empty())
    hook_state_->shared_memory = SharedMemoryState::open(group_);
}

Result<void> DistributedDataParallelBase::verify_against_rank_0() const {
  const std::string own = describe_tensors(parameters_, "parameter") + describe_tensors(buffers(), "buffer");
  const std::vector<std::string> here = lines_of(own);
  const std::vector<std::string> there = lines_of(group_.broadcast(own));
  Result<void> result;
  for (size_t i = 0; i < std::max(here.size(), there.size()) && result; ++i) {
    const std::string mine = i < here.size() ? here[i] : "nothing";
    const std::string theirs = i < there.size() ? there[i] : "nothing";
    if (mine != theirs) {
      result = fail(ExitCode::kConfig,
                    fmt::format("the model differs between the ranks: {} on rank {}, but {} on rank 0; build the same "
                                "model on all ranks",
                                mine, group_.rank(), theirs));
    }
  }
  return group_.agree(result);
}

std::vector<NamedTensor> DistributedDataParallelBase::trainable_parameters() const {
  std::vector<NamedTensor> out;
  for (const NamedTensor& parameter : parameters_)
    if (parameter.tensor.requires_grad()) out.push_back(parameter);
  return out;
}

std::vector<std::vector<size_t>> DistributedDataParallelBase::initial_buckets(const std::vector<at::Tensor>& trainable,
                                                                              const std::vector<bool>& sparse) const {
  // If buckets are rebuilt in the order in which gradients become ready, one bucket per type is enough for the first
  // backward pass.
  const bool rebuilt_later = config_.static_graph || !config_.find_unused_parameters;
  const std::vector<size_t> limits = rebuilt_later
                                         ? std::vector<size_t>{std::numeric_limits<int64_t>::max()}
                                         : std::vector<size_t>{static_cast<size_t>(first_bucket_bytes_cap(config_)),
                                                               static_cast<size_t>(bucket_bytes_cap(config_))};
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(trainable, limits, sparse));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

// Continues from `saved` unless it is null. The previous reducer is destroyed first to release the memory of its
// buckets.
void DistributedDataParallelBase::build_reducer(const ReducerState* saved) {
  logger_.reset();
  reducer_.reset();
  std::vector<at::Tensor> trainable;
  std::unordered_map<size_t, std::string> names;
  traffic_.bytes = 0;
  const std::vector<NamedTensor> parameters = trainable_parameters();
  for (const NamedTensor& parameter : parameters) {
    names[trainable.size()] = parameter.name;
    trainable.push_back(parameter.tensor);
    traffic_.bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  if (trainable.empty()) return;
  const std::vector<bool> sparse = expect_sparse_gradients(*module_, parameters);
  const auto buckets = saved != nullptr ? saved->buckets : initial_buckets(trainable, sparse);
  reducer_ = make_reducer(trainable, sparse, buckets, group_.c10d(), names,
                          {bucket_bytes_cap(config_), first_bucket_bytes_cap(config_), config_.find_unused_parameters,
                           config_.gradient_as_bucket_view});
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  const std::vector<int> device_ids =
      group_.device().is_cuda() ? std::vector<int>{group_.device().index()} : std::vector<int>{};
  logger_->set_construction_data_and_log(module_->name(), device_ids, device_ids.empty() ? -1 : device_ids[0],
                                         config_.broadcast_buffers, config_.sync_batch_norm, config_.static_graph);
  traffic_.buckets = static_cast<int64_t>(buckets.size());
  if (config_.static_graph) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
  if (saved != nullptr) reducer_->load_state(*saved);
  if (config_.comm_hook == CommHook::kPowerSgd && !hook_state_->powersgd)
    hook_state_->powersgd = std::make_shared<PowerSgdState>(config_.powersgd);
  if (hook_state_->powersgd && skipping_enabled_) hook_state_->powersgd->enable_skipped_steps();
  if (auto hook = make_comm_hook(config_, group_, *hook_state_)) reducer_->register_comm_hook(std::move(hook));
}

// Has an effect once: after the first step, or after the second one for a static graph.
void DistributedDataParallelBase::rebuild_buckets() {
  if (!reducer_->rebuild_buckets()) return;
  traffic_.buckets = static_cast<int64_t>(logger_->get_bucket_sizes().size());
  if (hook_state_->powersgd) hook_state_->powersgd->discard_buckets();
}

namespace {

// Calls `begin` once in the backward pass, before the gradients of the parameters.
void when_backward_begins(const std::vector<at::Tensor>& outputs, const std::function<void()>& begin) {
  const auto begun = std::make_shared<bool>(false);
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    output.register_hook([begun, begin](const at::Tensor&) {
      if (!std::exchange(*begun, true)) begin();
    });
  }
}

void queue_callback(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

}  // namespace

namespace {

// As _DDPSink of distributed.py: parameters behind an output that the loss does not use get an undefined gradient, and
// thereby count as ready.
struct OutputSink : torch::autograd::Function<OutputSink> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList outputs) {
    context->set_materialize_grads(false);
    return outputs.vec();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

// Replaces parameters and inputs that the module returns by tensors of the graph: a hook on them would remain after the
// backward pass.
void replace_leaves(const std::vector<at::Tensor*>& outputs) {
  for (at::Tensor* output : outputs)
    if (output->requires_grad() && output->is_leaf()) *output = output->view_as(*output);
}

// Lets the outputs that have a graph pass through one node.
void join_graphs(const std::vector<at::Tensor*>& outputs) {
  std::vector<at::Tensor*> joined;
  torch::autograd::variable_list tensors;
  for (at::Tensor* output : outputs) {
    if (output->grad_fn() == nullptr) continue;
    joined.push_back(output);
    tensors.push_back(*output);
  }
  if (joined.size() < 2) return;
  const torch::autograd::variable_list results = OutputSink::apply(at::TensorList(tensors));
  for (size_t i = 0; i < joined.size(); ++i) *joined[i] = results[i];
}

}  // namespace

at::Tensor DistributedDataParallelBase::forward(const std::function<at::Tensor()>& compute_loss) {
  begin_forward();
  at::Tensor loss = compute_loss();
  if (reducer_) prepare_for_backward({loss});
  return loss;
}

void DistributedDataParallelBase::begin_forward() {
  if (!reducer_) return;
  if (std::exchange(is_unchecked_, false)) check_all_reduced();
  // A static graph is recorded from a single pass, because the reducer would otherwise count the uses of all
  // micro-batches together. This pass reduces even under NoSync; reducing gradients that are already equal changes
  // nothing.
  const bool has_gradients = at::GradMode::is_enabled();
  synchronizing_ = has_gradients && (synchronize_ || records_graph());
  if (synchronizing_) {
    logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  if (join_) announce_step(has_gradients);
  if (has_gradients) rebuild_buckets();
  if (sync_buffers_in_forward_ && config_.broadcast_buffers && !buffers_after_backward_)
    broadcast_buffers(join_ ? join_->highest_rank : 0);
}

void DistributedDataParallelBase::end_forward(const std::vector<at::Tensor*>& returned) {
  if (!reducer_) return;
  if (synchronizing_) replace_leaves(returned);
  if (synchronizing_ && config_.find_unused_parameters && !config_.static_graph) join_graphs(returned);
  std::vector<at::Tensor> outputs;
  for (const at::Tensor* output : returned) outputs.push_back(*output);
  prepare_for_backward(outputs);
  if (!synchronizing_ || !any_requires_grad(outputs)) return;
  is_unchecked_ = true;
  when_backward_begins(outputs, [this] { collect_gradients(); });
}

void DistributedDataParallelBase::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  sync_buffers_in_forward_ = synchronizing_;
  if (!synchronizing_) return;
  // The reducer searches the graph from the outputs: a parameter that it does not reach gets no gradient.
  const bool find_unused = config_.find_unused_parameters && !config_.static_graph;
  reducer_->prepare_for_backward(find_unused ? outputs : std::vector<at::Tensor>{});
  reducer_->divide_by(gradient_divisor());
  if (hook_state_->shared_memory) hook_state_->shared_memory->divide_by(gradient_divisor());
  if (!records_graph() || !any_requires_grad(outputs)) return;
  // As _DDPSink of distributed.py: the first pass only records the graph, and reduces at its end.
  when_backward_begins(outputs, [this] {
    if (std::exchange(delayed_reduction_queued_, true)) return;
    queue_callback([this] {
      on_local_gradients_ready();
      reducer_->delay_all_reduce();
    });
  });
}

void DistributedDataParallelBase::backward(const at::Tensor& loss) {
  if (reducer_ && synchronize_) {
    // Queued before the reducer's own callback, which waits for the buckets.
    when_backward_begins({loss}, [this] { collect_gradients(); });
  }
  loss.backward();
  if (reducer_ && synchronize_) check_all_reduced();
}

void DistributedDataParallelBase::collect_gradients() {
  if (hook_state_->shared_memory) hook_state_->shared_memory->begin_backward();
  queue_callback([this] { on_local_gradients_ready(); });
}

void DistributedDataParallelBase::on_local_gradients_ready() {
  if (on_wait_) on_wait_();
  if (hook_state_->shared_memory) hook_state_->shared_memory->finish_backward();
}

// Otherwise this rank would fail only in the next step, while the others wait for it.
void DistributedDataParallelBase::check_all_reduced() const {
  if (!reducer_->has_unfinished_reduction()) return;
  const std::vector<at::Tensor> without = reducer_->parameters_without_gradient();
  std::vector<std::string> unused;
  for (const NamedTensor& parameter : parameters_) {
    if (std::ranges::any_of(without, [&](const at::Tensor& one) { return one.is_same(parameter.tensor); }))
      unused.push_back("'" + parameter.name + "'");
  }
  const char* const remedy = config_.static_graph
                                 ? "set static_graph to false, because this step differs from the first one"
                                 : "set find_unused_parameters to true, or freeze parameters that are never used";
  throw ErrorException({ExitCode::kConfig, fmt::format("the loss of rank {} does not depend on {}, so gradients were "
                                                       "not averaged; {}",
                                                       group_.rank(), fmt::join(unused, ", "), remedy)});
}

int DistributedDataParallelBase::gradient_divisor() const {
  return join_ && !join_->options.divide_by_initial_world_size ? join_->active_ranks : group_.world_size();
}

void DistributedDataParallelBase::register_comm_hook(CommHookFunction hook) {
  std::string obstacle;
  if (config_.comm_hook != CommHook::kNone) obstacle = "the option comm_hook is set";
  if (hook_state_->user_hook) obstacle = "it was called before";
  if (reducer_ && reducer_->has_begun()) obstacle = "call it before the first forward()";
  if (buffers_after_backward_)
    obstacle = "call it before a RecoverableLoop is constructed, which then does not recover";
  if (!obstacle.empty()) throw ErrorException({ExitCode::kConfig, "register_comm_hook: " + obstacle});
  hook_state_->user_hook = std::move(hook);
  hook_state_->shared_memory.reset();
  if (reducer_) build_reducer();
}

void DistributedDataParallelBase::broadcast_state(int source) {
  const at::NoGradGuard no_grad;
  group_.broadcast(tensors_of(parameters_), source);
  group_.broadcast(tensors_of(buffers()), source);
}

void DistributedDataParallelBase::broadcast_buffers(int source) {
  const at::NoGradGuard no_grad;
  group_.broadcast(tensors_of(buffers()), source);
}

// Undefined rather than zero: the reducer then writes the mean into its bucket without reading the old gradient.
void DistributedDataParallelBase::zero_grad() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad() = at::Tensor();
}

void DistributedDataParallelBase::enable_skipped_steps() {
  skipping_enabled_ = true;
  if (hook_state_->powersgd) hook_state_->powersgd->enable_skipped_steps();
}

void DistributedDataParallelBase::finish_step(const at::Tensor& skipped) {
  if (hook_state_->powersgd) hook_state_->powersgd->finish_step(skipped);
}

}  // namespace oarlock
