#include "trainer/engine/evaluator.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <stdexcept>

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

// What this rank's batches gave.
struct Shard {
  std::vector<MetricSums> sums;  // by batch
  RowCollector rows;
};

// Nothing: interrupted.
std::optional<Shard> evaluate_shard(const EvalPass& pass, torch::nn::Module& module, const RankGroup& group,
                                    const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  const TrainingModeGuard evaluation_mode(module);
  LoaderOptions loading = options.loader;
  loading.batch_size = pass.batch_size;
  Loader loader(*pass.data, evaluation_indices(pass.data->size(), pass.batch_size, group.rank(), group.world_size()),
                loading);
  const auto feed = make_batch_feed([&] { return loader.next(); }, group.device(), options.feed);
  std::optional<StopPace> pace;
  if (options.stop != nullptr) pace.emplace(*options.stop);
  // All ranks count the same rounds, so that they agree on a stop at the same one; in the last round a rank may have no
  // batch. A rank that has received a signal leaves out its batches until then, so every pass ends with an agreement.
  const int64_t batches = batch_count(pass.data->size(), pass.batch_size, false);
  const int64_t rounds = (batches + group.world_size() - 1) / group.world_size();
  Shard out;
  for (int64_t round = 0; round < rounds; ++round) {
    const bool leave_out = pace && options.stop->requested();
    const std::optional<Batch> batch = leave_out ? std::nullopt : feed->next();
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

// What an evaluation consists of, as rank 0's first batch says: a rank may have no batch at all, and rank 0 has one
// where any has.
struct Contents {
  std::vector<std::string> sums;
  RowLayout rows;
};

Contents agree_on_contents(const Shard& shard, const RankGroup& group) {
  nlohmann::json own = {{"sums", nlohmann::json::array()}, {"rows", shard.rows.layout()}};
  if (!shard.sums.empty()) {
    for (const auto& [name, value] : shard.sums.front()) own["sums"].push_back(name);
  }
  const nlohmann::json agreed = nlohmann::json::parse(group.broadcast(own.dump()));
  return {agreed["sums"], agreed["rows"]};
}

// The sums of all batches of all ranks, added in the order of the batches.
MetricSums total_sums(const std::vector<MetricSums>& shard, const std::vector<std::string>& names, size_t batches,
                      const RankGroup& group) {
  // One row per batch of the whole: adding zeros changes no bit, so every rank gets the rows as they were computed.
  std::vector<double> rows(batches * names.size(), 0.0);
  for (size_t i = 0; i < shard.size(); ++i) {
    const size_t row = i * static_cast<size_t>(group.world_size()) + static_cast<size_t>(group.rank());
    if (shard[i].size() != names.size())
      throw std::runtime_error("the task's eval_step gave different names for different batches");
    for (size_t j = 0; j < names.size(); ++j) {
      const auto found = shard[i].find(names[j]);
      if (found == shard[i].end())
        throw std::runtime_error(fmt::format("the task's eval_step gave no '{}' for a batch", names[j]));
      rows[row * names.size() + j] = found->second;
    }
  }
  group.sum(rows);
  MetricSums totals;
  for (size_t row = 0; row < batches; ++row) {
    for (size_t j = 0; j < names.size(); ++j) totals[names[j]] += rows[row * names.size() + j];
  }
  return totals;
}

// With all their bits, infinities and NaN included.
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

Result<Evaluation> evaluate(const EvalPass& pass, torch::nn::Module& module, const RankGroup& group,
                            const EvaluateOptions& options, int64_t steps) {
  const std::optional<Shard> complete = evaluate_shard(pass, module, group, options);
  if (!complete) return Evaluation{.metrics = {}, .rows = {}, .interrupted = true};
  const Shard& shard = *complete;
  const Contents contents = agree_on_contents(shard, group);
  if (!shard.sums.empty() && shard.rows.layout() != contents.rows)
    throw std::runtime_error("the task's eval_step gave different rows on different ranks");
  const auto batches = static_cast<size_t>(batch_count(pass.data->size(), pass.batch_size, false));
  const MetricSums totals = total_sums(shard.sums, contents.sums, batches, group);
  Evaluation out;
  out.rows = gather_rows(shard.rows.rows(), contents.rows, group);
  Result<std::string> metrics;
  if (group.rank() == 0) metrics = pass.finish(totals, out.rows, steps).map(packed);
  metrics = group.broadcast(metrics);
  if (!metrics) return tl::make_unexpected(metrics.error());
  out.metrics = unpacked(*metrics);
  return out;
}

}  // namespace oarlock
