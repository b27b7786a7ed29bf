// The configuration of the task image_classification: its sections "data" and "model".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fields/fields.h"

namespace oarlock::image_classification {

// File formats of a data set.
enum class ImageFormat { kAuto, kIdx, kCifar10, kCifar100 };

// Random augmentation of training images.
struct Augmentation {
  int64_t crop_padding = 0;  // pixels of black padding on each side, from which a crop of the image's size is taken
  bool flip = false;         // mirrors an image with probability 1/2
};

// The section "data".
struct ImageDataConfig {
  ImageFormat format = ImageFormat::kAuto;                 // kAuto: detected from the file names in the directory
  std::string path = "/usr/share/datasets/fashion-mnist";  // the directory of Debian's package dataset-fashion-mnist
  int64_t train_samples = 0;                               // 0: all
  int64_t eval_samples = 0;                                // 0: all
  std::vector<double> mean;  // per channel, of pixels scaled to 0..1; empty: computed from the training images
  std::vector<double> std;   // empty if and only if `mean` is
  Augmentation augment;
};

enum class ImageModelKind { kCnn, kMlp, kResnetLike, kResnet18, kResnet50, kTorchScript };

// The first layers of a ResNet.
enum class ResnetStem {
  kImagenet,  // 7x7 convolution with stride 2, 3x3 max pooling with stride 2
  kCifar,     // 3x3 convolution: for images of about 32x32
};

// The section "model".
struct ImageModelConfig {
  ImageModelKind kind = ImageModelKind::kCnn;
  int64_t classes = 10;                   // at most 256, because labels are bytes
  std::vector<int64_t> channels{16, 32};  // cnn: output channels of conv1 and conv2
  std::vector<int64_t>
      hidden{};  // widths between the input (cnn: the features) and the logits; cnn [128], mlp [256, 128]
  bool activation_checkpointing = false;    // cnn: of each convolution
  int64_t width = 64;                       // resnet*: channels of the first stage; doubled in each later stage
  ResnetStem stem = ResnetStem::kImagenet;  // resnet18, resnet50
  std::string path{};                       // torchscript: the file
};

void describe(ImageDataConfig& config, Fields& fields);
void describe(ImageModelConfig& config, Fields& fields);

}  // namespace oarlock::image_classification
