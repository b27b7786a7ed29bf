// Random crops and mirror images, made while an image is normalised into the memory of its batch: one pass over the
// pixels, no copies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/tasks/image_classification/image_shape.h"

namespace oarlock {

struct Augmentation {
  int64_t crop_padding = 0;  // pixels of black on each side, of which a part of the image's size is cut
  bool flip = false;         // every other image is mirrored
};

// Which part of an image is seen, and how.
struct View {
  int64_t top = 0;   // the row of the image that becomes the first; negative: black rows come before it
  int64_t left = 0;  // the same of the columns
  bool flipped = false;
};

// The view of a sample under an epoch's seed: rows and columns uniform in -padding .. padding, flipped or not alike.
View random_view(const Augmentation& augmentation, uint64_t seed, int64_t sample);

// What each of the 256 values of a byte becomes, by channel.
using PixelTables = std::vector<std::array<float, 256>>;

// `from` [channels, height, width] bytes -> `to` [channels, height, width]. What lies outside the image is black: what
// the byte 0 becomes, as torchvision pads before it normalises.
void copy_view(const uint8_t* from, const ImageShape& shape, const View& view, const PixelTables& tables, float* to);

}  // namespace oarlock
