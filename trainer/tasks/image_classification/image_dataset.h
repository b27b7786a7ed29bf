// Images as a dataset: normalised, and augmented where asked.
#pragma once

#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/tasks/image_classification/augmentation.h"
#include "trainer/tasks/image_classification/image_set.h"

namespace oarlock {

// By channel, of pixels scaled to 0..1: a pixel becomes (x - mean) / std.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

// Of all pixels; a deviation of 0 is given as 1.
Normalization statistics_of(const ImageSet& images);

class ImageDataset final : public Dataset {
 public:
  // The normalisation has as many numbers as the images have channels.
  ImageDataset(ImageSet images, const Normalization& normalization, const Augmentation& augmentation);

  int64_t size() const override { return images_.size(); }
  const ImageShape& shape() const { return images_.shape; }

  // "image": float [n, channels, height, width]; "label": int64 [n]. How an image is augmented depends on the seed and
  // its index alone.
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

 private:
  ImageSet images_;
  PixelTables tables_;
  Augmentation augmentation_;
};

}  // namespace oarlock
