#include "workloads/formats/hdf5/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <numeric>
#include <optional>
#include <system_error>

#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "workloads/formats/hdf5/library.h"

namespace oarlock {
namespace {

constexpr char kInOtherFile[] =
    ", which is not supported, because that file may change or be missing; copy it into this file";

// Access to objects by their paths that does not follow links to other files: their target may be a named pipe, which
// would never be opened, and their changes are not detected.
class LinkAccess {
 public:
  LinkAccess() : properties_(H5Pcreate(H5P_LINK_ACCESS), H5Pclose) {
    H5Pset_elink_cb(properties_.get(), reject, &other_file_);
  }
  LinkAccess(const LinkAccess&) = delete;
  LinkAccess& operator=(const LinkAccess&) = delete;

  // Returns the handle of the object at `path`. It is not open if there is none.
  Hdf5Handle try_open(const Hdf5Handle& group, const std::string& path) {
    return Hdf5Handle(H5Oopen(group.get(), path.c_str(), properties_.get()), H5Oclose);
  }

  // Returns whether every link of the path exists. The library's own check fails on a missing intermediate link.
  bool is_linked(const Hdf5Handle& group, const std::string& path) {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      if (H5Lexists(group.get(), path.substr(0, end).c_str(), properties_.get()) <= 0) return false;
      if (end == std::string::npos) return true;
    }
  }

  // The file of a link that was not followed; empty if there was none.
  const std::string& other_file() const { return other_file_; }

 private:
  static herr_t reject(const char* /*file*/, const char* /*group*/, const char* other_file, const char* /*path*/,
                       unsigned* /*flags*/, hid_t /*access*/, void* out) {
    *static_cast<std::string*>(out) = other_file;
    return -1;
  }

  std::string other_file_;
  Hdf5Handle properties_;
};

Hdf5Handle try_open(const Hdf5Handle& group, const std::string& path) { return LinkAccess().try_open(group, path); }

bool is_linked(const Hdf5Handle& group, const std::string& path) { return LinkAccess().is_linked(group, path); }

// Fails if the elements of a dataset are in other files.
Result<void> expect_own_elements(const Hdf5Handle& dataset, const Hdf5Place& place) {
  const Hdf5Handle properties(H5Dget_create_plist(dataset.get()), H5Pclose);
  if (!properties.open()) return hdf5_call_failed(place, "has unreadable properties");
  if (H5Pget_layout(properties.get()) == H5D_VIRTUAL)
    return hdf5_fail(place, fmt::format("is a virtual dataset of other files{}", kInOtherFile));
  if (H5Pget_external_count(properties.get()) != 0)
    return hdf5_fail(place, fmt::format("has its elements in another file{}", kInOtherFile));
  return {};
}

// Returns the name of a filter of the dataset that the library does not have; empty if it has all of them.
std::string missing_filter(const Hdf5Handle& dataset) {
  constexpr size_t kMaxName = 80;
  constexpr size_t kMaxValues = 20;
  const Hdf5Handle properties(H5Dget_create_plist(dataset.get()), H5Pclose);
  const int filters = properties.open() ? H5Pget_nfilters(properties.get()) : 0;
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    size_t values = kMaxValues;
    std::array<unsigned, kMaxValues> value{};
    std::array<char, kMaxName + 1> name{};
    const H5Z_filter_t filter = H5Pget_filter2(properties.get(), static_cast<unsigned>(i), &flags, &values,
                                               value.data(), kMaxName, name.data(), nullptr);
    if (filter < 0 || H5Zfilter_avail(filter) > 0) continue;
    return fmt::format("{} (number {})", name[0] == '\0' ? "without a name" : shortened(name.data()), filter);
  }
  return "";
}

tl::unexpected<Error> filter_fail(const Hdf5Place& place, const std::string& filter) {
  return hdf5_fail(place, fmt::format("is compressed with the filter {}, which this program does not have; write the "
                                      "file again with gzip (compression=\"gzip\" in h5py and anndata)",
                                      filter));
}

bool is_type(const Hdf5Handle& object, H5I_type_t type) { return object.open() && H5Iget_type(object.get()) == type; }

// More than the factor by which deflate compresses zeros. A file that states more elements than this for its size is
// damaged, or was never written.
constexpr uint64_t kMaxExpansion = 4096;
constexpr uint64_t kAnyFile = 1 << 20;             // elements that are accepted for any size
constexpr uint64_t kNumberBytes = sizeof(double);  // of the largest number in memory

Hdf5Kind kind_of(int64_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_ENUM:  // h5py's booleans
      return Hdf5Kind::kInteger;
    case H5T_FLOAT:
      return Hdf5Kind::kFloat;
    case H5T_STRING:
      return Hdf5Kind::kString;
    case H5T_COMPOUND:
      return Hdf5Kind::kCompound;
    default:
      return Hdf5Kind::kOther;
  }
}

