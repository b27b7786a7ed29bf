// The models that scripts/bench measures; tests/bench/rival/models.py has the same models.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace oarlock::bench {

enum class ModelKind { kSmall, kMlp, kCnn, kResnetLike, kResnet, kSedd };

class Model : public torch::nn::Module {
 public:
  // Returns the mean loss over the samples.
  virtual at::Tensor loss(const at::Tensor& input, const at::Tensor& label) = 0;
};

// small: a sequence of 32 Linear(64, 64). mlp: 1024-2048-2048-1024-10, 8.4 M parameters. cnn: the CIFAR network
// of two convolutions, 1.1 M. resnet_like: the model of image_classification, 1.2 M. resnet: ResNet-18 for CIFAR, 11.2
// M. sedd: the model of protein_diffusion with its loss, 1.0 M.
std::shared_ptr<Model> make_model(ModelKind kind);

// The shape of one sample.
std::vector<int64_t> input_shape(ModelKind kind);
std::vector<int64_t> label_shape(ModelKind kind);
int64_t outputs(ModelKind kind);  // labels are below

}  // namespace oarlock::bench
