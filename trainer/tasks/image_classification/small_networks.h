// Two small classifiers.
#pragma once

#include <memory>

#include "trainer/tasks/image_classification/image_model.h"
#include "trainer/tasks/image_classification/model_config.h"

namespace oarlock {

// conv1, conv2 (3x3, padding 1, each ReLU and 2x2 max pooling), fc1 ... fcN with ReLU between them. Images must be at
// least 4x4.
std::shared_ptr<ImageModel> make_cnn(const ImageModelConfig& config, const ImageShape& shape);

// fc1 ... fcN with ReLU between them.
std::shared_ptr<ImageModel> make_mlp(const ImageModelConfig& config, const ImageShape& shape);

}  // namespace oarlock
