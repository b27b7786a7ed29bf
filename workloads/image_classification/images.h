// Labeled images of one size, read from the files of MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock::image_classification {

struct ImageShape {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
};

struct ImageSet {
  ImageShape shape;
  std::vector<const uint8_t*> pixels;  // per image, [channels, height, width]
  std::vector<uint8_t> labels;
  std::shared_ptr<const void> storage;  // owns the memory that `pixels` refers to

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

enum class ImageSplit { kTrain, kTest };

// Reads the first `limit` samples (0: all) of a split of MNIST or Fashion-MNIST into memory. The files are
// <split>-images-idx3-ubyte[.gz] and <split>-labels-idx1-ubyte[.gz], where <split> is "train" or "t10k". Fails with
// kNoInput if they do not exist, and with kDataErr if they are damaged, have different numbers of samples, or contain a
// label that is not below `classes`.
Result<ImageSet> read_idx_images(const std::filesystem::path& directory, ImageSplit split, int64_t classes,
                                 int64_t limit);

// The binary versions of the CIFAR data sets. For CIFAR-100, the fine labels are used.
enum class CifarKind { kCifar10, kCifar100 };

// Returns the file names of a split in order: data_batch_1.bin ... data_batch_5.bin or test_batch.bin of CIFAR-10,
// train.bin or test.bin of CIFAR-100.
std::vector<std::string> cifar_files(CifarKind kind, ImageSplit split);

// Returns the directory that contains `file`: `directory` itself, or the directory inside it that the archive creates
// (cifar-10-batches-bin, cifar-100-binary). Returns an empty path if neither contains it.
std::filesystem::path cifar_directory(CifarKind kind, const std::filesystem::path& directory, const std::string& file);

// Maps the first `limit` samples (0: all) of a split into memory. The files are searched as by cifar_directory(). Fails
// with kNoInput if a file does not exist, and with kDataErr, naming file and record, if a file is truncated or contains
// a label that is not below `classes`.
Result<ImageSet> read_cifar_images(CifarKind kind, const std::filesystem::path& directory, ImageSplit split,
                                   int64_t classes, int64_t limit);

}  // namespace oarlock::image_classification
