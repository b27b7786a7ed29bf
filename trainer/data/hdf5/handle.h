// An identifier of the HDF5 library, closed where its owner ends. No header of the library is needed to hold one.
#pragma once

#include <cstdint>
#include <utility>

namespace oarlock {

class Hdf5Handle {
 public:
  using Close = int (*)(int64_t);  // H5Gclose and its like

  // A negative id is what the library gives where it failed: nothing is closed then.
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

}  // namespace oarlock
