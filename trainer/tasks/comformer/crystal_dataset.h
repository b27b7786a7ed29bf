// Some of the graphs of a file, for training, validation or test.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/graph_collation.h"

namespace oarlock {

// Batches are GraphCollation's: see graph_conversion.h for the columns.
class CrystalDataset final : public Dataset {
 public:
  // `graphs`: numbers in the collation.
  CrystalDataset(std::shared_ptr<const GraphCollation> collation, std::vector<int64_t> graphs)
      : collation_(std::move(collation)), graphs_(std::move(graphs)) {}

  int64_t size() const override { return static_cast<int64_t>(graphs_.size()); }
  void make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const override;

  // double [size, targets]
  at::Tensor labels() const;

 private:
  std::shared_ptr<const GraphCollation> collation_;
  std::vector<int64_t> graphs_;
};

}  // namespace oarlock
