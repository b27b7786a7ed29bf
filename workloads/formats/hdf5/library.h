// The basis of the HDF5 classes: handles, error reporting, reading strings, and the common base of groups and datasets.
// Only Hdf5Place and Hdf5Object are used outside of workloads/formats/hdf5. No header of the library is included, so
// that users of these classes do not compile it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"

namespace oarlock {

// Owns an identifier of the HDF5 library.
class Hdf5Handle {
 public:
  using Close = int (*)(int64_t);  // H5Gclose and similar functions

  // A negative `id`, with which the library reports a failure, is not closed.
  Hdf5Handle(int64_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Handle() {
    if (open()) close_(id_);
  }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }

  bool open() const { return id_ >= 0; }
  int64_t get() const { return id_; }

 private:
  int64_t id_;
  Close close_;
};

// Disables the library's error printing on this thread while it exists. By default the library prints its error stack.
class Hdf5Quiet {
 public:
  Hdf5Quiet();
  ~Hdf5Quiet();
  Hdf5Quiet(const Hdf5Quiet&) = delete;
  Hdf5Quiet& operator=(const Hdf5Quiet&) = delete;

 private:
  int (*print_)(long, void*) = nullptr;
  void* data_ = nullptr;
};

// The location of an object: a file, and a path inside it such as "/obs/condition".
struct Hdf5Place {
  std::string file;
  std::string path;

  Hdf5Place below(const std::string& name) const { return {file, (path == "/" ? "/" : path + "/") + name}; }
  Hdf5Place attribute(const std::string& name) const { return {file, path + " (attribute " + name + ")"}; }
};

// Returns the library's reason for the last failed call on this thread, for example "inflate() failed", or an empty
// string if the library reported none. Call it while an Hdf5Quiet exists, before the next call of the library.
std::string hdf5_reason();

// Returns kDataErr with the message "FILE: PATH WHAT".
tl::unexpected<Error> hdf5_fail(const Hdf5Place& place, const std::string& what);

// Returns kDataErr for a failed call of the library: "FILE: PATH WHAT: REASON; REMEDY".
tl::unexpected<Error> hdf5_call_failed(const Hdf5Place& place, const std::string& what);

// How the strings of a dataset or an attribute are read.
struct Hdf5Reads {
  // Reads elements, converted to a memory type, into a buffer. Returns whether it succeeded.
  std::function<bool(int64_t memory_type, void* buffer)> read;
  // The size of the file, in which strings of variable length are not compressed.
  uint64_t file_bytes = 0;
  // Returns the bytes of all strings of variable length, several of which may share their bytes in the file, or a
  // number above `enough` if they have more; nothing if they cannot be read. Empty for an attribute.
  std::function<std::optional<uint64_t>(int64_t memory_type, uint64_t enough)> text_bytes;
};

// Reads `count` strings of type `file_type`, of fixed or variable length, from a dataset or an attribute. Trailing
// zeros of fixed-length strings, and trailing spaces of a space-padded type, are removed. Strings that are not UTF-8
// are read as Latin-1. If `member` is not empty, the elements are of a compound type, and `file_type` is the type of
// this member.
Result<std::vector<std::string>> read_hdf5_strings(const Hdf5Place& place, int64_t file_type, int64_t count,
                                                   const std::string& member, const Hdf5Reads& reads);

// The common base of groups and datasets of an HDF5 file: location and attributes.
class Hdf5Object {
 public:
  const Hdf5Place& place() const { return place_; }

  bool has_attribute(const std::string& name) const;

  // Read an attribute. They return kDataErr, naming the file, the path and the attribute, if the attribute does not
  // exist or has another type or number of values.
  Result<std::string> string_attribute(const std::string& name) const;
  Result<std::vector<std::string>> strings_attribute(const std::string& name) const;
  Result<int64_t> integer_attribute(const std::string& name) const;
  Result<std::vector<int64_t>> integers_attribute(const std::string& name) const;
  // Returns the path of the object that an object reference points to. AnnData before 0.7 stores the categories of
  // pandas in this way.
  Result<std::string> reference_attribute(const std::string& name) const;

 protected:
  Hdf5Object(Hdf5Handle handle, Hdf5Place place) : handle_(std::move(handle)), place_(std::move(place)) {}

  const Hdf5Handle& handle() const { return handle_; }

 private:
  Hdf5Handle handle_;
  Hdf5Place place_;
};

}  // namespace oarlock
