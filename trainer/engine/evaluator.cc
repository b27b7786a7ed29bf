#include "trainer/engine/evaluator.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <stdexcept>

#include "trainer/data/loader.h"
#include "trainer/device/transfer.h"

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

std::vector<MetricSums> evaluate_shard(Task& task, torch::nn::Module& module, const RankGroup& group,
                                       const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  const TrainingModeGuard evaluation_mode(module);
  const Dataset& data = task.eval_data();
  Loader loader(data, evaluation_indices(data.size(), options.batch_size, group.rank(), group.world_size()),
                {.batch_size = options.batch_size,
                 .drop_last = false,
                 .threads = options.loader_threads,
                 .prefetch = options.loader_prefetch,
                 .seed = options.seed});
  std::vector<MetricSums> out;
  while (const std::optional<Batch> batch = loader.next()) {
    out.push_back(task.eval_step(module, to_device(*batch, group.device())));
    out.back()[kCount] = static_cast<double>(batch->size());
  }
  return out;
}

// The names in rank 0's first batch: a rank may have no batch at all.
std::vector<std::string> agree_on_names(const std::vector<MetricSums>& shard, const RankGroup& group) {
  std::string joined;
  if (!shard.empty()) {
    for (const auto& [name, value] : shard.front()) joined += name + "\n";
  }
  joined = group.broadcast(joined);
  std::vector<std::string> names;
  for (size_t begin = 0, end = 0; (end = joined.find('\n', begin)) != std::string::npos; begin = end + 1) {
    names.push_back(joined.substr(begin, end - begin));
  }
  return names;
}

}  // namespace

std::vector<int64_t> evaluation_indices(int64_t size, int64_t batch_size, int rank, int world_size) {
  std::vector<int64_t> out;
  for (int64_t begin = rank * batch_size; begin < size; begin += world_size * batch_size) {
    for (int64_t i = begin; i < std::min(begin + batch_size, size); ++i) out.push_back(i);
  }
  return out;
}

Metrics evaluate(Task& task, torch::nn::Module& module, const RankGroup& group, const EvaluateOptions& options) {
  const std::vector<MetricSums> shard = evaluate_shard(task, module, group, options);
  const std::vector<std::string> names = agree_on_names(shard, group);
  // One row per batch of the whole: adding zeros changes no bit, so every rank gets the rows as they were computed.
  const auto batches = static_cast<size_t>(batch_count(task.eval_data().size(), options.batch_size, false));
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
  return task.metrics(totals);
}

}  // namespace oarlock
