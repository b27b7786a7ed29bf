// A group or a dataset of an HDF5 file: where it is, and its attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/hdf5/handle.h"
#include "trainer/data/hdf5/library.h"

namespace oarlock {

class Hdf5Object {
 public:
  const Hdf5Place& place() const { return place_; }

  bool has_attribute(const std::string& name) const;

  // kDataErr, naming file, path and attribute: not there, or of another type or size.
  Result<std::string> string_attribute(const std::string& name) const;
  Result<std::vector<std::string>> strings_attribute(const std::string& name) const;
  Result<int64_t> integer_attribute(const std::string& name) const;
  Result<std::vector<int64_t>> integers_attribute(const std::string& name) const;
  // The path of the object that a reference points to, as pandas' categories of AnnData before 0.7 do.
  Result<std::string> reference_attribute(const std::string& name) const;

 protected:
  Hdf5Object(Hdf5Handle handle, Hdf5Place place) : handle_(std::move(handle)), place_(std::move(place)) {}

  const Hdf5Handle& handle() const { return handle_; }

 private:
  Hdf5Handle handle_;
  Hdf5Place place_;
};

}  // namespace oarlock
