#include "trainer/data/hdf5/strings.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <cstring>

#include "trainer/data/hdf5/handle.h"

namespace oarlock {
namespace {

Hdf5Handle string_type(size_t size, int64_t file_type) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), size);
  H5Tset_cset(type.get(), H5Tget_cset(file_type));
  if (size != H5T_VARIABLE) H5Tset_strpad(type.get(), H5Tget_strpad(file_type));
  return type;
}

// `type` itself, or a compound type of that one member: the library then reads nothing but the member.
Hdf5Handle as_member(Hdf5Handle type, const std::string& member) {
  if (member.empty()) return type;
  Hdf5Handle compound(H5Tcreate(H5T_COMPOUND, H5Tget_size(type.get())), H5Tclose);
  H5Tinsert(compound.get(), member.c_str(), 0, type.get());
  return compound;
}

Result<std::vector<std::string>> read_variable(const Hdf5Place& place, const Hdf5Handle& type, int64_t count,
                                               const Hdf5Read& read) {
  std::vector<char*> pointers(static_cast<size_t>(count), nullptr);
  if (!read(type.get(), pointers.data())) return hdf5_call_failed(place, "cannot be read");
  std::vector<std::string> strings;
  strings.reserve(pointers.size());
  for (const char* pointer : pointers) strings.emplace_back(pointer == nullptr ? "" : pointer);
  const auto size = static_cast<hsize_t>(count);
  const Hdf5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data());
  return strings;
}

Result<std::vector<std::string>> read_fixed(const Hdf5Place& place, const Hdf5Handle& type, size_t width,
                                            bool blank_padded, int64_t count, const Hdf5Read& read) {
  std::string bytes(static_cast<size_t>(count) * width, '\0');
  if (!read(type.get(), bytes.data())) return hdf5_call_failed(place, "cannot be read");
  std::vector<std::string> strings;
  strings.reserve(static_cast<size_t>(count));
  for (size_t at = 0; at < bytes.size(); at += width) {
    std::string text(bytes, at, ::strnlen(bytes.data() + at, width));
    while (blank_padded && !text.empty() && text.back() == ' ') text.pop_back();
    strings.push_back(std::move(text));
  }
  return strings;
}

}  // namespace

Result<std::vector<std::string>> read_hdf5_strings(const Hdf5Place& place, int64_t file_type, int64_t count,
                                                   const std::string& member, const Hdf5Read& read) {
  if (H5Tget_class(file_type) != H5T_STRING) return hdf5_fail(place, "holds no strings");
  if (count == 0) return std::vector<std::string>();
  if (H5Tis_variable_str(file_type) > 0) {
    return read_variable(place, as_member(string_type(H5T_VARIABLE, file_type), member), count, read);
  }
  const size_t width = H5Tget_size(file_type);
  return read_fixed(place, as_member(string_type(width, file_type), member), width,
                    H5Tget_strpad(file_type) == H5T_STR_SPACEPAD, count, read);
}

}  // namespace oarlock
