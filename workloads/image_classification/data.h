// The datasets of a run: normalized images, and their random augmentation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "workloads/image_classification/config.h"
#include "workloads/image_classification/images.h"

namespace oarlock::image_classification {

// ---- Augmentation ----------------------------------------------------------------------------------------------
// Random crops and horizontal flips. They are applied while an image is normalized into the memory of its batch: one
// pass over the pixels and no copies.

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

// ---- Dataset ---------------------------------------------------------------------------------------------------

// Per channel, for pixels scaled to 0..1: a pixel x becomes (x - mean) / std.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

// Returns mean and standard deviation of all pixels. A standard deviation of 0 is reported as 1.
Normalization statistics_of(const ImageSet& images);

class ImageDataset final : public Dataset {
 public:
  // `normalization` must have one entry per channel of the images.
  ImageDataset(ImageSet images, const Normalization& normalization, const Augmentation& augmentation);

  int64_t size() const override { return images_.size(); }
  const ImageShape& shape() const { return images_.shape; }

  // Adds "image", float [n, channels, height, width], and "label", int64 [n]. The augmentation of an image depends only
  // on the seed and its index.
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

  // A fingerprint of all pixels and labels.
  std::string fingerprint() const override;

 private:
  ImageSet images_;
  PixelTables tables_;
  Augmentation augmentation_;
};

struct ImageData {
  std::unique_ptr<ImageDataset> train;
  std::unique_ptr<ImageDataset> eval;  // never augmented
  Normalization normalization;
};

// Opens the files that the section "data" names. Fails with kNoInput if they do not exist; with kDataErr if they are
// damaged, do not belong together or contain a label that is not below `classes`; and with kConfig if mean, std or the
// crop padding do not fit the images.
Result<ImageData> open_image_data(const ImageDataConfig& config, int64_t classes);

}  // namespace oarlock::image_classification
