// The datasets of the task comformer: the split of the crystals, standardized labels, the features of atoms, and the
// errors and the file of predictions on the test set.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/graph_collation.h"
#include "trainer/engine/task.h"
#include "workloads/comformer/config.h"
#include "workloads/comformer/model.h"

namespace oarlock::comformer {

struct CrystalSplit {
  std::vector<int64_t> train;
  std::vector<int64_t> val;
  std::vector<int64_t> test;
};

// Splits as ALIGNN, Matformer and ComFormer do: 0 .. size - 1 are shuffled by Python's random module with the seed; the
// first int(train_ratio * size) are for training, the last int(test_ratio * size) for the test, and the
// int(val_ratio * size) before these for validation. The remainder of rounding is unused. Fails with kDataErr if a part
// with a positive ratio is empty.
Result<CrystalSplit> split_crystals(int64_t size, const SplitConfig& config);

// A subset of the graphs of a file. Batches are those of GraphCollation; see convert_crystals() for the columns.
class CrystalDataset final : public Dataset {
 public:
  // `graphs` are indices into the collation.
  CrystalDataset(std::shared_ptr<const GraphCollation> collation, std::vector<int64_t> graphs)
      : collation_(std::move(collation)), graphs_(std::move(graphs)) {}

  int64_t size() const override { return static_cast<int64_t>(graphs_.size()); }
  void make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const override;
  // A fingerprint of the labels, and of the lattice, elements and positions of each crystal, to 2^-13 angstrom. Without
  // the edges: their last bits may depend on the CPU that converted them, and node-local caches are valid.
  std::string fingerprint() const override;

  // Returns the labels, double [size, targets].
  at::Tensor labels() const;

 private:
  std::shared_ptr<const GraphCollation> collation_;
  std::vector<int64_t> graphs_;
};

// Standardizes labels: subtracts the mean and divides by the standard deviation of the training labels.
class LabelScaler {
 public:
  LabelScaler() = default;
  // `labels` are the training labels, double [n, targets]. The standard deviation is torch.std's, with n - 1; 1 if all
  // labels are equal.
  explicit LabelScaler(const at::Tensor& labels);

  // Moves the scaler to a device. Does nothing if it is on this device.
  void move_to(at::Device device);

  // These functions take tensors on the scaler's device.
  at::Tensor standardize(const at::Tensor& labels) const;              // [n, targets], double
  at::Tensor restore(const at::Tensor& standardized) const;            // the inverse, double
  const at::Tensor& mean() const { return mean_; }                     // [targets]
  const at::Tensor& standard_deviation() const { return deviation_; }  // [targets]

 private:
  at::Tensor mean_;
  at::Tensor deviation_;
};

constexpr int64_t kFeaturedElements = 100;  // hydrogen to fermium

// Returns the features of each element, float [kFeaturedElements + 1, kAtomFeatures], by atomic number; row 0 is zero.
// The table is that of CGCNN (Xie and Grossman, Phys. Rev. Lett. 120, 145301, 2018), as in atom_init.json of
// jarvis-tools.
at::Tensor atom_features();

// ---- Predictions -----------------------------------------------------------------------------------------------

// Returns mae, rmse and r2 from the rows "target" and "prediction" [n, targets]. R2 is computed per target and
// averaged, as by sklearn's r2_score; it is NaN if all targets are equal.
Metrics regression_metrics(const EvalRows& rows);

// Writes a CSV file of id, target and prediction (target_0, target_1 ... if there are several), in the order of the
// structures in the test set. The id is the index of a structure in its file (row "structure" [n]). Numbers round-trip
// bitwise. Fails with kCantCreate or kIoErr.
Result<void> write_predictions(const std::filesystem::path& path, const EvalRows& rows);

}  // namespace oarlock::comformer
