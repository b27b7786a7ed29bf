// The datasets of the task gears: cells paired with control cells, which represent the cells before the perturbation.
// The control of a cell is drawn from the seed and the index of the cell, independently of rank, world size and order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/cache_directory.h"
#include "trainer/data/dataset.h"
#include "trainer/data/fingerprint.h"
#include "workloads/gears/cell_store.h"
#include "workloads/gears/config.h"
#include "workloads/gears/model.h"
#include "workloads/gears/splits.h"

namespace oarlock::gears {

// Cells, splits and graphs. Conditions are identified by their indices in the store.
struct GearsData {
  CellStore store;
  std::vector<std::string> perturbations;  // genes that can be perturbed, sorted: the rows of the model's pert_emb
  std::map<std::string, std::vector<std::string>> left_out{};  // conditions that cannot be used, by the reason
  Split split{};
  std::vector<int64_t> train{};
  std::vector<int64_t> val{};
  std::vector<int64_t> test{};
  GearsGraphs graphs{};
  at::Tensor perturbed{};                     // int64 [conditions, 2]: indices of perturbations; -1: none
  std::shared_ptr<const CacheEntry> entry{};  // of the store

  int64_t control() const { return store.index_of(kControl); }
  // Returns the index of a gene that can be perturbed, or -1.
  int64_t perturbation(const std::string& gene) const;
};

// Converts the file and computes the co-expression, each once. For Task::prepare_data(), on one rank of each node. The
// results are entries of FILE.oarlock (cache_directory.h). Fails with kNoInput, kDataErr or kCantCreate.
Result<void> prepare_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs, const Logger& log);

// Opens the files that prepare_gears_data() created, or creates them, and reads the rest. For Task::prepare(). Fails
// with kDataErr if the training or the validation set is empty, and otherwise as prepare_gears_data().
Result<GearsData> open_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs,
                                  const Logger& log = Logger::silent());

// Returns the control cell of a cell. A control cell is its own control. Pure.
int64_t matched_control(const GearsData& data, int64_t seed, int64_t cell);

// The cells of some conditions. A batch has "x" float [n, genes], the expression of the controls; "y" float [n, genes],
// the expression of the cells; "condition" int64 [n]; "perturbed" int64 [n, 2].
class TrainingCells final : public Dataset {
 public:
  // `data` must outlive the dataset.
  TrainingCells(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed);

  int64_t size() const override { return std::ssize(cells_); }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;
  std::string fingerprint() const override { return sampled_fingerprint(*this); }

 private:
  const GearsData& data_;
  int64_t seed_;
  std::vector<int64_t> cells_;
};

// Cells that are predicted together.
struct CellGroup {
  int64_t group = 0;  // a condition or a query
  std::vector<int64_t> controls;
};

// A sample is a CellGroup. A batch has "x" float [cells, genes], the expression of all controls; "perturbed" int64
// [n, 2]; "group" int64 [n]; "begin" int64 [n + 1], the first cell of each sample.
class GroupedCells final : public Dataset {
 public:
  // `perturbed` is int64 [groups, 2]. The store must outlive the dataset.
  GroupedCells(const CellStore& store, std::vector<CellGroup> samples, at::Tensor perturbed)
      : store_(store), samples_(std::move(samples)), perturbed_(std::move(perturbed)) {}

  int64_t size() const override { return std::ssize(samples_); }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;
  std::string fingerprint() const override { return sampled_fingerprint(*this); }

 private:
  const CellStore& store_;
  std::vector<CellGroup> samples_;
  at::Tensor perturbed_;
};

// Returns the cells of the conditions in groups of at most `max_cells`.
std::vector<CellGroup> groups_of_conditions(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed,
                                            int64_t max_cells);

// Returns `controls` control cells for each query, drawn with replacement and the same for every query, in groups of at
// most `max_cells`.
std::vector<CellGroup> groups_of_queries(const GearsData& data, int64_t queries, int64_t controls, int64_t seed,
                                         int64_t max_cells);

}  // namespace oarlock::gears
