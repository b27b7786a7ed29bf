#include "trainer/engine/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/status_macros.h"
#include "trainer/engine/eval_rows.h"

namespace oarlock {
namespace {

constexpr char kCount[] = "count";

class TrainingModeGuard {
 public:
  explicit TrainingModeGuard(torch::nn::Module& module) : module_(module) { module_.eval(); }
  ~TrainingModeGuard() { module_.train(); }
  TrainingModeGuard(const TrainingModeGuard&) = delete;
  TrainingModeGuard& operator=(const TrainingModeGuard&) = delete;

 private:
  torch::nn::Module& module_;
};

// The results of this rank's batches.
struct Shard {
  std::vector<MetricSums> sums;  // by batch
  RowCollector rows;
};

// Returns nothing if it was interrupted.
std::optional<Shard> evaluate_shard(const EvalPass& pass, torch::nn::Module& module, const ProcessGroup& group,
                                    const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  const TrainingModeGuard evaluation_mode(module);
  DataLoaderOptions loading = options.loader;
  loading.batch_size = pass.batch_size;
  DataLoader loader(*pass.data,
                    evaluation_indices(pass.data->size(), pass.batch_size, group.rank(), group.world_size()), loading);
  const auto feed = make_device_prefetcher([&] { return loader.next(); }, group.device(), options.feed);
  std::optional<StopPace> pace;
  if (options.stop != nullptr) pace.emplace(*options.stop);
  // All ranks count the same rounds, so that they agree on a stop in the same round; in the last round a rank may have
  // no batch. A rank that has received a signal skips its batches until then, so every pass ends with an agreement.
  const int64_t batches = batch_count(pass.data->size(), pass.batch_size, false);
  const int64_t rounds = (batches + group.world_size() - 1) / group.world_size();
  Shard out;
  for (int64_t round = 0; round < rounds; ++round) {
    const bool skip_batch = pace && options.stop->requested();
    const std::optional<Batch> batch = skip_batch ? std::nullopt : feed->next();
    if (batch) {
      EvalOutput given = pass.step(module, *batch);
      given.sums[kCount] = static_cast<double>(batch->size());
      out.sums.push_back(std::move(given.sums));
      out.rows.add(batch->ids, given.rows);
    }
    const bool last = round + 1 == rounds;
    if (pace && (last ? options.stop->agree() : pace->after_unit())) return std::nullopt;
  }
  return out;
}

// The names of an evaluation's results, from rank 0's first batch: a rank may have no batch, but rank 0 has one if any
// rank has.
struct Contents {
  std::vector<std::string> sums;
  RowLayout rows;
};

Contents agree_on_contents(const Shard& shard, const ProcessGroup& group) {
  nlohmann::json own = {{"sums", nlohmann::json::array()}, {"rows", shard.rows.layout()}};
  if (!shard.sums.empty()) {
    for (const auto& [name, value] : shard.sums.front()) own["sums"].push_back(name);
  }
  const nlohmann::json agreed = nlohmann::json::parse(group.broadcast(own.dump()));
  return {agreed["sums"], agreed["rows"]};
}

// The sums of all batches of all ranks, added in the order of the batches.
MetricSums total_sums(const std::vector<MetricSums>& shard, const std::vector<std::string>& names, size_t batches,
                      const ProcessGroup& group) {
  // One row per batch of all ranks. Adding zeros changes no bit, so every rank receives the rows as they were computed.
  std::vector<double> rows(batches * names.size(), 0.0);
  for (size_t i = 0; i < shard.size(); ++i) {
    const size_t row = i * static_cast<size_t>(group.world_size()) + static_cast<size_t>(group.rank());
    if (shard[i].size() != names.size())
      throw std::runtime_error("the task's eval_step returned different names for different batches");
    for (size_t j = 0; j < names.size(); ++j) {
      const auto found = shard[i].find(names[j]);
      if (found == shard[i].end())
        throw std::runtime_error(fmt::format("the task's eval_step returned no '{}' for a batch", names[j]));
      rows[row * names.size() + j] = found->second;
    }
  }
  group.all_reduce_sum(rows);
  MetricSums totals;
  for (size_t row = 0; row < batches; ++row) {
    for (size_t j = 0; j < names.size(); ++j) totals[names[j]] += rows[row * names.size() + j];
  }
  return totals;
}

// Preserves all bits, including those of infinities and NaN.
std::string packed(const Metrics& metrics) {
  nlohmann::json bits = nlohmann::json::object();
  for (const auto& [name, value] : metrics) bits[name] = std::bit_cast<uint64_t>(value);
  return bits.dump();
}

Metrics unpacked(const std::string& text) {
  const nlohmann::json bits = nlohmann::json::parse(text);
  Metrics out;
  for (const auto& [name, value] : bits.items()) out[name] = std::bit_cast<double>(value.get<uint64_t>());
  return out;
}

}  // namespace

std::vector<int64_t> evaluation_indices(int64_t size, int64_t batch_size, int rank, int world_size) {
  std::vector<int64_t> out;
  for (int64_t begin = rank * batch_size; begin < size; begin += world_size * batch_size) {
    for (int64_t i = begin; i < std::min(begin + batch_size, size); ++i) out.push_back(i);
  }
  return out;
}

EvalPass evaluation_of(Task& task) {
  return {.name = "evaluation",
          .every_steps = 0,
          .batch_size = 1,
          .data = &task.eval_data(),
          .step = [&task](torch::nn::Module& model, const Batch& batch) { return task.eval_step(model, batch); },
          .finish = [&task](const MetricSums& totals, const EvalRows& rows, int64_t) -> Result<Metrics> {
            return task.metrics(totals, rows);
          }};
}

Result<Evaluation> evaluate(const EvalPass& pass, torch::nn::Module& module, const ProcessGroup& group,
                            const EvaluateOptions& options, int64_t steps) {
  const std::optional<Shard> complete = evaluate_shard(pass, module, group, options);
  if (!complete) return Evaluation{.metrics = {}, .rows = {}, .interrupted = true};
  const Shard& shard = *complete;
  const Contents contents = agree_on_contents(shard, group);
  if (!shard.sums.empty() && shard.rows.layout() != contents.rows)
    throw std::runtime_error("the task's eval_step returned different rows on different ranks");
  const auto batches = static_cast<size_t>(batch_count(pass.data->size(), pass.batch_size, false));
  const MetricSums totals = total_sums(shard.sums, contents.sums, batches, group);
  Evaluation out;
  out.rows = gather_rows(shard.rows.rows(), contents.rows, group);
  Result<std::string> metrics;
  if (group.rank() == 0) metrics = pass.finish(totals, out.rows, steps).map(packed);
  ASSIGN_OR_RETURN(const std::string shared, group.broadcast(metrics));
  out.metrics = unpacked(shared);
  return out;
}

}  // namespace oarlock
