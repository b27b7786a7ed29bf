#include "trainer/tasks/comformer/crystal_dataset.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

namespace oarlock {

void CrystalDataset::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  std::vector<int64_t> graphs;
  graphs.reserve(indices.size());
  for (const int64_t index : indices) graphs.push_back(graphs_.at(static_cast<size_t>(index)));
  collation_->collate(graphs, batch);
}

at::Tensor CrystalDataset::labels() const {
  return collation_->arrays().graphs.at("label").index_select(0, at::tensor(graphs_));
}

}  // namespace oarlock
