// Random crops and horizontal flips. They are applied while an image is normalized into the memory of its batch: one
// pass over the pixels and no copies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/tasks/image_classification/config.h"
#include "trainer/tasks/image_classification/images.h"

namespace oarlock::image_classification {

// The part of an image that is used, and its orientation.
struct View {
  int64_t top = 0;   // row of the image that becomes the first row; negative: black rows precede it
  int64_t left = 0;  // the same for columns
  bool flipped = false;
};

// Returns the view of a sample. It depends only on the epoch's seed and the sample: row and column are uniform in
// -padding .. padding.
View random_view(const Augmentation& augmentation, uint64_t seed, int64_t sample);

// The normalized values of the 256 pixel values, per channel.
using PixelTables = std::vector<std::array<float, 256>>;

// Writes a view of an image, [channels, height, width], to `to`, which has the same shape. Pixels outside the image get
// the normalized value of 0 (black), because torchvision pads before it normalizes.
void copy_view(const uint8_t* from, const ImageShape& shape, const View& view, const PixelTables& tables, float* to);

}  // namespace oarlock::image_classification
