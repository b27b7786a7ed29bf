#include "trainer/tasks/image_classification/augmentation.h"

#include <algorithm>

#include "trainer/data/random.h"

namespace oarlock::image_classification {

namespace {

using Table = std::array<float, 256>;

// Copies columns [left, left + width) of a row of `width` pixels.
void copy_row(const uint8_t* row, int64_t width, int64_t left, const Table& table, float* to) {
  const int64_t begin = std::clamp<int64_t>(-left, 0, width);
  const int64_t end = std::clamp<int64_t>(width - left, begin, width);
  std::fill(to, to + begin, table[0]);
  for (int64_t x = begin; x < end; ++x) to[x] = table[row[x + left]];
  std::fill(to + end, to + width, table[0]);
}

// The same in reverse order.
void copy_row_flipped(const uint8_t* row, int64_t width, int64_t left, const Table& table, float* to) {
  const int64_t begin = std::clamp<int64_t>(-left, 0, width);
  const int64_t end = std::clamp<int64_t>(width - left, begin, width);
  std::fill(to, to + width - end, table[0]);
  for (int64_t x = begin; x < end; ++x) to[width - 1 - x] = table[row[x + left]];
  std::fill(to + width - begin, to + width, table[0]);
}

void copy_plane(const uint8_t* from, int64_t height, int64_t width, const View& view, const Table& table, float* to) {
  const auto copy = view.flipped ? copy_row_flipped : copy_row;
  for (int64_t y = 0; y < height; ++y, to += width) {
    const int64_t row = y + view.top;
    if (row < 0 || row >= height) {
      std::fill(to, to + width, table[0]);
    } else {
      copy(from + row * width, width, view.left, table, to);
    }
  }
}

}  // namespace

View random_view(const Augmentation& augmentation, uint64_t seed, int64_t sample) {
  SampleRandom random(seed, sample);
  const int64_t places = 2 * augmentation.crop_padding + 1;
  View view;
  view.top = random.below(places) - augmentation.crop_padding;
  view.left = random.below(places) - augmentation.crop_padding;
  view.flipped = augmentation.flip && random.below(2) == 1;
  return view;
}

void copy_view(const uint8_t* from, const ImageShape& shape, const View& view, const PixelTables& tables, float* to) {
  const int64_t plane = shape.height * shape.width;
  for (int64_t channel = 0; channel < shape.channels; ++channel, from += plane, to += plane)
    copy_plane(from, shape.height, shape.width, view, tables[static_cast<size_t>(channel)], to);
}

}  // namespace oarlock::image_classification
