#include "trainer/tasks/comformer/model/model.h"

#include <ATen/ops/silu.h>

#include "trainer/nn/scatter.h"
#include "trainer/tasks/comformer/model/ecomformer.h"
#include "trainer/tasks/comformer/model/icomformer.h"

namespace oarlock {
namespace {

// fc.0: the linear layer before an activation.
class HiddenLayer final : public torch::nn::Module {
 public:
  HiddenLayer(int64_t in, int64_t out) : linear(register_module("0", torch::nn::Linear(in, out))) {}
  torch::nn::Linear linear;
};

}  // namespace

void Comformer::register_head(const ComformerConfig& config) {
  const auto hidden = register_module("fc", std::make_shared<HiddenLayer>(config.node_features, config.fc_features));
  hidden_ = hidden;
  first_ = hidden->linear;
  out_ = register_module("fc_out", torch::nn::Linear(config.fc_features, config.output_features));
}

at::Tensor Comformer::forward(const CrystalBatch& batch) {
  const at::Tensor crystals = segment_mean(nodes(batch), batch.atom_begin);
  return out_->forward(at::silu(first_->forward(crystals)));
}

std::shared_ptr<Comformer> make_comformer(const ComformerConfig& config) {
  if (config.kind == ComformerKind::kEquivariant) return std::make_shared<EComformer>(config);
  return std::make_shared<IComformer>(config);
}

}  // namespace oarlock
