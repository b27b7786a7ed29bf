// The network that the guide "Multi-GPU Distributed Training" calls ResNet-like: a ResNet's convolutions and batch
// norms, without its residual additions.
#pragma once

#include <memory>

#include "trainer/tasks/image_classification/image_model.h"

namespace oarlock {

// conv1 7x7 with stride 2, bn1, ReLU, max pooling 3x3 with stride 2; layer1, layer2 (stride 2) and layer3 (stride 2) of
// width, 2 width and 4 width channels, each twice convolution 3x3, batch norm, ReLU; the mean of each channel; fc. No
// convolution has a bias. The children of a layer have the numbers that they have in its nn.Sequential: 0, 1, 3, 4.
// 1,193,546 parameters with 3 channels, width 64 and 10 classes; torch.nn's default initialisation.
std::shared_ptr<ImageModel> make_resnet_like(int64_t channels, int64_t width, int64_t classes);

}  // namespace oarlock
