#include "ddp/reducer.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <set>

namespace oarlock {
namespace {

using Json = nlohmann::json;

Json settings_of(const DdpOptions& config) {
  return {{"bucket_cap_mb", config.bucket_cap_mb},
          {"find_unused_parameters", config.find_unused_parameters},
          {"static_graph", config.static_graph}};
}

// Returns nullopt unless the buckets contain each name exactly once.
std::optional<std::vector<std::vector<size_t>>> buckets_from_json(const Json& values,
                                                                  const std::vector<std::string>& names) {
  std::map<std::string, size_t> left;
  for (size_t i = 0; i < names.size(); ++i) left[names[i]] = i;
  std::vector<std::vector<size_t>> out;
  for (const Json& bucket : values.at("buckets")) {
    out.emplace_back();
    for (const Json& name : bucket) {
      const auto found = left.find(name.get<std::string>());
      if (found == left.end()) return std::nullopt;
      out.back().push_back(found->second);
      left.erase(found);
    }
  }
  if (!left.empty()) return std::nullopt;
  return out;
}

}  // namespace

Json to_json(const std::vector<ReducerState>& states, const std::vector<std::string>& names, const DdpOptions& config) {
  Json buckets = Json::array();
  for (const std::vector<size_t>& bucket : states.at(0).buckets) {
    buckets.push_back(Json::array());
    for (const size_t index : bucket) buckets.back().push_back(names.at(index));
  }
  Json ranks = Json::array();
  for (const ReducerState& rank : states) ranks.push_back({{"uses", rank.uses}, {"used", rank.used}});
  return {{"settings", settings_of(config)},
          {"parameters", names},
          {"buckets", buckets},
          {"rebuilt", states[0].rebuilt},
          {"ranks", ranks}};
}

std::optional<ReducerState> reducer_state_from_json(const Json& values, const std::vector<std::string>& names,
                                                    const DdpOptions& config, int rank, int world_size) {
  if (values.is_null() || values.at("ranks").size() != static_cast<size_t>(world_size)) return std::nullopt;
  if (values.at("settings") != settings_of(config) || values.at("parameters") != Json(names)) return std::nullopt;
  std::optional<std::vector<std::vector<size_t>>> buckets = buckets_from_json(values, names);
  if (!buckets) return std::nullopt;
  const Json& own = values["ranks"].at(static_cast<size_t>(rank));
  ReducerState out{.buckets = std::move(*buckets),
                   .rebuilt = values.at("rebuilt").get<bool>(),
                   .ready_order = {},
                   .uses = own.at("uses").get<std::vector<int64_t>>(),
                   .used = own.at("used").get<std::vector<int64_t>>()};
  const auto fits = [&](const std::vector<int64_t>& list) { return list.empty() || list.size() == names.size(); };
  if (!fits(out.uses) || out.used.size() != out.uses.size()) return std::nullopt;
  return out;
}

namespace {

constexpr int64_t kNoGradient = -1;

}  // namespace

void ResumableReducer::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  // The reducer stores the time at which each parameter is ready there, relative to this call.
  std::ranges::fill(backward_stats_, kNoGradient);
  c10d::Reducer::prepare_for_backward(outputs);
}

std::vector<at::Tensor> ResumableReducer::parameters_without_gradient() const {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < backward_stats_.size(); ++i)
    if (backward_stats_[i] == kNoGradient) out.push_back(params_[i]);
  return out;
}

ReducerState ResumableReducer::state() const {
  ReducerState out;
  for (const Bucket& bucket : buckets_) out.buckets.push_back(bucket.variable_indices);
  out.rebuilt = has_rebuilt_bucket_;
  out.ready_order = rebuilt_param_indices_;
  if (!static_graph_ || num_bwd_calls_ == 0) return out;
  for (size_t i = 0; i < params_.size(); ++i) {
    out.uses.push_back(numGradHooksTriggeredMap_.at(i));
    out.used.push_back(local_used_map_[static_cast<int64_t>(i)].item<int64_t>());
  }
  return out;
}

void ResumableReducer::load_state(const ReducerState& state) {
  has_rebuilt_bucket_ = state.rebuilt;
  for (const int64_t index : state.ready_order) {
    rebuilt_params_.push_back(params_.at(static_cast<size_t>(index)));
    rebuilt_param_indices_.push_back(index);
  }
  if (state.uses.empty()) return;
  for (size_t i = 0; i < params_.size(); ++i) {
    numGradHooksTriggeredMap_[i] = static_cast<int>(state.uses.at(i));
    local_used_map_[static_cast<int64_t>(i)] = state.used.at(i);
    if (state.uses[i] == 0) unused_parameters_.push_back(i);
  }
  local_used_map_reduced_ = true;
  num_bwd_calls_ = 1;  // the first pass, which determines the static graph, has happened
}

std::vector<bool> expect_sparse_gradients(const torch::nn::Module& module, const std::vector<NamedTensor>& parameters) {
  std::set<const at::TensorImpl*> sparse;
  for (const auto& child : module.modules()) {
    if (const auto* embedding = child->as<torch::nn::EmbeddingImpl>(); embedding && embedding->options.sparse())
      sparse.insert(embedding->weight.unsafeGetTensorImpl());
    if (const auto* bag = child->as<torch::nn::EmbeddingBagImpl>(); bag && bag->options.sparse())
      sparse.insert(bag->weight.unsafeGetTensorImpl());
  }
  std::vector<bool> out;
  for (const NamedTensor& parameter : parameters)
    out.push_back(sparse.contains(parameter.tensor.unsafeGetTensorImpl()));
  return out;
}

std::shared_ptr<ResumableReducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                               const std::vector<bool>& sparse,
                                               const std::vector<std::vector<size_t>>& bucket_indices,
                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               const std::unordered_map<size_t, std::string>& parameter_names,
                                               const ReducerOptions& options) {
  // LibTorch 2.11: twelve arguments.
  return std::make_shared<ResumableReducer>(parameters, bucket_indices, group, sparse, options.bucket_bytes_cap,
                                            options.find_unused_parameters, options.gradient_as_bucket_view,
                                            parameter_names, options.first_bucket_bytes_cap,
                                            /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                            /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

}  // namespace oarlock
