#include "tests/bench/trainer/sedd.h"

#include "workloads/protein_diffusion/graph.h"
#include "workloads/protein_diffusion/model.h"

namespace oarlock::bench {
namespace {

using namespace protein_diffusion;  // the model and the loss that are measured

class Sedd final : public Model {
 public:
  Sedd() : graph_(make_graph({}, kSeddTokens)) {
    const SeddConfig config{.tokens = kSeddTokens,
                            .length = kSeddLength,
                            .hidden_size = 128,
                            .cond_dim = 64,
                            .n_blocks = 4,
                            .n_heads = 4,
                            .dropout = 0.1};
    model_ = register_module("model", std::make_shared<SeddModel>(config, graph_->states()));
  }

  at::Tensor loss(const at::Tensor& input, const at::Tensor& label) override {
    const LogScore score = [this](const at::Tensor& x, const at::Tensor& sigma) { return model_->forward(x, sigma); };
    const NoiseDraw draw{
        .tokens = label, .time = sample_times(input.select(1, 0)), .move = input.slice(1, 1), .replacement = {}};
    return position_losses(score, *graph_, {}, draw).mean();
  }

 private:
  std::unique_ptr<Graph> graph_;
  std::shared_ptr<SeddModel> model_;
};

}  // namespace

std::shared_ptr<Model> make_sedd() { return std::make_shared<Sedd>(); }

}  // namespace oarlock::bench
