// A file or folder that holds arrays by name: a zarr group or an HDF5 file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/zarr/array.h"

namespace oarlock {

// An array of numbers, read box by box.
class StoredArray {
 public:
  virtual ~StoredArray() = default;

  virtual const std::vector<int64_t>& shape() const = 0;
  // Elements along an axis that are stored together: boxes of multiples of it cost the least.
  virtual int64_t chunk_length(size_t axis) const = 0;
  // The elements from begin to before begin + count along each axis, in row-major order. kDataErr, with its place.
  virtual Result<std::vector<double>> read(std::span<const int64_t> begin, std::span<const int64_t> count) const = 0;
  // For messages: "FILE: NAME".
  virtual const std::string& place() const = 0;
};

class ArrayStore {
 public:
  virtual ~ArrayStore() = default;

  virtual const std::filesystem::path& path() const = 0;
  virtual std::vector<std::string> names() const = 0;  // of the arrays, sorted
  virtual bool has(const std::string& name) const = 0;
  // kNoInput, kDataErr: not there or not readable.
  virtual Result<std::unique_ptr<StoredArray>> open(const std::string& name) const = 0;
  // Changes where the store or one of the arrays with these names was written again.
  virtual std::string fingerprint(std::span<const std::string> names) const = 0;
};

// A folder is a zarr group, a file is HDF5. kNoInput: not there. kDataErr: a file that is not HDF5.
Result<std::unique_ptr<ArrayStore>> open_store(const std::filesystem::path& path, zarr::MissingChunks missing);

}  // namespace oarlock
