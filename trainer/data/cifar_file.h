// The binary files of CIFAR-10 and CIFAR-100. A record is one byte per label, then the red, the green and the blue
// plane of 32 x 32 bytes each, row by row; CIFAR-10 has one label, CIFAR-100 two: coarse and fine.
// https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <cstdint>
#include <filesystem>

#include "common/error.h"
#include "trainer/data/mapped_file.h"

namespace oarlock {

class CifarFile {
 public:
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kPixels = kChannels * kSide * kSide;

  // Maps the file, whose records have so many labels. kNoInput: not there. kDataErr: not a whole number of records, or
  // none.
  static Result<CifarFile> open(const std::filesystem::path& path, int64_t labels);

  int64_t size() const { return size_; }
  // The last of the labels.
  uint8_t label(int64_t record) const { return record_at(record)[labels_ - 1]; }
  // [channels, side, side]; valid while the file object, or one moved from it, lives.
  const uint8_t* pixels(int64_t record) const { return record_at(record) + labels_; }

 private:
  CifarFile(MappedFile file, int64_t labels, int64_t size) : file_(std::move(file)), labels_(labels), size_(size) {}
  const uint8_t* record_at(int64_t record) const { return file_.bytes().data() + record * (labels_ + kPixels); }

  MappedFile file_;
  int64_t labels_;
  int64_t size_;
};

}  // namespace oarlock
