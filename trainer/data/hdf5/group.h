// A group of an HDF5 file; the root group is the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/data/hdf5/dataset.h"
#include "trainer/data/hdf5/object.h"

namespace oarlock {

class Hdf5Group : public Hdf5Object {
 public:
  // The root group of a file, opened to be read, without the library's lock on it: it may be on a read-only file system
  // or on NFS. The file is closed with the last object of it. kNoInput: not there. kDataErr: not HDF5, or truncated.
  static Result<Hdf5Group> open_file(const std::filesystem::path& path);

  // `path` is relative to the group, e.g. "X/data". kDataErr, naming file and path: not there, or the other kind of
  // object.
  Result<Hdf5Group> group(const std::string& path) const;
  Result<Hdf5Dataset> dataset(const std::string& path) const;
  bool has(const std::string& path) const;  // either
  bool has_group(const std::string& path) const;
  bool has_dataset(const std::string& path) const;

  // Of what lies directly in the group, by name.
  Result<std::vector<std::string>> names() const;

 private:
  Hdf5Group(Hdf5Handle handle, Hdf5Place place) : Hdf5Object(std::move(handle), std::move(place)) {}

  Result<Hdf5Handle> open(const std::string& path) const;
};

}  // namespace oarlock
