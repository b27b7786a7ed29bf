// A split of MNIST or Fashion-MNIST: <split>-images-idx3-ubyte[.gz] and <split>-labels-idx1-ubyte[.gz] of a folder.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace oarlock {

// Pixels of a grey image scaled to 0..1, then (x - mean) / std.
struct Normalization {
  double mean = 0;
  double std = 1;
};

class IdxImages final : public Dataset {
 public:
  // `split` is "train" or "t10k". Keeps the first `limit` samples (0: all). kNoInput: no such files, with the remedy.
  // kDataErr: not such files, images and labels that do not belong together, a label that is not below `classes`.
  static Result<IdxImages> open(const std::filesystem::path& folder, const std::string& split, int64_t classes,
                                int64_t limit);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }

  // "image": float [n, 1, height, width], normalised; "label": int64 [n]. There is no augmentation yet.
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

  // Of all pixels, scaled to 0..1.
  Normalization statistics() const;
  void normalize(const Normalization& normalization);

 private:
  IdxImages(std::vector<uint8_t> pixels, std::vector<uint8_t> labels, int64_t height, int64_t width);

  std::vector<uint8_t> pixels_;  // [n, height, width]
  std::vector<uint8_t> labels_;  // [n]
  int64_t height_;
  int64_t width_;
  std::array<float, 256> value_of_{};  // of a pixel, normalised
};

}  // namespace oarlock
