// A zarr array on the disk, of version 2 or 3, read box by box: in memory are the box and one chunk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/zarr/metadata.h"

namespace oarlock::zarr {

// What a chunk means that is not stored. The format says: the fill value. For data of which every sample was written it
// is a file that got lost, though a writer may leave out chunks of nothing but the fill value (zarr-python does).
enum class MissingChunks { kError, kFill };

class Array {
 public:
  // A folder with .zarray or zarr.json. kNoInput: there is none. kDataErr: not readable as such, naming the file.
  static Result<Array> open(const std::filesystem::path& folder, MissingChunks missing = MissingChunks::kError);

  const std::filesystem::path& folder() const { return folder_; }
  const Shape& shape() const { return metadata_.shape; }
  const Shape& chunk() const { return metadata_.chunk; }
  ElementType type() const { return metadata_.type; }

  // The elements from begin to before begin + count along each axis, in row-major order, little-endian. The box must
  // lie in the array. Thread-safe. kDataErr: a chunk that is missing, truncated or damaged, naming its file and its
  // numbers; kIoErr and the like.
  Result<std::vector<uint8_t>> read(std::span<const int64_t> begin, std::span<const int64_t> count) const;

  // The same as numbers: integers beyond 2^53 are rounded.
  Result<std::vector<double>> read_doubles(std::span<const int64_t> begin, std::span<const int64_t> count) const;

 private:
  Array(std::filesystem::path folder, ArrayMetadata metadata, MissingChunks missing)
      : folder_(std::move(folder)), metadata_(std::move(metadata)), missing_(missing) {}

  std::filesystem::path folder_;
  ArrayMetadata metadata_;
  MissingChunks missing_;
};

// The names of the arrays in a group's folder, sorted; nothing for what is no folder.
std::vector<std::string> array_names(const std::filesystem::path& group);

}  // namespace oarlock::zarr
