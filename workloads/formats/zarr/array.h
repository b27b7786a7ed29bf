// A zarr array of version 2 or 3 in a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "workloads/formats/zarr/metadata.h"

namespace oarlock::zarr {

// How to treat a chunk that is not stored. The specification requires the fill value, because writers, such as
// zarr-python by default, omit chunks that contain only the fill value. kError is for stores whose writer omits none:
// then a missing file means that data was lost.
enum class MissingChunks { kError, kFill };

// Reads boxes of an array. Memory use is one box and one chunk. Thread-safe.
class Array {
 public:
  // Opens a directory that contains .zarray or zarr.json. Returns kNoInput if there is neither, and kDataErr, naming
  // the file, if the metadata is invalid or not supported.
  static Result<Array> open(const std::filesystem::path& directory, MissingChunks missing = MissingChunks::kFill);

  const std::filesystem::path& directory() const { return directory_; }
  const Shape& shape() const { return metadata_.shape; }
  const Shape& chunk() const { return metadata_.chunk; }
  ElementType type() const { return metadata_.type; }

  // Reads the elements [begin, begin + count) along each axis, in row-major order, little-endian. Throws
  // std::out_of_range if the box is not inside the array. Returns kDataErr, naming the file and the numbers of the
  // chunk, if a chunk is truncated, damaged, or missing without a fill value; other codes if a file cannot be read.
  Result<std::vector<uint8_t>> read(std::span<const int64_t> begin, std::span<const int64_t> count) const;

  // Reads a box as numbers. Integers beyond 2^53 are rounded.
  Result<std::vector<double>> read_doubles(std::span<const int64_t> begin, std::span<const int64_t> count) const;

 private:
  Array(std::filesystem::path directory, ArrayMetadata metadata, MissingChunks missing)
      : directory_(std::move(directory)), metadata_(std::move(metadata)), missing_(missing) {}

  // The elements of a chunk that is not stored.
  Result<std::vector<uint8_t>> missing_chunk(const std::string& place) const;

  std::filesystem::path directory_;
  ArrayMetadata metadata_;
  MissingChunks missing_;
};

// Returns the sorted names of the arrays in the directory of a group; empty if there is no such directory.
std::vector<std::string> array_names(const std::filesystem::path& group);

}  // namespace oarlock::zarr
