#include "trainer/tasks/gears/cell_batches.h"

#include <algorithm>

#include "trainer/data/random.h"

namespace oarlock {
namespace {

constexpr uint64_t kQueryStream = 0x71756572;  // apart from the cells' own

void fill_row(const CellStore& store, int64_t cell, at::Tensor& matrix, int64_t row) {
  const auto genes = static_cast<size_t>(store.gene_count());
  store.expression(cell, {matrix.mutable_data_ptr<float>() + row * store.gene_count(), genes});
}

std::vector<CellGroup> chunks(int64_t group, const std::vector<int64_t>& controls, int64_t together) {
  std::vector<CellGroup> out;
  for (auto at = controls.begin(); at != controls.end();) {
    const auto end = at + std::min<std::ptrdiff_t>(together, controls.end() - at);
    out.push_back({.group = group, .controls = {at, end}});
    at = end;
  }
  return out;
}

}  // namespace

int64_t matched_control(const GearsData& data, int64_t seed, int64_t cell) {
  if (data.store.condition_of(cell) == data.control()) return cell;
  const std::span<const int64_t> controls = data.store.cells_of(data.control());
  SampleRandom random(static_cast<uint64_t>(seed), cell);
  return controls[static_cast<size_t>(random.below(std::ssize(controls)))];
}

TrainingCells::TrainingCells(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed)
    : data_(data), seed_(seed) {
  for (const int64_t condition : conditions) {
    const std::span<const int64_t> own = data.store.cells_of(condition);
    cells_.insert(cells_.end(), own.begin(), own.end());
  }
}

void TrainingCells::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  const int64_t n = std::ssize(indices);
  at::Tensor& x = batch.allocate("x", {n, data_.store.gene_count()}, at::kFloat);
  at::Tensor& y = batch.allocate("y", {n, data_.store.gene_count()}, at::kFloat);
  at::Tensor& condition = batch.allocate("condition", {n}, at::kLong);
  at::Tensor& perturbed = batch.allocate("perturbed", {n, data_.perturbed.size(1)}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t cell = cells_[static_cast<size_t>(indices[static_cast<size_t>(i)])];
    fill_row(data_.store, matched_control(data_, seed_, cell), x, i);
    fill_row(data_.store, cell, y, i);
    const int64_t number = data_.store.condition_of(cell);
    condition.mutable_data_ptr<int64_t>()[i] = number;
    perturbed.select(0, i).copy_(data_.perturbed.select(0, number));
  }
}

void GroupedCells::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  const int64_t n = std::ssize(indices);
  at::Tensor& begin = batch.allocate("begin", {n + 1}, at::kLong);
  at::Tensor& group = batch.allocate("group", {n}, at::kLong);
  at::Tensor& perturbed = batch.allocate("perturbed", {n, perturbed_.size(1)}, at::kLong);
  auto* ends = begin.mutable_data_ptr<int64_t>();
  ends[0] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const CellGroup& sample = samples_[static_cast<size_t>(indices[static_cast<size_t>(i)])];
    ends[i + 1] = ends[i] + std::ssize(sample.controls);
    group.mutable_data_ptr<int64_t>()[i] = sample.group;
    perturbed.select(0, i).copy_(perturbed_.select(0, sample.group));
  }
  at::Tensor& x = batch.allocate("x", {ends[n], store_.gene_count()}, at::kFloat);
  int64_t row = 0;
  for (const int64_t index : indices) {
    for (const int64_t cell : samples_[static_cast<size_t>(index)].controls) fill_row(store_, cell, x, row++);
  }
}

std::vector<CellGroup> groups_of_conditions(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed,
                                            int64_t together) {
  std::vector<CellGroup> groups;
  for (const int64_t condition : conditions) {
    std::vector<int64_t> controls;
    for (const int64_t cell : data.store.cells_of(condition)) controls.push_back(matched_control(data, seed, cell));
    const std::vector<CellGroup> own = chunks(condition, controls, together);
    groups.insert(groups.end(), own.begin(), own.end());
  }
  return groups;
}

std::vector<CellGroup> groups_of_queries(const GearsData& data, int64_t queries, int64_t controls, int64_t seed,
                                         int64_t together) {
  const std::span<const int64_t> all = data.store.cells_of(data.control());
  SampleRandom random(mix_seed({static_cast<uint64_t>(seed), kQueryStream}), 0);
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < controls; ++i) drawn.push_back(all[static_cast<size_t>(random.below(std::ssize(all)))]);
  std::vector<CellGroup> groups;
  for (int64_t query = 0; query < queries; ++query) {
    const std::vector<CellGroup> own = chunks(query, drawn, together);
    groups.insert(groups.end(), own.begin(), own.end());
  }
  return groups;
}

}  // namespace oarlock
