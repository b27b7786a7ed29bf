// Named arrays in a file or directory: a zarr group or an HDF5 file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "workloads/formats/zarr/array.h"

namespace oarlock::causal_set {

// An array of numbers that is read in boxes.
class StoredArray {
 public:
  virtual ~StoredArray() = default;

  virtual const std::vector<int64_t>& shape() const = 0;
  // Number of elements along an axis that are stored together. Reading multiples of it is the most efficient.
  virtual int64_t chunk_length(size_t axis) const = 0;
  // Returns the elements [begin, begin + count) of each axis in row-major order. Fails with kDataErr, naming the array.
  virtual Result<std::vector<double>> read(std::span<const int64_t> begin, std::span<const int64_t> count) const = 0;
  // "FILE: NAME", for messages.
  virtual const std::string& place() const = 0;
};

class ArrayStore {
 public:
  virtual ~ArrayStore() = default;

  virtual const std::filesystem::path& path() const = 0;
  // The names of all arrays, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  // Fails with kNoInput if the array does not exist, and with kDataErr if it cannot be read.
  virtual Result<std::unique_ptr<StoredArray>> open(const std::string& name) const = 0;
  // Returns the files and directories that contain these arrays. Names of arrays that do not exist are ignored.
  virtual std::vector<std::filesystem::path> sources(std::span<const std::string> names) const = 0;
};

// Opens a directory as a zarr group, and a file as HDF5. Fails with kNoInput if the path does not exist, and with
// kDataErr if a file is not HDF5.
Result<std::unique_ptr<ArrayStore>> open_store(const std::filesystem::path& path, zarr::MissingChunks missing);

}  // namespace oarlock::causal_set
