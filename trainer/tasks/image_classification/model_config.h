// The section "model" of image_classification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/fields.h"

namespace oarlock {

enum class ImageModelKind { kCnn, kMlp, kResnetLike, kResnet18, kResnet50, kTorchScript };

// How a ResNet begins.
enum class ResnetStem {
  kImagenet,  // 7x7 with stride 2, max pooling 3x3 with stride 2
  kCifar,     // 3x3: for images of about 32x32
};

struct ImageModelConfig {
  ImageModelKind kind = ImageModelKind::kCnn;
  int64_t classes = 10;                   // at most 256, as labels are bytes
  std::vector<int64_t> channels{16, 32};  // cnn: of conv1 and conv2
  std::vector<int64_t> hidden{};          // widths between input (cnn: features) and logits; cnn [128], mlp [256, 128]
  bool activation_checkpointing = false;  // cnn: of each convolution
  int64_t width = 64;                     // resnet*: channels of the first stage; each next one has twice as many
  ResnetStem stem = ResnetStem::kImagenet;  // resnet18, resnet50
  std::string path{};                       // torchscript: the file
};

void describe(ImageModelConfig& config, Fields& fields);

}  // namespace oarlock
