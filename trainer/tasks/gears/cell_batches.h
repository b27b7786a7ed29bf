// What GEARS trains on, evaluates and predicts: cells beside control cells that stand for what they were before. Each
// cell's control is drawn by the seed and the cell's number, so that it does not depend on rank, world size or order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/tasks/gears/gears_data.h"

namespace oarlock {

// The control cell that belongs to a cell; a control cell's is itself. Pure.
int64_t matched_control(const GearsData& data, int64_t seed, int64_t cell);

// A sample is a cell: "x" float [n, genes], its control's expression; "y" float [n, genes], its own; "condition" int64
// [n]; "perturbed" int64 [n, 2].
class TrainingCells final : public Dataset {
 public:
  // `data` must outlive it.
  TrainingCells(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed);

  int64_t size() const override { return std::ssize(cells_); }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

 private:
  const GearsData& data_;
  int64_t seed_;
  std::vector<int64_t> cells_;
};

// Cells that are predicted together: of one group, "x" as above.
struct CellGroup {
  int64_t group = 0;  // a condition, or a query
  std::vector<int64_t> controls;
};

// A sample is some cells of one group: "x" float [cells, genes]; "perturbed" int64 [n, 2]; "group" int64 [n]; "begin"
// int64 [n + 1], where each sample's cells begin.
class GroupedCells final : public Dataset {
 public:
  // `perturbed` int64 [groups, 2]. The store must outlive it.
  GroupedCells(const CellStore& store, std::vector<CellGroup> samples, at::Tensor perturbed)
      : store_(store), samples_(std::move(samples)), perturbed_(std::move(perturbed)) {}

  int64_t size() const override { return std::ssize(samples_); }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

 private:
  const CellStore& store_;
  std::vector<CellGroup> samples_;
  at::Tensor perturbed_;
};

// The cells of these conditions, at most `together` at a time.
std::vector<CellGroup> groups_of_conditions(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed,
                                            int64_t together);

// For each query as many control cells, drawn by the seed with replacement, the same for every query.
std::vector<CellGroup> groups_of_queries(const GearsData& data, int64_t queries, int64_t controls, int64_t seed,
                                         int64_t together);

}  // namespace oarlock
