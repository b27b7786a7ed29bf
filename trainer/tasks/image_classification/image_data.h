// From the section "data" to the datasets of a run.
#pragma once

#include <memory>

#include "common/error.h"
#include "trainer/tasks/image_classification/data_config.h"
#include "trainer/tasks/image_classification/image_dataset.h"

namespace oarlock {

struct ImageData {
  std::unique_ptr<ImageDataset> train;
  std::unique_ptr<ImageDataset> eval;  // never augmented
};

// kNoInput: no such files; kDataErr: files that are damaged, do not belong together or have a label that is not below
// `classes`; kConfig: mean and std, or a padding, that do not fit the images.
Result<ImageData> open_image_data(const ImageDataConfig& config, int64_t classes);

}  // namespace oarlock
