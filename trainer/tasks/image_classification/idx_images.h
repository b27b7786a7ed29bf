// A split of MNIST or Fashion-MNIST: <split>-images-idx3-ubyte[.gz] and <split>-labels-idx1-ubyte[.gz] of a folder,
// where the split is "train" or "t10k".
#pragma once

#include <filesystem>

#include "common/error.h"
#include "trainer/tasks/image_classification/image_set.h"

namespace oarlock {

// The first `limit` samples (0: all), in memory. kNoInput: no such files, with the remedy. kDataErr: not such files,
// images and labels that do not belong together, a label that is not below `classes`.
Result<ImageSet> read_idx_images(const std::filesystem::path& folder, ImageSplit split, int64_t classes, int64_t limit);

}  // namespace oarlock
