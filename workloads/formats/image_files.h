// File formats of image data sets: IDX (MNIST, Fashion-MNIST) and the binary version of CIFAR-10 and CIFAR-100.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// The content of an IDX file:
//   0x00 0x00 0x08 <number of dimensions>, each dimension as a big-endian uint32, the elements in row-major order
struct IdxFile {
  std::vector<int64_t> dims;   // outermost first; all are positive
  std::vector<uint8_t> bytes;  // the elements, as many as the product of dims
};

// Reads an IDX file, plain or gzip. The file must contain unsigned bytes in `dimensions` dimensions and no trailing
// data. Returns kNoInput if it does not exist, and kDataErr if it is not such a file; the message states the
// expected and the actual value.
Result<IdxFile> read_idx_file(const std::filesystem::path& path, int dimensions);

// A memory-mapped file of CIFAR records. A record is one byte per label, followed by the red, the green and the blue
// plane of 32 x 32 bytes each, row by row. CIFAR-10 has one label per record, CIFAR-100 has two (coarse and fine).
// https://www.cs.toronto.edu/~kriz/cifar.html
class CifarFile {
 public:
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kPixels = kChannels * kSide * kSide;

  // Maps a file whose records have `labels` labels. Returns kNoInput if it does not exist, and kDataErr if it is empty
  // or its size is not a multiple of the record size.
  static Result<CifarFile> open(const std::filesystem::path& path, int64_t labels);

  int64_t size() const { return size_; }  // records

  // Returns the last label of a record.
  uint8_t label(int64_t record) const { return record_at(record)[labels_ - 1]; }

  // Returns the pixels [channels, side, side] of a record. The pointer is valid as long as this object, or the object
  // that it was moved to, exists.
  const uint8_t* pixels(int64_t record) const { return record_at(record) + labels_; }

 private:
  CifarFile(MappedFile file, int64_t labels, int64_t size) : file_(std::move(file)), labels_(labels), size_(size) {}
  const uint8_t* record_at(int64_t record) const { return file_.bytes().data() + record * (labels_ + kPixels); }

  MappedFile file_;
  int64_t labels_;
  int64_t size_;
};

}  // namespace oarlock
