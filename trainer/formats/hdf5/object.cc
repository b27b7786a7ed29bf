#include "trainer/formats/hdf5/object.h"

#include <fmt/format.h>
#include <hdf5.h>

#include "common/status_macros.h"

namespace oarlock {
namespace {

struct Attribute {
  Hdf5Place place;
  Hdf5Handle handle;
  Hdf5Handle type;
  int64_t count;
};

Result<Attribute> open_attribute(const Hdf5Handle& object, const Hdf5Place& owner, const std::string& name) {
  if (H5Aexists(object.get(), name.c_str()) <= 0) return hdf5_fail(owner, fmt::format("has no attribute {}", name));
  const Hdf5Place place = owner.attribute(name);
  Hdf5Handle handle(H5Aopen(object.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!handle.open()) return hdf5_call_failed(place, "cannot be opened");
  Hdf5Handle type(H5Aget_type(handle.get()), H5Tclose);
  const Hdf5Handle space(H5Aget_space(handle.get()), H5Sclose);
  const int64_t count = space.open() ? H5Sget_simple_extent_npoints(space.get()) : -1;
  if (!type.open() || count < 0) return hdf5_call_failed(place, "cannot be read");
  return Attribute{place, std::move(handle), std::move(type), count};
}

// Returns the value of an attribute that must have exactly one.
template <typename T>
Result<T> single_value(const Hdf5Place& owner, const std::string& name, Result<std::vector<T>> values) {
  ASSIGN_OR_RETURN(std::vector<T> all, std::move(values));
  if (all.size() != 1) return hdf5_fail(owner.attribute(name), fmt::format("has {} values, expected one", all.size()));
  return std::move(all.front());
}

}  // namespace

bool Hdf5Object::has_attribute(const std::string& name) const {
  const Hdf5Quiet quiet;
  return H5Aexists(handle_.get(), name.c_str()) > 0;
}

Result<std::vector<std::string>> Hdf5Object::strings_attribute(const std::string& name) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(const Attribute attribute, open_attribute(handle_, place_, name));
  return read_hdf5_strings(attribute.place, attribute.type.get(), attribute.count, "", [&](int64_t type, void* buffer) {
    return H5Aread(attribute.handle.get(), type, buffer) >= 0;
  });
}

Result<std::string> Hdf5Object::string_attribute(const std::string& name) const {
  return single_value(place_, name, strings_attribute(name));
}

Result<std::vector<int64_t>> Hdf5Object::integers_attribute(const std::string& name) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(const Attribute attribute, open_attribute(handle_, place_, name));
  if (H5Tget_class(attribute.type.get()) != H5T_INTEGER) return hdf5_fail(attribute.place, "does not contain integers");
  std::vector<int64_t> values(static_cast<size_t>(attribute.count));
  if (H5Aread(attribute.handle.get(), H5T_NATIVE_INT64, values.data()) < 0) {
    return hdf5_call_failed(attribute.place, "cannot be read");
  }
  return values;
}

Result<int64_t> Hdf5Object::integer_attribute(const std::string& name) const {
  return single_value(place_, name, integers_attribute(name));
}

Result<std::string> Hdf5Object::reference_attribute(const std::string& name) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(const Attribute attribute, open_attribute(handle_, place_, name));
  if (attribute.count != 1 || H5Tequal(attribute.type.get(), H5T_STD_REF_OBJ) <= 0) {
    return hdf5_fail(attribute.place, "is not an object reference");
  }
  hobj_ref_t reference = 0;
  if (H5Aread(attribute.handle.get(), H5T_STD_REF_OBJ, &reference) < 0) {
    return hdf5_call_failed(attribute.place, "cannot be read");
  }
  const ssize_t length = H5Rget_name(handle_.get(), H5R_OBJECT, &reference, nullptr, 0);
  if (length <= 0) return hdf5_call_failed(attribute.place, "points to no object");
  std::string path(static_cast<size_t>(length), '\0');
  H5Rget_name(handle_.get(), H5R_OBJECT, &reference, path.data(), path.size() + 1);
  return path;
}

}  // namespace oarlock
