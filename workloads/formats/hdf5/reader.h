// Reading of HDF5 files: groups, and datasets of numbers, strings or compounds in any number of dimensions.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workloads/formats/hdf5/library.h"

namespace oarlock {

// The types as which numbers can be read.
template <typename T>
concept Hdf5Number =
    std::same_as<T, int8_t> || std::same_as<T, uint8_t> || std::same_as<T, int16_t> || std::same_as<T, uint16_t> ||
    std::same_as<T, int32_t> || std::same_as<T, uint32_t> || std::same_as<T, int64_t> || std::same_as<T, uint64_t> ||
    std::same_as<T, float> || std::same_as<T, double>;

enum class Hdf5Kind { kInteger, kFloat, kString, kCompound, kOther };  // booleans are integers 0 and 1

// Rows are the slices along dimension 0; a scalar is one row. Reading returns kDataErr with file, path and rows if a
// chunk is truncated or damaged, or uses a filter that the library does not have, and if the file is too small to
// contain the rows; and kOsErr if there is not enough memory for them. Thread-safe; the library serializes all calls
// with one lock.
class Hdf5Dataset : public Hdf5Object {
 public:
  // Called by Hdf5Group.
  static Result<Hdf5Dataset> from_handle(Hdf5Handle handle, Hdf5Place place);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t rows() const { return shape_.empty() ? 1 : shape_.front(); }
  int64_t row_size() const { return row_size_; }  // elements
  int64_t size() const { return rows() * row_size_; }
  Hdf5Kind kind() const { return kind_; }

  // Returns kDataErr if the dataset has another number of dimensions.
  Result<void> expect_dimensions(int64_t dimensions) const;

  // Read numbers of any type, converted to T. Values outside the range of T become its nearest value.
  template <Hdf5Number T>
  Result<std::vector<T>> read() const {
    return read_rows<T>(0, rows());
  }
  template <Hdf5Number T>
  Result<std::vector<T>> read_rows(int64_t first, int64_t count) const {
    if (const Result<void> fits = expect_rows(first, count); !fits) return tl::make_unexpected(fits.error());
    std::vector<T> out(static_cast<size_t>(count * row_size_));
    return read_rows(first, count, std::span<T>(out)).map([&] { return std::move(out); });
  }
  // Reads into `out`, which must have count * row_size() elements.
  template <Hdf5Number T>
  Result<void> read_rows(int64_t first, int64_t count, std::span<T> out) const {
    return read_numbers(first, count, native_type<T>(), out.data());
  }

  // Reads the elements [begin, begin + count) along each axis in row-major order. Returns kDataErr if the box is not
  // inside the dataset.
  Result<std::vector<double>> read_box(std::span<const int64_t> begin, std::span<const int64_t> count) const;

  Result<std::vector<std::string>> read_strings() const;

  // For compound types: the names of the members in order, and one member of all elements.
  std::vector<std::string> members() const;
  Result<Hdf5Kind> member_kind(const std::string& member) const;
  Result<std::vector<std::string>> read_member_strings(const std::string& member) const;
  Result<std::vector<double>> read_member_numbers(const std::string& member) const;

 private:
  Hdf5Dataset(Hdf5Handle handle, Hdf5Place place, std::vector<int64_t> shape, Hdf5Kind kind);

  template <Hdf5Number T>
  static int64_t native_type();

  Result<void> expect_rows(int64_t first, int64_t count) const;
  Result<void> expect_in_file(int64_t elements) const;
  Result<void> expect_stored(int64_t elements, uint64_t element_bytes) const;
  Result<std::vector<std::string>> read_strings_as(const Hdf5Place& strings, const Hdf5Handle& type,
                                                   const std::string& member) const;
  Result<uint64_t> file_bytes() const;
  std::optional<uint64_t> text_bytes(int64_t memory_type, uint64_t enough) const;
  Result<void> read_numbers(int64_t first, int64_t count, int64_t memory_type, void* out) const;
  tl::unexpected<Error> read_failed(const Hdf5Place& place, const std::string& what) const;
  Result<void> read_selected(std::span<const int64_t> begin, std::span<const int64_t> count, int64_t memory_type,
                             void* out) const;
  Result<Hdf5Handle> member_type(const std::string& member) const;

  std::vector<int64_t> shape_;
  int64_t row_size_;
  Hdf5Kind kind_;
};

// A group of an HDF5 file. The root group represents the file.
class Hdf5Group : public Hdf5Object {
 public:
  // Opens a file for reading and returns its root group. The library's file locking is disabled, because the file may
  // be on a read-only file system or on NFS. The file is closed when the last object of it is destroyed. Returns
  // kNoInput if the file does not exist, and kDataErr if it is truncated or not an HDF5 file.
  static Result<Hdf5Group> open_file(const std::filesystem::path& path);

  // Open an object. `path` is relative to the group, for example "X/data". Return kDataErr, naming the file and the
  // path, if it does not exist or is the other kind of object, and if it, or its elements, are in another file.
  Result<Hdf5Group> group(const std::string& path) const;
  Result<Hdf5Dataset> dataset(const std::string& path) const;

  bool has(const std::string& path) const;  // a group or a dataset
  bool has_group(const std::string& path) const;
  bool has_dataset(const std::string& path) const;  // also if it is in another file, which dataset() rejects

  // Returns the names of the direct members of the group, sorted.
  Result<std::vector<std::string>> names() const;

 private:
  Hdf5Group(Hdf5Handle handle, Hdf5Place place) : Hdf5Object(std::move(handle), std::move(place)) {}

  Result<Hdf5Handle> open(const std::string& path) const;
};

}  // namespace oarlock
