#include "trainer/formats/hdf5/group.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <cerrno>
#include <system_error>

#include "common/status_macros.h"

namespace oarlock {
namespace {

// Returns the handle of the object at `path`. It is not open if there is none.
Hdf5Handle try_open(const Hdf5Handle& group, const std::string& path) {
  return Hdf5Handle(H5Oopen(group.get(), path.c_str(), H5P_DEFAULT), H5Oclose);
}

// Returns whether every link of the path exists. The library's own check fails on a missing intermediate link.
bool is_linked(const Hdf5Handle& group, const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    if (H5Lexists(group.get(), path.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

bool is_type(const Hdf5Handle& object, H5I_type_t type) { return object.open() && H5Iget_type(object.get()) == type; }

}  // namespace

Result<Hdf5Group> Hdf5Group::open_file(const std::filesystem::path& path) {
  const Hdf5Quiet quiet;
  const Hdf5Place place{.file = path.string(), .path = "/"};
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) return fail_errno(error.value(), fmt::format("{}: cannot be opened", place.file));
  if (!std::filesystem::is_regular_file(status)) {
    return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", place.file));
  }
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), 0, 1);
  const Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file.open()) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: cannot be opened as HDF5: {}; is it complete?", place.file, hdf5_reason()));
  }
  Hdf5Handle root(H5Oopen(file.get(), "/", H5P_DEFAULT), H5Oclose);
  if (!root.open()) return hdf5_call_failed(place, "cannot be opened");
  return Hdf5Group(std::move(root), place);
}

Result<Hdf5Handle> Hdf5Group::open(const std::string& path) const {
  const Hdf5Place there = place().below(path);
  if (!is_linked(handle(), path)) return hdf5_fail(there, "does not exist");
  Hdf5Handle object = try_open(handle(), path);
  if (!object.open()) return hdf5_call_failed(there, "cannot be opened");
  return object;
}

Result<Hdf5Group> Hdf5Group::group(const std::string& path) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(Hdf5Handle object, open(path));
  const Hdf5Place there = place().below(path);
  if (!is_type(object, H5I_GROUP)) return hdf5_fail(there, "is a dataset, expected a group");
  return Hdf5Group(std::move(object), there);
}

Result<Hdf5Dataset> Hdf5Group::dataset(const std::string& path) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(Hdf5Handle object, open(path));
  const Hdf5Place there = place().below(path);
  if (!is_type(object, H5I_DATASET)) return hdf5_fail(there, "is a group, expected a dataset");
  return Hdf5Dataset::from_handle(std::move(object), there);
}

bool Hdf5Group::has(const std::string& path) const {
  const Hdf5Quiet quiet;
  return is_linked(handle(), path);
}

bool Hdf5Group::has_group(const std::string& path) const {
  const Hdf5Quiet quiet;
  return is_linked(handle(), path) && is_type(try_open(handle(), path), H5I_GROUP);
}

bool Hdf5Group::has_dataset(const std::string& path) const {
  const Hdf5Quiet quiet;
  return is_linked(handle(), path) && is_type(try_open(handle(), path), H5I_DATASET);
}

Result<std::vector<std::string>> Hdf5Group::names() const {
  const Hdf5Quiet quiet;
  std::vector<std::string> names;
  const auto add_name = [](hid_t /*group*/, const char* name, const H5L_info_t* /*link*/, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  if (H5Literate(handle().get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add_name, &names) < 0) {
    return hdf5_call_failed(place(), "cannot be listed");
  }
  return names;
}

}  // namespace oarlock
