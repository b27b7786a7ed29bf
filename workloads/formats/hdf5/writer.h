// Writes small HDF5 files for generators and tests.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace oarlock {

// A new file, which the destructor closes. Paths are those of the objects in the file; the parent of an object must
// exist. Every failure throws std::runtime_error. Not thread-safe.
class Hdf5Writer {
 public:
  // Replaces an existing file.
  explicit Hdf5Writer(const std::filesystem::path& path)
      : file_(check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT))) {}
  ~Hdf5Writer() { H5Fclose(file_); }
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  hid_t file() const { return file_; }

  // Creates an empty group.
  void group(const std::string& path) {
    H5Gclose(check(H5Gcreate2(file_, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  }

  // Writes a dataset of numbers. `chunk` is the number of rows of a compressed chunk; 0 means a contiguous layout.
  template <typename T>
  void numbers(const std::string& path, const std::vector<T>& values, std::vector<hsize_t> shape, hsize_t chunk = 0) {
    const hid_t set = dataset(path, native<T>(), shape, chunk);
    if (!values.empty()) check(H5Dwrite(set, native<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    H5Dclose(set);
  }

  // Creates a dataset without writing elements: they are zero until H5Dwrite_chunk writes them. The caller closes it.
  hid_t dataset(const std::string& path, hid_t type, const std::vector<hsize_t>& shape, hsize_t chunk) {
    const hid_t space = check(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
    const hid_t properties = check(H5Pcreate(H5P_DATASET_CREATE));
    if (chunk > 0) {
      std::vector<hsize_t> chunks = shape;
      chunks.front() = chunk;
      H5Pset_chunk(properties, static_cast<int>(chunks.size()), chunks.data());
      H5Pset_deflate(properties, 1);
    }
    const hid_t set = check(H5Dcreate2(file_, path.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT));
    H5Pclose(properties);
    H5Sclose(space);
    return set;
  }

  // Writes a dataset of UTF-8 strings of variable length, with one dimension.
  void strings(const std::string& path, const std::vector<std::string>& values) {
    const hid_t type = variable_string();
    const hid_t set = dataset(path, type, {values.size()}, 0);
    const std::vector<const char*> pointers = pointers_of(values);
    if (!values.empty()) check(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()));
    H5Dclose(set);
    H5Tclose(type);
  }

  // Writes an attribute of an existing object: a string, or a list of strings or of numbers.
  void attribute(const std::string& object, const std::string& name, const std::string& value) {
    const hid_t type = variable_string();
    const char* pointer = value.c_str();
    write_attribute(object, name, type, check(H5Screate(H5S_SCALAR)), static_cast<const void*>(&pointer));
    H5Tclose(type);
  }

  void attribute(const std::string& object, const std::string& name, const std::vector<std::string>& values) {
    const hid_t type = variable_string();
    const hsize_t size = values.size();
    const std::vector<const char*> pointers = pointers_of(values);
    write_attribute(object, name, type, check(H5Screate_simple(1, &size, nullptr)),
                    static_cast<const void*>(pointers.data()));
    H5Tclose(type);
  }

  void attribute(const std::string& object, const std::string& name, const std::vector<int64_t>& values) {
    const hsize_t size = values.size();
    write_attribute(object, name, H5T_NATIVE_INT64, check(H5Screate_simple(1, &size, nullptr)), values.data());
  }

  // Returns the type in the file and in memory of a C++ type. The library owns it.
  template <typename T>
  static hid_t native() {
    if constexpr (std::is_same_v<T, int8_t>) return H5T_NATIVE_INT8;
    if constexpr (std::is_same_v<T, int32_t>) return H5T_NATIVE_INT32;
    if constexpr (std::is_same_v<T, int64_t>) return H5T_NATIVE_INT64;
    if constexpr (std::is_same_v<T, uint8_t>) return H5T_NATIVE_UINT8;
    if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
    if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
  }

  // Throws if the library reported a failure. Does not close anything.
  template <typename Id>
  static Id check(Id id) {
    if (id < 0) throw std::runtime_error("the HDF5 library failed to write");
    return id;
  }

 private:
  static hid_t variable_string() {
    const hid_t type = check(H5Tcopy(H5T_C_S1));
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
  }

  static std::vector<const char*> pointers_of(const std::vector<std::string>& values) {
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    return pointers;
  }

  void write_attribute(const std::string& object, const std::string& name, hid_t type, hid_t space, const void* data) {
    const hid_t owner = check(H5Oopen(file_, object.c_str(), H5P_DEFAULT));
    const hid_t attribute = check(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT));
    check(H5Awrite(attribute, type, data));
    H5Aclose(attribute);
    H5Sclose(space);
    H5Oclose(owner);
  }

  hid_t file_;
};

}  // namespace oarlock
