#include "trainer/engine/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "common/csv.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/work_progress.h"
#include "trainer/engine/task_call.h"

namespace oarlock {
namespace {

int64_t width_of(at::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

std::vector<int64_t> with_rows(int64_t rows, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out = {rows};
  out.insert(out.end(), sizes.begin(), sizes.end());
  return out;
}

int64_t numbers_per_row(const RowLayout& layout) {
  int64_t out = 1;  // the id
  for (const auto& [name, sizes] : layout) out += width_of(sizes);
  return out;
}

// One row of 64-bit words per sample: the id, then the bits of each column's doubles.
at::Tensor packed(const EvalRows& rows, const RowLayout& layout, int64_t capacity) {
  const int64_t words = numbers_per_row(layout);
  at::Tensor out = at::zeros({capacity, words}, at::TensorOptions().dtype(at::kLong));
  auto* to = out.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < rows.ids.size(); ++i) to[static_cast<int64_t>(i) * words] = rows.ids[i];
  int64_t column = 1;
  for (const auto& [name, sizes] : layout) {
    const int64_t width = width_of(sizes);
    if (!rows.ids.empty()) {
      const auto* from = rows.columns.at(name).const_data_ptr<double>();
      for (int64_t i = 0; i < static_cast<int64_t>(rows.ids.size()); ++i)
        for (int64_t j = 0; j < width; ++j) to[i * words + column + j] = std::bit_cast<int64_t>(from[i * width + j]);
    }
    column += width;
  }
  return out;
}

EvalRows unpacked(const at::Tensor& words, const RowLayout& layout) {
  const int64_t count = words.size(0);
  const int64_t stride = words.size(1);
  const auto* from = words.const_data_ptr<int64_t>();
  EvalRows out;
  for (int64_t i = 0; i < count; ++i) out.ids.push_back(from[i * stride]);
  int64_t column = 1;
  for (const auto& [name, sizes] : layout) {
    const int64_t width = width_of(sizes);
    at::Tensor values = at::empty(with_rows(count, sizes), at::TensorOptions().dtype(at::kDouble));
    auto* to = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < width; ++j) to[i * width + j] = std::bit_cast<double>(from[i * stride + column + j]);
    out.columns.emplace(name, std::move(values));
    column += width;
  }
  return out;
}

}  // namespace

