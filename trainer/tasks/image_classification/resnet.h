// ResNet-18 and ResNet-50 (He et al., 2016), and a similar network without residual additions.
#pragma once

#include <memory>

#include "trainer/tasks/image_classification/config.h"
#include "trainer/tasks/image_classification/model.h"

namespace oarlock::image_classification {

struct ResnetOptions {
  int64_t channels = 3;  // of the images
  int64_t width = 64;    // channels of layer1's 3x3 convolutions; 64 in torchvision
  int64_t classes = 1000;
  ResnetStem stem = ResnetStem::kImagenet;
};

// torchvision's resnet18() and resnet50(), with the same parameter names, initialization and numerics. As there, the
// stride of a bottleneck is in its 3x3 convolution. With the default options they have 11,689,512 and 25,557,032
// parameters: conv1, bn1, layer1.0.conv1 ... layer4, fc.
std::shared_ptr<ImageModel> make_resnet18(const ResnetOptions& options);
std::shared_ptr<ImageModel> make_resnet50(const ResnetOptions& options);

// The network that the guide "Multi-GPU Distributed Training" calls ResNet-like: conv1 7x7 with stride 2, bn1, ReLU,
// 3x3 max pooling with stride 2; layer1, layer2 (stride 2) and layer3 (stride 2) of width, 2 width and 4 width
// channels, each with two 3x3 convolutions followed by batch norm and ReLU; global average pooling; fc. Convolutions
// have no bias. The children of a layer have their indices in its nn.Sequential: 0, 1, 3, 4. The initialization is
// torch.nn's default. With 3 channels, width 64 and 10 classes it has 1,193,546 parameters.
std::shared_ptr<ImageModel> make_resnet_like(int64_t channels, int64_t width, int64_t classes);

}  // namespace oarlock::image_classification
