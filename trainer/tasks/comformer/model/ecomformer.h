// eComFormer: the directions of edges enter through an equivariant layer after the first convolution.
#pragma once

#include <memory>
#include <vector>

#include "trainer/tasks/comformer/model/basis.h"
#include "trainer/tasks/comformer/model/convolution.h"
#include "trainer/tasks/comformer/model/equivariant.h"
#include "trainer/tasks/comformer/model/model.h"

namespace oarlock {

class EComformer final : public Comformer {
 public:
  explicit EComformer(const ComformerConfig& config);

 private:
  at::Tensor nodes(const CrystalBatch& batch) override;

  torch::nn::Linear atoms_;
  std::shared_ptr<BasisEmbedding> length_;
  std::vector<std::shared_ptr<ComformerConvolution>> convolutions_;
  std::shared_ptr<EquivariantUpdate> equivariant_;
};

}  // namespace oarlock
