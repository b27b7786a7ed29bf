// A group of an HDF5 file. The root group represents the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/formats/hdf5/dataset.h"
#include "trainer/formats/hdf5/library.h"

namespace oarlock {

class Hdf5Group : public Hdf5Object {
 public:
  // Opens a file for reading and returns its root group. The library's file locking is disabled, because the file may
  // be on a read-only file system or on NFS. The file is closed when the last object of it is destroyed. Returns
  // kNoInput if the file does not exist, and kDataErr if it is truncated or not an HDF5 file.
  static Result<Hdf5Group> open_file(const std::filesystem::path& path);

  // Open an object. `path` is relative to the group, for example "X/data". Return kDataErr, naming the file and the
  // path, if it does not exist or is the other kind of object.
  Result<Hdf5Group> group(const std::string& path) const;
  Result<Hdf5Dataset> dataset(const std::string& path) const;

  bool has(const std::string& path) const;  // a group or a dataset
  bool has_group(const std::string& path) const;
  bool has_dataset(const std::string& path) const;

  // Returns the names of the direct members of the group, sorted.
  Result<std::vector<std::string>> names() const;

 private:
  Hdf5Group(Hdf5Handle handle, Hdf5Place place) : Hdf5Object(std::move(handle), std::move(place)) {}

  Result<Hdf5Handle> open(const std::string& path) const;
};

}  // namespace oarlock
