// ResNet-18 and ResNet-50 (He et al., 2016) with the names, the initialisation and the numbers of torchvision's
// resnet18() and resnet50(), which has the stride of a bottleneck in its 3x3 convolution.
#pragma once

#include <memory>

#include "trainer/tasks/image_classification/image_model.h"
#include "trainer/tasks/image_classification/model_config.h"

namespace oarlock {

struct ResnetOptions {
  int64_t channels = 3;  // of the images
  int64_t width = 64;    // of layer1's 3x3 convolutions; 64 in torchvision
  int64_t classes = 1000;
  ResnetStem stem = ResnetStem::kImagenet;
};

// Of the default options 11,689,512 and 25,557,032 parameters: conv1, bn1, layer1.0.conv1 ... layer4, fc.
std::shared_ptr<ImageModel> make_resnet18(const ResnetOptions& options);
std::shared_ptr<ImageModel> make_resnet50(const ResnetOptions& options);

}  // namespace oarlock