bool is_number(Hdf5Kind kind) { return kind == Hdf5Kind::kInteger || kind == Hdf5Kind::kFloat; }

Result<std::vector<int64_t>> shape_of(const Hdf5Handle& dataset, const Hdf5Place& place) {
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = space.open() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank < 0) return hdf5_call_failed(place, "has an unreadable shape");
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  std::vector<int64_t> shape;
  hsize_t elements = 1;
  for (const hsize_t dim : dims) {
    const hsize_t factor = std::max<hsize_t>(dim, 1);  // [0, 2^40, 2^40] would overflow
    if (elements > (hsize_t{1} << 62) / factor) {
      return hdf5_fail(place, fmt::format("has invalid dimensions {}", fmt::join(dims, " x ")));
    }
    elements *= factor;
    shape.push_back(static_cast<int64_t>(dim));
  }
  return shape;
}

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
  LinkAccess access;
  const bool is_known = access.is_linked(handle(), path);
  Hdf5Handle object = is_known ? access.try_open(handle(), path) : Hdf5Handle(-1, H5Oclose);
  if (!access.other_file().empty())
    return hdf5_fail(there, fmt::format("is in another file, '{}'{}", shortened(access.other_file()), kInOtherFile));
  if (!is_known) return hdf5_fail(there, "does not exist");
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
  LinkAccess access;
  const bool is_dataset = access.is_linked(handle(), path) && is_type(access.try_open(handle(), path), H5I_DATASET);
  return is_dataset || !access.other_file().empty();
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

Hdf5Dataset::Hdf5Dataset(Hdf5Handle handle, Hdf5Place place, std::vector<int64_t> shape, Hdf5Kind kind)
    : Hdf5Object(std::move(handle), std::move(place)),
      shape_(std::move(shape)),
      row_size_(
          std::accumulate(shape_.begin() + (shape_.empty() ? 0 : 1), shape_.end(), int64_t{1}, std::multiplies<>())),
      kind_(kind) {}

Result<Hdf5Dataset> Hdf5Dataset::from_handle(Hdf5Handle handle, Hdf5Place place) {
  const Hdf5Quiet quiet;
  RETURN_IF_ERROR(expect_own_elements(handle, place));  // first: the shape of a virtual dataset can be that of others
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, shape_of(handle, place));
  const Hdf5Handle type(H5Dget_type(handle.get()), H5Tclose);
  if (!type.open()) return hdf5_call_failed(place, "has an unreadable type");
  const Hdf5Kind kind = kind_of(type.get());
  return Hdf5Dataset(std::move(handle), std::move(place), std::move(shape), kind);
}

Result<void> Hdf5Dataset::expect_dimensions(int64_t dimensions) const {
  if (static_cast<int64_t>(shape_.size()) == dimensions) return {};
  return hdf5_fail(place(), fmt::format("has {} dimension(s) ({}), expected {}", shape_.size(),
                                        fmt::join(shape_, " x "), dimensions));
}

Result<void> Hdf5Dataset::expect_rows(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || count > rows() - first) {
    return hdf5_fail(place(),
                     fmt::format("has {} row(s); rows {} to {} are out of range", rows(), first, first + count));
  }
  return expect_stored(count * row_size_, kNumberBytes);
}

// Checks that the file can contain so many elements. The sizes in a file may have any values.
Result<void> Hdf5Dataset::expect_in_file(int64_t elements) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(const uint64_t bytes_of_file, file_bytes());
  const auto count = static_cast<uint64_t>(elements);
  if (count > kAnyFile && count / kMaxExpansion > bytes_of_file) {
    return hdf5_fail(place(), fmt::format("has {} elements, which a file of {} bytes cannot contain; the file is "
                                          "truncated or damaged: fetch or write it again",
                                          count, bytes_of_file));
  }
  return {};
}

// Checks also that there is memory for them.
Result<void> Hdf5Dataset::expect_stored(int64_t elements, uint64_t element_bytes) const {
  return expect_in_file(elements).and_then([&] {
    return expect_memory(static_cast<uint64_t>(elements), element_bytes,
                         fmt::format("{}: {}", place().file, place().path));
  });
}

template <Hdf5Number T>
int64_t Hdf5Dataset::native_type() {
  if constexpr (std::same_as<T, int8_t>) return H5T_NATIVE_INT8;
  if constexpr (std::same_as<T, uint8_t>) return H5T_NATIVE_UINT8;
  if constexpr (std::same_as<T, int16_t>) return H5T_NATIVE_INT16;
  if constexpr (std::same_as<T, uint16_t>) return H5T_NATIVE_UINT16;
  if constexpr (std::same_as<T, int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::same_as<T, uint32_t>) return H5T_NATIVE_UINT32;
  if constexpr (std::same_as<T, int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::same_as<T, uint64_t>) return H5T_NATIVE_UINT64;
  if constexpr (std::same_as<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::same_as<T, double>) return H5T_NATIVE_DOUBLE;
}

