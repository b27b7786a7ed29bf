// Image classifiers with the parameter names that the same modules have in Python.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/fields.h"

namespace oarlock {

// What a model sees and gives: [n, channels, height, width] -> logits [n, classes].
struct ImageShape {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
};

class ImageModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& images) = 0;
};

enum class ImageModelKind { kCnn, kMlp, kTorchScript };

// The section "model".
struct ImageModelConfig {
  ImageModelKind kind = ImageModelKind::kCnn;  // name: cnn | mlp | torchscript
  int64_t classes = 10;                        // at most 256, as idx labels are bytes
  std::vector<int64_t> channels{16, 32};       // cnn: of conv1 and conv2
  std::vector<int64_t> hidden;            // widths between input (cnn: features) and logits; cnn [128], mlp [256, 128]
  bool activation_checkpointing = false;  // cnn: of each convolution
  std::string path{};                     // torchscript: the file
};

void describe(ImageModelConfig& config, Fields& fields);

// cnn: conv1, conv2 (3x3, padding 1, each ReLU and 2x2 max pooling), fc1 ... fcN. mlp: fc1 ... fcN. ReLU between the
// fc. Initialised by torch's default generator. Images must be at least 4x4 for the cnn.
// Not for a torchscript, which is a ScriptModel (nn/script_model.h).
std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape);

}  // namespace oarlock
