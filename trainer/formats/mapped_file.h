// A memory-mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "common/error.h"

namespace oarlock {

// Maps a whole file read-only. The kernel reads pages when they are accessed and may evict them at any time. Reading
// is thread-safe. The mapping ends with the object.
class MappedFile {
 public:
  // The expected access pattern. The kernel reads ahead for kSequential only.
  enum class Access { kSequential, kRandom };

  // Returns kNoInput if the file does not exist or is not a regular file.
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
