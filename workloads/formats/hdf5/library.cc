#include "workloads/formats/hdf5/library.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/text.h"

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
                                               const Hdf5Reads& reads) {
  if (reads.text_bytes) {
    constexpr uint64_t kCopies = 2;  // the library's and ours
    const std::optional<uint64_t> bytes = reads.text_bytes(type.get(), reads.file_bytes);
    if (!bytes) return hdf5_call_failed(place, "cannot be read");
    if (*bytes > reads.file_bytes) {
      return hdf5_fail(place,
                       fmt::format("has strings of more than {} bytes, the size of the file; the file is damaged: "
                                   "fetch or write it again",
                                   reads.file_bytes));
    }
    RETURN_IF_ERROR(expect_memory(*bytes, kCopies, fmt::format("{}: {}", place.file, place.path)));
  }
  std::vector<char*> pointers(static_cast<size_t>(count), nullptr);
  if (!reads.read(type.get(), pointers.data())) return hdf5_call_failed(place, "cannot be read");
  std::vector<std::string> strings;
  strings.reserve(pointers.size());
  for (const char* pointer : pointers) strings.push_back(to_utf8(pointer == nullptr ? "" : pointer));
  const auto size = static_cast<hsize_t>(count);
  const Hdf5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data());
  return strings;
}

Result<std::vector<std::string>> read_fixed(const Hdf5Place& place, const Hdf5Handle& type, size_t width,
                                            bool space_padded, int64_t count, const Hdf5Reads& reads) {
  RETURN_IF_ERROR(expect_memory(static_cast<uint64_t>(count), width + sizeof(std::string),
                                fmt::format("{}: {}", place.file, place.path)));
  std::string bytes(static_cast<size_t>(count) * width, '\0');
  if (!reads.read(type.get(), bytes.data())) return hdf5_call_failed(place, "cannot be read");
  std::vector<std::string> strings;
  strings.reserve(static_cast<size_t>(count));
  for (size_t at = 0; at < bytes.size(); at += width) {
    std::string text(bytes, at, ::strnlen(bytes.data() + at, width));
    while (space_padded && !text.empty() && text.back() == ' ') text.pop_back();
    strings.push_back(to_utf8(std::move(text)));
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
                                                   const std::string& member, const Hdf5Reads& reads) {
  if (H5Tget_class(file_type) != H5T_STRING) return hdf5_fail(place, "does not contain strings");
  if (count == 0) return std::vector<std::string>();
  if (H5Tis_variable_str(file_type) > 0) {
    return read_variable(place, as_member(string_type(H5T_VARIABLE, file_type), member), count, reads);
  }
  const size_t width = H5Tget_size(file_type);
  return read_fixed(place, as_member(string_type(width, file_type), member), width,
                    H5Tget_strpad(file_type) == H5T_STR_SPACEPAD, count, reads);
}

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
  RETURN_IF_ERROR(
      expect_memory(static_cast<uint64_t>(count), sizeof(std::string), fmt::format("{}: {}", place.file, place.path)));
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
  const auto read = [&](int64_t type, void* buffer) { return H5Aread(attribute.handle.get(), type, buffer) >= 0; };
  return read_hdf5_strings(attribute.place, attribute.type.get(), attribute.count, "",
                           {.read = read, .file_bytes = 0, .text_bytes = nullptr});
}

Result<std::string> Hdf5Object::string_attribute(const std::string& name) const {
  const Hdf5Quiet quiet;
  // Many values could share the bytes of one string, and need more memory than the size of the file.
  ASSIGN_OR_RETURN(const Attribute attribute, open_attribute(handle_, place_, name));
  if (attribute.count != 1)
    return hdf5_fail(attribute.place, fmt::format("has {} values, expected one", attribute.count));
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
