// What every call of the HDF5 library here needs: silence, and the reason where it failed.
#pragma once

#include <string>

#include "common/error.h"

namespace oarlock {

// While it lives, the library prints nothing about this thread's failures. (It prints its whole stack by default.)
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

// Why the last call on this thread failed, in the library's words, e.g. "inflate() failed"; "" where it gave no reason.
// Only while an Hdf5Quiet lives, before the next call.
std::string hdf5_reason();

// Where something is: the file, and the path inside of it, e.g. "/obs/condition".
struct Hdf5Place {
  std::string file;
  std::string path;

  Hdf5Place below(const std::string& name) const { return {file, (path == "/" ? "/" : path + "/") + name}; }
  Hdf5Place attribute(const std::string& name) const { return {file, path + " (attribute " + name + ")"}; }
};

// kDataErr: "FILE: PATH WHAT".
tl::unexpected<Error> hdf5_fail(const Hdf5Place& place, const std::string& what);

// The same for a call of the library that failed: "FILE: PATH WHAT: REASON; REMEDY".
tl::unexpected<Error> hdf5_call_failed(const Hdf5Place& place, const std::string& what);

}  // namespace oarlock
