// The common base of groups and datasets of an HDF5 file: location and attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/formats/hdf5/library.h"

namespace oarlock {

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
  // Returns the path of the object that an object reference points to. AnnData before 0.7 stores pandas categories so.
  Result<std::string> reference_attribute(const std::string& name) const;

 protected:
  Hdf5Object(Hdf5Handle handle, Hdf5Place place) : handle_(std::move(handle)), place_(std::move(place)) {}

  const Hdf5Handle& handle() const { return handle_; }

 private:
  Hdf5Handle handle_;
  Hdf5Place place_;
};

}  // namespace oarlock
