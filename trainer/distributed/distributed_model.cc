#include "trainer/distributed/distributed_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include <algorithm>
#include <limits>
#include <sstream>

#include "trainer/distributed/comm_hook.h"
#include "trainer/distributed/failure.h"
#include "trainer/distributed/powersgd_state.h"
#include "trainer/distributed/reducer_compat.h"
#include "trainer/distributed/reduction_state.h"
#include "trainer/distributed/resumable_reducer.h"
#include "trainer/distributed/shared_memory_average.h"
#include "trainer/distributed/sync_batch_norm.h"

namespace oarlock {
namespace {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  out.reserve(named.size());
  for (const NamedTensor& item : named) out.push_back(item.tensor.detach());
  return out;
}

int64_t cap(const DdpConfig& config) { return static_cast<int64_t>(config.bucket_cap_mb * 1024 * 1024); }
int64_t first_cap(const DdpConfig& config) { return std::min<int64_t>(cap(config), c10d::kDefaultFirstBucketBytes); }

std::vector<std::string> names_of(const std::vector<NamedTensor>& named) {
  std::vector<std::string> out;
  out.reserve(named.size());
  for (const NamedTensor& item : named) out.push_back(item.name);
  return out;
}

// One line per tensor with what must be equal on all ranks.
std::string describe(const std::vector<NamedTensor>& tensors, const char* kind) {
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

DistributedModel::DistributedModel(std::shared_ptr<torch::nn::Module> module, const RankGroup& group,
                                   const DdpConfig& config, std::function<void()> waiting)
    : module_(std::move(module)),
      group_(group),
      config_(config),
      waiting_(std::move(waiting)),
      parameters_(unique_parameters(*module_)) {}

DistributedModel::~DistributedModel() = default;

Result<std::unique_ptr<DistributedModel>> DistributedModel::create(std::shared_ptr<torch::nn::Module> module,
                                                                   const RankGroup& group, const DdpConfig& config,
                                                                   std::function<void()> waiting) {
  if (config.sync_batch_norm) {
    if (const Result<void> converted = convert_sync_batch_norm(*module, group); !converted)
      return tl::make_unexpected(converted.error());
  }
  std::unique_ptr<DistributedModel> model(new DistributedModel(std::move(module), group, config, std::move(waiting)));
  if (group.world_size() == 1) return model;
  if (const Result<void> same = model->verify_against_rank_0(); !same) return tl::make_unexpected(same.error());
  model->broadcast_state();
  if (config.shared_memory && config.comm_hook == CommHook::kNone && !group.device().is_cuda())
    model->averaging_ = SharedMemoryAverage::open(group);
  model->build_reducer();
  return model;
}

Result<void> DistributedModel::verify_against_rank_0() const {
  const std::string own = describe(parameters_, "parameter") + describe(buffers(), "buffer");
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

std::vector<NamedTensor> DistributedModel::trained() const {
  std::vector<NamedTensor> out;
  for (const NamedTensor& parameter : parameters_)
    if (parameter.tensor.requires_grad()) out.push_back(parameter);
  return out;
}

std::vector<std::vector<size_t>> DistributedModel::first_buckets(const std::vector<at::Tensor>& trained) const {
  // Where buckets are rebuilt in the order in which gradients become ready, after the first backward, one bucket per
  // type is enough until then.
  const bool rebuilt_later = config_.static_graph || !config_.find_unused_parameters;
  const std::vector<size_t> limits =
      rebuilt_later ? std::vector<size_t>{std::numeric_limits<int64_t>::max()}
                    : std::vector<size_t>{static_cast<size_t>(first_cap(config_)), static_cast<size_t>(cap(config_))};
  auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(trained, limits, std::vector<bool>(trained.size(), false)));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

// `before`: to go on as that one. A reducer that is there goes first, with its buckets' memory.
void DistributedModel::build_reducer(const LearnedReduction* before) {
  logger_.reset();
  reducer_.reset();
  std::vector<at::Tensor> trainable;
  std::unordered_map<size_t, std::string> names;
  traffic_.bytes = 0;
  for (const NamedTensor& parameter : trained()) {
    names[trainable.size()] = parameter.name;
    trainable.push_back(parameter.tensor);
    traffic_.bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  if (trainable.empty()) return;
  const auto buckets = before != nullptr ? before->buckets : first_buckets(trainable);
  reducer_ =
      make_reducer(trainable, buckets, group_.c10d(), names,
                   {cap(config_), first_cap(config_), config_.find_unused_parameters, config_.gradient_as_bucket_view});
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
  if (before != nullptr) reducer_->go_on(*before);
  if (config_.comm_hook == CommHook::kPowerSgd && !powersgd_)
    powersgd_ = std::make_shared<PowerSgdState>(config_.powersgd);
  if (powersgd_ && may_skip_steps_) powersgd_->allow_skipped_steps();
  if (auto hook = make_comm_hook(config_, {group_, traffic_.bytes, waiting_, powersgd_, averaging_}))
    reducer_->register_comm_hook(std::move(hook));
}

// Once, after the first step, or the second one of a static graph.
void DistributedModel::rebuild_buckets() {
  if (!reducer_->rebuild_buckets()) return;
  traffic_.buckets = static_cast<int64_t>(logger_->get_bucket_sizes().size());
  if (powersgd_) powersgd_->buckets_changed();
}

at::Tensor DistributedModel::forward(const std::function<at::Tensor()>& compute_loss) {
  if (!reducer_) return compute_loss();
  // The pass from which a static graph is learned must be one of its own, or the reducer would count the uses of all
  // micro-batches together. It reduces even under no_sync(): reducing what is equal already changes nothing.
  const bool learns = config_.static_graph && !delayed_reduction_queued_;
  const bool synchronize = synchronize_ || learns;
  if (synchronize) {
    logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  rebuild_buckets();
  if (buffers_are_stale_ && config_.broadcast_buffers) broadcast_buffers();
  at::Tensor loss = compute_loss();
  buffers_are_stale_ = synchronize;
  if (!synchronize) return loss;
  // The graph is walked from the loss: what the loss does not need gets no gradient.
  const bool find_unused = config_.find_unused_parameters && !config_.static_graph;
  reducer_->prepare_for_backward(find_unused ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
  if (learns && loss.requires_grad()) {
    // What distributed.py's _DDPSink does: the first pass only learns the graph, and reduces when it is over.
    delayed_reduction_queued_ = true;
    loss.register_hook([this](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        gradients_are_done();
        reducer_->delay_all_reduce();
      });
    });
  }
  return loss;
}

void DistributedModel::backward(const at::Tensor& loss) {
  if (reducer_ && synchronize_) {
    if (averaging_) averaging_->backward_begins();
    // Queued before the reducer's own callback, which waits for the buckets.
    loss.register_hook([this](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] { gradients_are_done(); });
    });
  }
  loss.backward();
  if (reducer_ && synchronize_) check_all_were_reduced();
}

void DistributedModel::gradients_are_done() {
  if (waiting_) waiting_();
  if (averaging_) averaging_->backward_ends();
}

// Otherwise this rank would find out in the next step, and the others wait for it in vain.
void DistributedModel::check_all_were_reduced() const {
  try {
    reducer_->check_finalized();
  } catch (const c10::Error&) {
    std::vector<std::string> unused;
    for (const NamedTensor& parameter : parameters_) {
      if (parameter.tensor.requires_grad() && !parameter.tensor.grad().defined())
        unused.push_back("'" + parameter.name + "'");
    }
    throw Failure(
        {ExitCode::kConfig,
         fmt::format("the loss of rank {} does not depend on {}, so gradients were not averaged; set "
                     "ddp.find_unused_parameters: true, or freeze what is never used",
                     group_.rank(), unused.empty() ? "some parameters" : fmt::format("{}", fmt::join(unused, ", ")))});
  }
}

void DistributedModel::broadcast_state() {
  const at::NoGradGuard no_grad;
  group_.broadcast(tensors_of(parameters_));
  group_.broadcast(tensors_of(buffers()));
}

void DistributedModel::broadcast_buffers() {
  const at::NoGradGuard no_grad;
  group_.broadcast(tensors_of(buffers()));
}

// Undefined rather than zero: the reducer then writes the mean into its bucket without reading the old gradient.
void DistributedModel::clear_gradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad() = at::Tensor();
}

void DistributedModel::allow_skipped_steps() {
  may_skip_steps_ = true;
  if (powersgd_) powersgd_->allow_skipped_steps();
}

void DistributedModel::step_done(const at::Tensor& skipped) {
  if (powersgd_) powersgd_->settle(skipped);
}

// ---- what a checkpoint holds of the averaging ----------------------------------------------------------------------

void DistributedModel::settle_reduction() {
  if (!reducer_) return;
  rebuild_buckets();  // as the next forward would
  if (!config_.static_graph || !delayed_reduction_queued_ || !learned_.empty()) return;
  const LearnedReduction own = reducer_->learned();
  for (const std::string& text : group_.gather(nlohmann::json{own.uses, own.used}.dump())) {
    const nlohmann::json lists = nlohmann::json::parse(text);
    learned_.push_back({.buckets = {}, .rebuilt = false, .uses = lists[0], .used = lists[1]});
  }
}

bool DistributedModel::reduction_needs_all_ranks() const {
  return powersgd_ && config_.powersgd.save_state && !powersgd_->errors.empty();
}

ReductionState DistributedModel::reduction_state() const {
  if (!reducer_) return {};
  std::vector<LearnedReduction> learned = learned_;
  learned.resize(static_cast<size_t>(group_.world_size()));
  const LearnedReduction own = reducer_->learned();
  learned[0].buckets = own.buckets;
  learned[0].rebuilt = own.rebuilt;
  ReductionState out{.values = reduction_values(learned, names_of(trained()), config_), .tensors = {}};
  if (powersgd_ && config_.powersgd.save_state) {
    out.values[kPowerSgdValues] = powersgd_->values();
    out.tensors = powersgd_->save(group_);
  }
  return out;
}

std::string DistributedModel::keep_what_fits(ReductionState& saved, int world_size) const {
  const bool had_memory = saved.values.is_object() && saved.values.contains(kPowerSgdValues);
  std::string why;
  try {
    if (!reducer_ || world_size != group_.world_size()) {
      saved.values = nullptr;
      why = fmt::format("{} ranks trained, now there are {}", world_size, group_.world_size());
    } else if (!learned_from(saved.values, names_of(trained()), config_, 0, world_size)) {
      saved.values = nullptr;
      why = had_memory ? "gradients are put into other buckets now" : "the checkpoint has nothing of it";
    } else if (!had_memory) {
      why = "the checkpoint has nothing of it";
    } else if (!powersgd_) {
      why = "ddp.comm_hook has been changed";
    } else {
      why = powersgd_->misfit(saved.values[kPowerSgdValues], saved.tensors, world_size);
    }
  } catch (const nlohmann::json::exception& error) {
    saved.values = nullptr;
    why = fmt::format("the checkpoint's state of it is not what this version writes: {}", error.what());
  }
  if (!why.empty() && saved.values.is_object()) saved.values.erase(kPowerSgdValues);
  return powersgd_ || had_memory ? why : "";
}

void DistributedModel::restore_reduction(const ReductionState& saved) {
  const std::optional<LearnedReduction> before =
      learned_from(saved.values, names_of(trained()), config_, group_.rank(), group_.world_size());
  if (!before) return;
  build_reducer(&*before);
  delayed_reduction_queued_ = !before->uses.empty();
  if (!powersgd_ || !saved.values.contains(kPowerSgdValues)) return;
  std::vector<at::TensorOptions> like;
  const std::vector<NamedTensor> parameters = trained();
  for (const std::vector<size_t>& bucket : before->buckets)
    like.push_back(parameters.at(bucket.at(0)).tensor.options().requires_grad(false));
  powersgd_->restore(saved.values[kPowerSgdValues], saved.tensors, group_, like);
}

}  // namespace oarlock
