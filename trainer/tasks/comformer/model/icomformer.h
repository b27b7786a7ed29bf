// iComFormer: lengths, and angles with the lattice vectors, which no rotation changes.
#pragma once

#include <memory>
#include <vector>

#include "trainer/tasks/comformer/model/basis.h"
#include "trainer/tasks/comformer/model/convolution.h"
#include "trainer/tasks/comformer/model/edge_update.h"
#include "trainer/tasks/comformer/model/model.h"

namespace oarlock {

class IComformer final : public Comformer {
 public:
  explicit IComformer(const ComformerConfig& config);

 private:
  at::Tensor nodes(const CrystalBatch& batch) override;

  torch::nn::Linear atoms_;
  std::shared_ptr<BasisEmbedding> length_;
  std::shared_ptr<BasisEmbedding> angle_;
  std::vector<std::shared_ptr<ComformerConvolution>> convolutions_;
  std::shared_ptr<EdgeUpdate> edge_update_;
};

}  // namespace oarlock
