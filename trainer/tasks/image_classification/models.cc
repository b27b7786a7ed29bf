#include "trainer/tasks/image_classification/models.h"

#include <stdexcept>

#include "trainer/tasks/image_classification/resnet.h"
#include "trainer/tasks/image_classification/resnet_like.h"
#include "trainer/tasks/image_classification/small_networks.h"

namespace oarlock {

std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape) {
  const ResnetOptions resnet{shape.channels, config.width, config.classes, config.stem};
  switch (config.kind) {
    case ImageModelKind::kCnn:
      return make_cnn(config, shape);
    case ImageModelKind::kMlp:
      return make_mlp(config, shape);
    case ImageModelKind::kResnetLike:
      return make_resnet_like(shape.channels, config.width, config.classes);
    case ImageModelKind::kResnet18:
      return make_resnet18(resnet);
    case ImageModelKind::kResnet50:
      return make_resnet50(resnet);
    case ImageModelKind::kTorchScript:
      break;
  }
  throw std::logic_error("make_image_model: a script is loaded, not made");
}

}  // namespace oarlock
