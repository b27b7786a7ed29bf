// Labelled images of one size, as they lie in their files.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/tasks/image_classification/image_shape.h"

namespace oarlock {

struct ImageSet {
  ImageShape shape;
  std::vector<const uint8_t*> pixels;  // of each image: its planes, [channels, height, width]
  std::vector<uint8_t> labels;
  std::shared_ptr<const void> storage;  // where the pixels lie: kept, not looked at

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

enum class ImageSplit { kTrain, kTest };

}  // namespace oarlock
