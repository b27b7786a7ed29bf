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
// The reducer of a group that was left.
struct DistributedDataParallelBase::LeftState {
  int world_size = 0;
  ReducerState reducer;
};

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

std::vector<std::string> names_of(const std::vector<NamedTensor>& named) {
  std::vector<std::string> out;
  out.reserve(named.size());
  for (const NamedTensor& item : named) out.push_back(item.name);
  return out;
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
  std::unique_ptr<DistributedDataParallelBase> model(
      new DistributedDataParallelBase(std::move(module), group, config, std::move(on_wait)));
  model->has_joined_ = group.world_size() == 1 || group.is_connected();
  if (group.world_size() == 1 || !group.is_connected()) return model;
  RETURN_IF_ERROR(model->verify_against_rank_0());
  model->broadcast_state();
  model->open_shared_memory();
  model->build_reducer();
  return model;
}

void DistributedDataParallelBase::open_shared_memory() {
  if (config_.shared_memory && config_.comm_hook == CommHook::kNone && !group_.device().is_cuda())
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

std::vector<std::vector<size_t>> DistributedDataParallelBase::initial_buckets(
    const std::vector<at::Tensor>& trainable) const {
  // If buckets are rebuilt in the order in which gradients become ready, one bucket per type is enough for the first
  // backward pass.
  const bool rebuilt_later = config_.static_graph || !config_.find_unused_parameters;
  const std::vector<size_t> limits = rebuilt_later
                                         ? std::vector<size_t>{std::numeric_limits<int64_t>::max()}
                                         : std::vector<size_t>{static_cast<size_t>(first_bucket_bytes_cap(config_)),
                                                               static_cast<size_t>(bucket_bytes_cap(config_))};
  auto buckets = std::get<0>(
      c10d::compute_bucket_assignment_by_size(trainable, limits, std::vector<bool>(trainable.size(), false)));
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
  for (const NamedTensor& parameter : trainable_parameters()) {
    names[trainable.size()] = parameter.name;
    trainable.push_back(parameter.tensor);
    traffic_.bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  if (trainable.empty()) return;
  const auto buckets = saved != nullptr ? saved->buckets : initial_buckets(trainable);
  reducer_ = make_reducer(trainable, buckets, group_.c10d(), names,
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
  if (has_gradients) rebuild_buckets();
  if (sync_buffers_in_forward_ && config_.broadcast_buffers && !buffers_after_backward_) broadcast_buffers();
}

void DistributedDataParallelBase::end_forward(const std::vector<at::Tensor*>& returned) {
  if (!reducer_) return;
  if (synchronizing_ && config_.find_unused_parameters && !config_.static_graph) join_graphs(returned);
  std::vector<at::Tensor> outputs;
  for (const at::Tensor* output : returned) outputs.push_back(*output);
  prepare_for_backward(outputs);
  if (!synchronizing_ || !any_requires_grad(outputs)) return;
  is_unchecked_ = true;
  when_backward_begins(outputs, [this] {
    if (hook_state_->shared_memory) hook_state_->shared_memory->begin_backward();
    queue_callback([this] { on_local_gradients_ready(); });
  });
}

void DistributedDataParallelBase::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  sync_buffers_in_forward_ = synchronizing_;
  if (!synchronizing_) return;
  // The reducer searches the graph from the outputs: a parameter that it does not reach gets no gradient.
  const bool find_unused = config_.find_unused_parameters && !config_.static_graph;
  reducer_->prepare_for_backward(find_unused ? outputs : std::vector<at::Tensor>{});
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
    if (hook_state_->shared_memory) hook_state_->shared_memory->begin_backward();
    // Queued before the reducer's own callback, which waits for the buckets.
    when_backward_begins({loss}, [this] { queue_callback([this] { on_local_gradients_ready(); }); });
  }
  loss.backward();
  if (reducer_ && synchronize_) check_all_reduced();
}

void DistributedDataParallelBase::on_local_gradients_ready() {
  if (on_wait_) on_wait_();
  if (hook_state_->shared_memory) hook_state_->shared_memory->finish_backward();
}

// Otherwise this rank would fail only in the next step, while the others wait for it.
void DistributedDataParallelBase::check_all_reduced() const {
  try {
    reducer_->check_finalized();
  } catch (const c10::Error&) {
    std::vector<std::string> unused;
    for (const NamedTensor& parameter : parameters_) {
      if (parameter.tensor.requires_grad() && !parameter.tensor.grad().defined())
        unused.push_back("'" + parameter.name + "'");
    }
    throw ErrorException(
        {ExitCode::kConfig,
         fmt::format("the loss of rank {} does not depend on {}, so gradients were not averaged; set "
                     "find_unused_parameters to true, or freeze parameters that are never used",
                     group_.rank(), unused.empty() ? "some parameters" : fmt::format("{}", fmt::join(unused, ", ")))});
  }
}

void DistributedDataParallelBase::broadcast_state(int source) {
  const at::NoGradGuard no_grad;
  group_.broadcast(tensors_of(parameters_), source);
  group_.broadcast(tensors_of(buffers()), source);
}

void DistributedDataParallelBase::broadcast_buffers() {
  const at::NoGradGuard no_grad;
  group_.broadcast(tensors_of(buffers()));
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

// ---- recovery without a checkpoint ----

void DistributedDataParallelBase::synchronize_buffers() {
  if (buffers_after_backward_ && config_.broadcast_buffers) broadcast_buffers();
}

std::string DistributedDataParallelBase::recovery_obstacle() const {
  if (config_.comm_hook == CommHook::kPowerSgd) return "comm_hook: powersgd keeps an error on each rank";
  if (config_.static_graph) return "static_graph: each rank records its own graph";
  if (!config_.broadcast_buffers && !config_.sync_batch_norm && !buffers().empty())
    return "broadcast_buffers: false: the model's buffers differ between the ranks";
  return "";
}

std::string DistributedDataParallelBase::resize_obstacle(int world_size) const {
  // A group of one rank trains with batch normalization that is not synchronized, whose sums have other bits.
  if (config_.sync_batch_norm && (world_size == 1) != (group_.world_size() == 1))
    return "sync_batch_norm has no effect in a group of one rank";
  return "";
}

void DistributedDataParallelBase::leave(bool steps_completed) {
  zero_grad();
  if (std::exchange(has_joined_, false) && steps_completed)
    left_ = reducer_ ? std::make_unique<LeftState>(group_.world_size(), reducer_->state()) : nullptr;
  logger_.reset();
  reducer_.reset();
  hook_state_->shared_memory.reset();
}

std::string DistributedDataParallelBase::state_for_joining() const {
  if (!left_) return "";
  const ReducerState& reducer = left_->reducer;
  return nlohmann::json{{"world_size", left_->world_size},
                        {"buckets", reducer.buckets},
                        {"rebuilt", reducer.rebuilt},
                        {"ready_order", reducer.ready_order}}
      .dump();
}

Result<void> DistributedDataParallelBase::join(const std::string& state) {
  left_.reset();
  // Before the first collective: if another rank is lost meanwhile, this rank may be the donor of the next group.
  if (!state.empty()) {
    const nlohmann::json values = nlohmann::json::parse(state);
    left_ = std::make_unique<LeftState>();
    left_->world_size = values.at("world_size").get<int>();
    left_->reducer.buckets = values.at("buckets").get<std::vector<std::vector<size_t>>>();
    left_->reducer.rebuilt = values.at("rebuilt").get<bool>();
    left_->reducer.ready_order = values.at("ready_order").get<std::vector<int64_t>>();
  }
  if (group_.world_size() > 1) {
    RETURN_IF_ERROR(verify_against_rank_0());
    open_shared_memory();
    build_reducer(left_ && left_->world_size == group_.world_size() ? &left_->reducer : nullptr);
    sync_buffers_in_forward_ = true;
  }
  has_joined_ = true;
  return {};
}

// ---- checkpoints ----

void DistributedDataParallelBase::synchronize_reduction_state() {
  if (!reducer_) return;
  rebuild_buckets();  // as the next forward() would
  if (!config_.static_graph || !delayed_reduction_queued_ || !rank_states_.empty()) return;
  const ReducerState own = reducer_->state();
  for (const std::string& text : group_.all_gather(nlohmann::json{own.uses, own.used}.dump())) {
    const nlohmann::json lists = nlohmann::json::parse(text);
    rank_states_.push_back({.buckets = {}, .rebuilt = false, .ready_order = {}, .uses = lists[0], .used = lists[1]});
  }
}

bool DistributedDataParallelBase::is_reduction_state_collective() const {
  return hook_state_->powersgd && config_.powersgd.save_state && !hook_state_->powersgd->errors.empty();
}

bool DistributedDataParallelBase::is_reduction_state_known() const {
  return reducer_ || !left_ || left_->reducer.rebuilt || left_->reducer.ready_order.empty();
}

ReductionState DistributedDataParallelBase::reduction_state() const {
  const bool has_left = !has_joined_ && left_ && left_->world_size == group_.world_size();
  if (!reducer_ && !has_left) return {};
  std::vector<ReducerState> states = rank_states_;
  states.resize(static_cast<size_t>(group_.world_size()));
  const ReducerState own = reducer_ ? reducer_->state() : left_->reducer;
  states[0].buckets = own.buckets;
  states[0].rebuilt = own.rebuilt;
  ReductionState out{.values = to_json(states, names_of(trainable_parameters()), config_), .tensors = {}};
  if (hook_state_->powersgd && config_.powersgd.save_state) {
    out.values[kPowerSgdValues] = hook_state_->powersgd->values();
    out.tensors = hook_state_->powersgd->save(group_);
  }
  return out;
}

std::string DistributedDataParallelBase::drop_incompatible_state(ReductionState& saved, int world_size) const {
  const bool had_powersgd = saved.values.is_object() && saved.values.contains(kPowerSgdValues);
  std::string why;
  try {
    if (!reducer_ || world_size != group_.world_size()) {
      saved.values = nullptr;
      why = fmt::format("the checkpoint is of {} ranks, this run has {}", world_size, group_.world_size());
    } else if (!reducer_state_from_json(saved.values, names_of(trainable_parameters()), config_, 0, world_size)) {
      saved.values = nullptr;
      why = had_powersgd ? "the gradient buckets have changed" : "the checkpoint has no PowerSGD state";
    } else if (!had_powersgd) {
      why = "the checkpoint has no PowerSGD state";
    } else if (!hook_state_->powersgd) {
      why = "comm_hook has been changed";
    } else {
      why = hook_state_->powersgd->incompatibility(saved.values[kPowerSgdValues], saved.tensors, world_size);
    }
  } catch (const nlohmann::json::exception& error) {
    saved.values = nullptr;
    why = fmt::format("the checkpoint's PowerSGD state is invalid: {}", error.what());
  }
  if (!why.empty() && saved.values.is_object()) saved.values.erase(kPowerSgdValues);
  return hook_state_->powersgd || had_powersgd ? why : "";
}

void DistributedDataParallelBase::load_reduction_state(const ReductionState& saved) {
  const std::optional<ReducerState> state = reducer_state_from_json(saved.values, names_of(trainable_parameters()),
                                                                    config_, group_.rank(), group_.world_size());
  if (!state) return;
  build_reducer(&*state);
  left_ = std::make_unique<LeftState>(group_.world_size(), *state);
  delayed_reduction_queued_ = !state->uses.empty();
  if (!hook_state_->powersgd || !saved.values.contains(kPowerSgdValues)) return;
  std::vector<at::TensorOptions> like;
  const std::vector<NamedTensor> parameters = trainable_parameters();
  for (const std::vector<size_t>& bucket : state->buckets)
    like.push_back(parameters.at(bucket.at(0)).tensor.options().requires_grad(false));
  hook_state_->powersgd->load(saved.values[kPowerSgdValues], saved.tensors, group_, like);
}

}  // namespace oarlock
