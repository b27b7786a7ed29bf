// Image classifiers with the parameter names that the same modules have in Python.
#pragma once

#include <memory>

#include "trainer/tasks/image_classification/image_model.h"
#include "trainer/tasks/image_classification/model_config.h"

namespace oarlock {

// The model that the section "model" names; not for a torchscript, which is a ScriptModel (nn/script_model.h).
// Initialised by torch's default generator, as the same module in Python would be from the same seed.
std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape);

}  // namespace oarlock
