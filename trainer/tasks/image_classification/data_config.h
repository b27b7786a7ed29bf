// The section "data" of image_classification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/tasks/image_classification/augmentation.h"

namespace oarlock {

enum class ImageFormat { kAuto, kIdx, kCifar10, kCifar100 };

struct ImageDataConfig {
  ImageFormat format = ImageFormat::kAuto;                 // auto: told from the files of the folder
  std::string path = "/usr/share/datasets/fashion-mnist";  // where Debian's dataset-fashion-mnist lies
  int64_t train_samples = 0;                               // 0: all
  int64_t eval_samples = 0;                                // 0: all
  std::vector<double> mean;                                // of each channel, scaled to 0..1; both or none; default:
  std::vector<double> std;                                 // those of the training images
  Augmentation augment;                                    // of training images
};

void describe(ImageDataConfig& config, Fields& fields);

}  // namespace oarlock
