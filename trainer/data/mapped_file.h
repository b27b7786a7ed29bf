// A whole file, read-only, mapped into memory: the kernel reads pages when they are touched and may drop them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "common/error.h"

namespace oarlock {

class MappedFile {
 public:
  // How its pages will be touched: the kernel reads ahead, or does not.
  enum class Access { kSequential, kRandom };

  // kNoInput: not there, or a folder.
  static Result<MappedFile> open(const std::filesystem::path& path, Access access);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  const uint8_t* data_;
  size_t size_;
};

}  // namespace oarlock
