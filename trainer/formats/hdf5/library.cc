#include "trainer/formats/hdf5/library.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace oarlock {
namespace {

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>, "library.h assumes these types");

Hdf5Handle string_type(size_t size, int64_t file_type) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), size);
  H5Tset_cset(type.get(), H5Tget_cset(file_type));
  if (size != H5T_VARIABLE) H5Tset_strpad(type.get(), H5Tget_strpad(file_type));
  return type;
}

// Returns `type` itself, or a compound type with this single member, with which the library reads only the member.
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
                                            bool space_padded, int64_t count, const Hdf5Read& read) {
  std::string bytes(static_cast<size_t>(count) * width, '\0');
  if (!read(type.get(), bytes.data())) return hdf5_call_failed(place, "cannot be read");
  std::vector<std::string> strings;
  strings.reserve(static_cast<size_t>(count));
  for (size_t at = 0; at < bytes.size(); at += width) {
    std::string text(bytes, at, ::strnlen(bytes.data() + at, width));
    while (space_padded && !text.empty() && text.back() == ' ') text.pop_back();
    strings.push_back(std::move(text));
  }
  return strings;
}

}  // namespace

Hdf5Quiet::Hdf5Quiet() {
  H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Quiet::~Hdf5Quiet() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

std::string hdf5_reason() {
  std::string reason;
  // The first entry is the innermost: the cause, followed by the operations that failed because of it.
  const auto take_first = [](unsigned /*depth*/, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 1;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  return reason;
}

tl::unexpected<Error> hdf5_fail(const Hdf5Place& place, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {} {}", place.file, place.path, what));
}

tl::unexpected<Error> hdf5_call_failed(const Hdf5Place& place, const std::string& what) {
  const std::string reason = hdf5_reason();
  return hdf5_fail(place, fmt::format("{}{}{}; the file is truncated or damaged: fetch or write it again", what,
                                      reason.empty() ? "" : ": ", reason));
}

Result<std::vector<std::string>> read_hdf5_strings(const Hdf5Place& place, int64_t file_type, int64_t count,
                                                   const std::string& member, const Hdf5Read& read) {
  if (H5Tget_class(file_type) != H5T_STRING) return hdf5_fail(place, "does not contain strings");
  if (count == 0) return std::vector<std::string>();
  if (H5Tis_variable_str(file_type) > 0) {
    return read_variable(place, as_member(string_type(H5T_VARIABLE, file_type), member), count, read);
  }
  const size_t width = H5Tget_size(file_type);
  return read_fixed(place, as_member(string_type(width, file_type), member), width,
                    H5Tget_strpad(file_type) == H5T_STR_SPACEPAD, count, read);
}

}  // namespace oarlock