template int64_t Hdf5Dataset::native_type<int8_t>();
template int64_t Hdf5Dataset::native_type<uint8_t>();
template int64_t Hdf5Dataset::native_type<int16_t>();
template int64_t Hdf5Dataset::native_type<uint16_t>();
template int64_t Hdf5Dataset::native_type<int32_t>();
template int64_t Hdf5Dataset::native_type<uint32_t>();
template int64_t Hdf5Dataset::native_type<int64_t>();
template int64_t Hdf5Dataset::native_type<uint64_t>();
template int64_t Hdf5Dataset::native_type<float>();
template int64_t Hdf5Dataset::native_type<double>();

Result<void> Hdf5Dataset::read_numbers(int64_t first, int64_t count, int64_t memory_type, void* out) const {
  RETURN_IF_ERROR(expect_rows(first, count));
  std::vector<int64_t> begin(shape_.size(), 0);
  std::vector<int64_t> extent = shape_;
  if (!shape_.empty()) {
    begin.front() = first;
    extent.front() = count;
  }
  return read_selected(begin, extent, memory_type, out);
}

Result<void> Hdf5Dataset::read_selected(std::span<const int64_t> begin, std::span<const int64_t> count,
                                        int64_t memory_type, void* out) const {
  const Hdf5Quiet quiet;
  if (!is_number(kind_)) return hdf5_fail(place(), "does not contain numbers");
  const int64_t size = std::accumulate(count.begin(), count.end(), int64_t{1}, std::multiplies<>());
  if (size == 0) return {};
  const Hdf5Handle file_space(H5Dget_space(handle().get()), H5Sclose);
  if (!shape_.empty()) {
    const std::vector<hsize_t> start(begin.begin(), begin.end());
    const std::vector<hsize_t> extent(count.begin(), count.end());
    H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr);
  }
  const auto elements = static_cast<hsize_t>(size);
  const Hdf5Handle memory_space(H5Screate_simple(1, &elements, nullptr), H5Sclose);
  if (H5Dread(handle().get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, out) < 0) {
    const std::string rows =
        shape_.empty() ? "" : fmt::format(" (rows {} to {})", begin.front(), begin.front() + count.front());
    return read_failed(place(), "cannot be read" + rows);
  }
  return {};
}

// For a failed call of the library that reads elements.
tl::unexpected<Error> Hdf5Dataset::read_failed(const Hdf5Place& place, const std::string& what) const {
  tl::unexpected<Error> failed =
      hdf5_call_failed(place, what);  // first: the next call of the library clears its reason
  const std::string filter = missing_filter(handle());
  return filter.empty() ? failed : filter_fail(place, filter);
}

Result<std::vector<double>> Hdf5Dataset::read_box(std::span<const int64_t> begin,
                                                  std::span<const int64_t> count) const {
  bool inside = begin.size() == shape_.size() && count.size() == shape_.size();
  for (size_t axis = 0; inside && axis < shape_.size(); ++axis)
    inside = begin[axis] >= 0 && count[axis] >= 0 && begin[axis] <= shape_[axis] - count[axis];
  if (!inside) {
    return hdf5_fail(place(), fmt::format("has shape {}: a box at [{}] of shape [{}] is out of range",
                                          fmt::join(shape_, " x "), fmt::join(begin, ", "), fmt::join(count, ", ")));
  }
  // All elements: chunks that were never written are read as zeros, in blocks of any number.
  RETURN_IF_ERROR(expect_in_file(rows() * row_size_));
  const int64_t elements = std::accumulate(count.begin(), count.end(), int64_t{1}, std::multiplies<>());
  RETURN_IF_ERROR(expect_memory(static_cast<uint64_t>(elements), sizeof(double),
                                fmt::format("{}: {}", place().file, place().path)));
  std::vector<double> out(static_cast<size_t>(elements));
  RETURN_IF_ERROR(read_selected(begin, count, H5T_NATIVE_DOUBLE, out.data()));
  return out;
}

Result<std::vector<std::string>> Hdf5Dataset::read_strings() const {
  const Hdf5Quiet quiet;
  const Hdf5Handle type(H5Dget_type(handle().get()), H5Tclose);
  return read_strings_as(place(), type, "");
}