void RowCollector::add(const std::vector<int64_t>& ids, const std::map<std::string, at::Tensor>& rows) {
  if (std::exchange(empty_, false)) {
    for (const auto& [name, values] : rows) {
      if (values.dim() == 0) throw std::runtime_error(fmt::format("eval_step: the rows '{}' have no dimension", name));
      layout_.emplace(name, values.sizes().slice(1).vec());
    }
  }
  if (rows.size() != layout_.size())
    throw std::runtime_error("eval_step returned different rows for different batches");
  for (const auto& [name, sizes] : layout_) {
    const auto found = rows.find(name);
    const auto expected = with_rows(static_cast<int64_t>(ids.size()), sizes);
    if (found == rows.end() || found->second.sizes() != at::IntArrayRef(expected)) {
      throw std::runtime_error(
          fmt::format("eval_step: every batch must return rows '{}', one per sample, here {}, of the same shape", name,
                      ids.size()));
    }
    parts_[name].push_back(found->second.detach().to(at::kCPU, at::kDouble));
  }
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

EvalRows RowCollector::rows() const {
  EvalRows out{.ids = ids_, .columns = {}};
  for (const auto& [name, parts] : parts_) out.columns.emplace(name, at::cat(parts));
  return out;
}

EvalRows sorted_unique(const EvalRows& rows) {
  std::vector<int64_t> order(rows.ids.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id = [&](int64_t row) { return rows.ids[static_cast<size_t>(row)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id(a) < id(b); });
  order.erase(std::unique(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id(a) == id(b); }),
              order.end());
  const at::Tensor index = at::empty({static_cast<int64_t>(order.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(order.begin(), order.end(), index.mutable_data_ptr<int64_t>());
  EvalRows out;
  for (const int64_t row : order) out.ids.push_back(id(row));
  for (const auto& [name, values] : rows.columns) out.columns.emplace(name, values.index_select(0, index));
  return out;
}

EvalRows gather_rows(const EvalRows& mine, const RowLayout& layout, const ProcessGroup& group) {
  if (layout.empty()) return {};
  if (group.world_size() == 1) return sorted_unique(mine);
  const std::vector<int64_t> counts = group.all_gather(static_cast<int64_t>(mine.ids.size()));
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return {};
  // gather() requires the same size on every rank.
  std::vector<at::Tensor> input = {packed(mine, layout, most).to(group.device())};
  std::vector<std::vector<at::Tensor>> output;
  if (group.rank() == 0) {
    output.emplace_back();
    for (size_t rank = 0; rank < counts.size(); ++rank) output[0].push_back(at::empty_like(input[0]));
  }
  c10d::GatherOptions options;
  options.rootRank = 0;
  group.c10d()->gather(output, input, options)->wait();
  if (group.rank() != 0) return {};
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    parts.push_back(output[0][rank].to(at::kCPU).narrow(0, 0, counts[rank]));
  return sorted_unique(unpacked(at::cat(parts), layout));
}

Result<void> write_rows_csv(const std::filesystem::path& path, const EvalRows& rows) {
  std::string text = "id";
  for (const auto& [name, values] : rows.columns) {
    const int64_t width = width_of(values.sizes().slice(1));
    if (values.dim() == 1) text += "," + csv_field(name);
    for (int64_t j = 0; values.dim() > 1 && j < width; ++j) text += "," + csv_field(fmt::format("{}_{}", name, j));
  }
  text += "\n";
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    text += std::to_string(rows.ids[i]);
    for (const auto& [name, values] : rows.columns) {
      const int64_t width = width_of(values.sizes().slice(1));
      const auto* row = values.const_data_ptr<double>() + static_cast<int64_t>(i) * width;
      for (int64_t j = 0; j < width; ++j) text += fmt::format(",{}", row[j]);
    }
    text += "\n";
  }
  return write_file_atomically(path, text);
}

Result<void> write_eval_rows(const std::filesystem::path& path, EvalRows rows, const ProcessGroup& group,
                             StopAgreement& stop, const WriterCheck& may_write) {
  if (path.empty()) return {};
  const bool writes = group.rank() == 0 && !rows.columns.empty();
  const Result<void> written = run_on_all_ranks(
      [path, writes, may_write, rows = std::move(rows)]() -> Result<void> {
        if (!writes) return {};
        if (may_write) RETURN_IF_ERROR(may_write());
        return write_rows_csv(path, rows);
      },
      group, stop, "the rows of an evaluation were written; a new start evaluates again");
  return stop.agreed() ? written : group.agree(written);
}

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
  report_work(LongWork::kEvaluate, 0, rounds);
  for (int64_t round = 0; round < rounds; ++round) {
    const bool skip_batch = pace && options.stop->requested();
    const std::optional<Batch> batch = skip_batch ? std::nullopt : feed->next();
    if (batch) {
      EvalOutput given = call_task([&] { return pass.step(module, *batch); },
                                   [&] { return fmt::format("the pass \"{}\" ({})", pass.name, samples_of(*batch)); });
      given.sums[kCount] = static_cast<double>(batch->size());
      out.sums.push_back(std::move(given.sums));
      out.rows.add(batch->ids, given.rows);
    }
    const bool last = round + 1 == rounds;
    report_work(LongWork::kEvaluate, round + 1, rounds);
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
std::string packed_metrics(const Metrics& metrics) {
  nlohmann::json bits = nlohmann::json::object();
  for (const auto& [name, value] : metrics) bits[name] = std::bit_cast<uint64_t>(value);
  return bits.dump();
}

Metrics unpacked_metrics(const std::string& text) {
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

Result<void> reject_means(const EvalPass& pass, torch::nn::Module& module, const at::Device& device) {
  constexpr int64_t kMaxHalf = 8;  // samples
  constexpr double kTolerance = 0.01;
  const int64_t half = std::min({pass.batch_size / 2, pass.data->size() / 2, kMaxHalf});
  if (half == 0) return {};
  const at::NoGradGuard no_grad;
  const TrainingModeGuard evaluation_mode(module);
  const auto sums_of = [&](int64_t first, int64_t count) {
    std::vector<int64_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    Batch batch = make_batch(*pass.data, ids);
    for (auto& [name, tensor] : batch.tensors) tensor = tensor.to(device);
    return pass.step(module, batch).sums;
  };
  const MetricSums all = sums_of(0, 2 * half);
  if (all.empty() || sums_of(0, 2 * half) != all) return {};
  const MetricSums first = sums_of(0, half);
  const MetricSums second = sums_of(half, half);
  for (const auto& [name, value] : all) {
    if (!first.contains(name) || !second.contains(name)) continue;
    const double sum = first.at(name) + second.at(name);
    if (std::abs(value / sum - 0.5) < kTolerance) {  // false if both are 0
      return fail(
          ExitCode::kConfig,
          fmt::format("the evaluation returns {} for '{}' of {} samples, and {} and {} for the halves of them: a "
                      "mean; return the sum over the samples of the batch (EvalOutput::sums)",
                      value, name, 2 * half, first.at(name), second.at(name)));
    }
  }
  return {};
}

EvalPass evaluation_of(Task& task) {
  return {.name = kEvaluationName,
          .every_steps = 0,
          .batch_size = 1,
          .data = &task.eval_data(),
          .step = [&task](torch::nn::Module& model, const Batch& batch) { return task.eval_step(model, batch); },
          .finish = [&task](const MetricSums& totals, const EvalRows& rows, int64_t) -> Result<Metrics> {
            return task.metrics(totals, rows);
          },
          .show = [&task](torch::nn::Module& model, const EvalRows& rows) { return task.show(model, rows); }};
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
  if (group.rank() == 0) {
    const Result<void> admitted = options.may_write ? options.may_write() : Result<void>();
    metrics = admitted.and_then([&] { return pass.finish(totals, out.rows, steps).map(packed_metrics); });
  }
  ASSIGN_OR_RETURN(const std::string shared, group.broadcast(metrics));
  out.metrics = unpacked_metrics(shared);
  return out;
}

}  // namespace oarlock