std::vector<std::string> Hdf5Dataset::members() const {
  std::vector<std::string> names;
  if (kind_ != Hdf5Kind::kCompound) return names;
  const Hdf5Handle type(H5Dget_type(handle().get()), H5Tclose);
  const int count = H5Tget_nmembers(type.get());
  for (int i = 0; i < count; ++i) {
    char* name = H5Tget_member_name(type.get(), static_cast<unsigned>(i));
    names.emplace_back(name);
    H5free_memory(name);
  }
  return names;
}

Result<Hdf5Handle> Hdf5Dataset::member_type(const std::string& member) const {
  const Hdf5Handle type(H5Dget_type(handle().get()), H5Tclose);
  const int index = kind_ == Hdf5Kind::kCompound ? H5Tget_member_index(type.get(), member.c_str()) : -1;
  if (index < 0) {
    return hdf5_fail(place(), fmt::format("has no column {}; its columns are {}", member, fmt::join(members(), ", ")));
  }
  return Hdf5Handle(H5Tget_member_type(type.get(), static_cast<unsigned>(index)), H5Tclose);
}

Result<Hdf5Kind> Hdf5Dataset::member_kind(const std::string& member) const {
  const Hdf5Quiet quiet;
  return member_type(member).map([](const Hdf5Handle& type) { return kind_of(type.get()); });
}

Result<std::vector<std::string>> Hdf5Dataset::read_member_strings(const std::string& member) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(const Hdf5Handle type, member_type(member));
  return read_strings_as(place().below(member), type, member);
}

Result<std::vector<std::string>> Hdf5Dataset::read_strings_as(const Hdf5Place& strings, const Hdf5Handle& type,
                                                              const std::string& member) const {
  RETURN_IF_ERROR(expect_stored(size(), sizeof(std::string)));
  ASSIGN_OR_RETURN(const uint64_t bytes_of_file, file_bytes());
  const Hdf5Reads reads{
      .read =
          [&](int64_t memory_type, void* buffer) {
            return H5Dread(handle().get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer) >= 0;
          },
      .file_bytes = bytes_of_file,
      .text_bytes = [&](int64_t memory_type, uint64_t enough) { return text_bytes(memory_type, enough); }};
  Result<std::vector<std::string>> read = read_hdf5_strings(strings, type.get(), size(), member, reads);
  if (!read && H5Tget_class(type.get()) == H5T_STRING) {
    if (const std::string filter = missing_filter(handle()); !filter.empty()) return filter_fail(strings, filter);
  }
  return read;
}

Result<uint64_t> Hdf5Dataset::file_bytes() const {
  const Hdf5Quiet quiet;
  const Hdf5Handle file(H5Iget_file_id(handle().get()), H5Fclose);
  hsize_t bytes = 0;
  if (!file.open() || H5Fget_filesize(file.get(), &bytes) < 0) return hdf5_call_failed(place(), "cannot be read");
  return uint64_t{bytes};
}

// Returns the bytes of all strings of variable length, or a number above `enough` if they have more. The library reads
// them for that, a block at a time.
std::optional<uint64_t> Hdf5Dataset::text_bytes(int64_t memory_type, uint64_t enough) const {
  constexpr int64_t kBlock = 1 << 10;  // elements
  const int64_t block = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, row_size_));
  const Hdf5Handle space(H5Dget_space(handle().get()), H5Sclose);
  uint64_t total = 0;
  for (int64_t first = 0; first < rows() && total <= enough; first += block) {
    if (!shape_.empty()) {
      std::vector<hsize_t> begin(shape_.size(), 0);
      std::vector<hsize_t> extent(shape_.begin(), shape_.end());
      begin.front() = static_cast<hsize_t>(first);
      extent.front() = static_cast<hsize_t>(std::min(block, rows() - first));
      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr);
    }
    hsize_t bytes = 0;
    if (H5Dvlen_get_buf_size(handle().get(), memory_type, space.get(), &bytes) < 0) return std::nullopt;
    total += bytes;
  }
  return total;
}

Result<std::vector<double>> Hdf5Dataset::read_member_numbers(const std::string& member) const {
  const Hdf5Quiet quiet;
  ASSIGN_OR_RETURN(const Hdf5Handle type, member_type(member));
  if (!is_number(kind_of(type.get()))) return hdf5_fail(place().below(member), "does not contain numbers");
  RETURN_IF_ERROR(expect_stored(size(), kNumberBytes));
  const Hdf5Handle memory_type(H5Tcreate(H5T_COMPOUND, sizeof(double)), H5Tclose);
  H5Tinsert(memory_type.get(), member.c_str(), 0, H5T_NATIVE_DOUBLE);
  std::vector<double> out(static_cast<size_t>(size()));
  if (H5Dread(handle().get(), memory_type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0) {
    return read_failed(place().below(member), "cannot be read");
  }
  return out;
}

}  // namespace oarlock
