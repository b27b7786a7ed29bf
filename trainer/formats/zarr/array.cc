#include "trainer/formats/zarr/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/formats/zarr/chunk_reader.h"

namespace oarlock::zarr {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;

constexpr int kMaxDepth = 100;  // nesting of the metadata, including attributes of other programs

int64_t product(std::span<const int64_t> sizes) {
  int64_t out = 1;
  for (const int64_t size : sizes) out *= size;
  return out;
}

// Copies the intersection of a chunk and a box. All sizes are in elements, row-major.
class BoxCopy {
 public:
  BoxCopy(std::span<const int64_t> chunk, std::span<const int64_t> begin, std::span<const int64_t> count,
          size_t element_size)
      : chunk_(chunk), begin_(begin), count_(count), element_size_(element_size) {}

  void copy(std::span<const int64_t> numbers, const Bytes& from, Bytes& to) const { visit(numbers, 0, 0, 0, from, to); }

 private:
  void visit(std::span<const int64_t> numbers, size_t axis, int64_t from, int64_t to, const Bytes& source,
             Bytes& target) const {
    if (axis == chunk_.size()) {
      std::memcpy(&target[bytes(to)], &source[bytes(from)], element_size_);
      return;
    }
    const int64_t first = numbers[axis] * chunk_[axis];
    const int64_t low = std::max(first, begin_[axis]);
    const int64_t high = std::min(first + chunk_[axis], begin_[axis] + count_[axis]);
    const int64_t from_here = from * chunk_[axis] + low - first;
    const int64_t to_here = to * count_[axis] + low - begin_[axis];
    if (axis + 1 == chunk_.size()) {
      std::memcpy(&target[bytes(to_here)], &source[bytes(from_here)], bytes(high - low));
      return;
    }
    for (int64_t i = 0; i < high - low; ++i) visit(numbers, axis + 1, from_here + i, to_here + i, source, target);
  }

  size_t bytes(int64_t elements) const { return static_cast<size_t>(elements) * element_size_; }

  std::span<const int64_t> chunk_;
  std::span<const int64_t> begin_;
  std::span<const int64_t> count_;
  size_t element_size_;
};

// Advances to the next chunk of a box of chunks. Returns false after the last one.
bool advance(Shape& numbers, const Shape& first, const Shape& last) {
  for (size_t axis = numbers.size(); axis > 0; --axis) {
    if (++numbers[axis - 1] <= last[axis - 1]) return true;
    numbers[axis - 1] = first[axis - 1];
  }
  return false;
}

void check_box(const Shape& shape, std::span<const int64_t> begin, std::span<const int64_t> count) {
  bool inside = begin.size() == shape.size() && count.size() == shape.size();
  for (size_t axis = 0; inside && axis < shape.size(); ++axis)
    inside = begin[axis] >= 0 && count[axis] >= 0 && begin[axis] <= shape[axis] - count[axis];
  if (!inside)
    throw std::out_of_range(fmt::format("a box at [{}] of shape [{}] is not inside an array of shape [{}]",
                                        fmt::join(begin, ", "), fmt::join(count, ", "), fmt::join(shape, ", ")));
}

Result<ArrayMetadata> read_metadata(const fs::path& file, Result<ArrayMetadata> (*parse)(const Json&)) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file));
  if (json_depth(text) > kMaxDepth)
    return fail(ExitCode::kDataErr, fmt::format("{}: nested deeper than {} levels", file.string(), kMaxDepth));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return fail(ExitCode::kDataErr, fmt::format("{}: not JSON", file.string()));
  return parse(json).map_error([&](Error error) {
    error.message = fmt::format("{}: {}", file.string(), error.message);
    return error;
  });
}

}  // namespace

Result<Array> Array::open(const fs::path& folder, MissingChunks missing) {
  std::error_code ignored;
  const auto opened = [&](ArrayMetadata metadata) { return Array(folder, std::move(metadata), missing); };
  if (const fs::path v3 = folder / "zarr.json"; fs::exists(v3, ignored)) return read_metadata(v3, parse_v3).map(opened);
  if (const fs::path v2 = folder / ".zarray"; fs::exists(v2, ignored)) return read_metadata(v2, parse_v2).map(opened);
  return fail(ExitCode::kNoInput,
              fmt::format("{}: not a zarr array: it contains neither zarr.json nor .zarray", folder.string()));
}

Result<Bytes> Array::read(std::span<const int64_t> begin, std::span<const int64_t> count) const {
  check_box(shape(), begin, count);
  const size_t size = metadata_.type.size;
  Bytes out(static_cast<size_t>(product(count)) * size);
  if (out.empty()) return out;
  Shape first(begin.size());
  Shape last(begin.size());
  for (size_t axis = 0; axis < begin.size(); ++axis) {
    first[axis] = begin[axis] / chunk()[axis];
    last[axis] = (begin[axis] + count[axis] - 1) / chunk()[axis];
  }
  ChunkReader reader(folder_, metadata_);
  const BoxCopy box(chunk(), begin, count, size);
  Shape numbers = first;
  do {
    ASSIGN_OR_RETURN(std::optional<Bytes> elements, reader.read(numbers));
    if (!elements) {
      ASSIGN_OR_RETURN(elements, missing_chunk(reader.place(numbers)));
    }
    box.copy(numbers, *elements, out);
  } while (advance(numbers, first, last));
  return out;
}

Result<Bytes> Array::missing_chunk(const std::string& place) const {
  if (missing_ == MissingChunks::kError) {
    return fail(ExitCode::kDataErr, place +
                                        " is missing: copy the array again, or set missing_chunks: fill if its "
                                        "writer omits chunks that contain only the fill value");
  }
  const size_t size = metadata_.type.size;
  Bytes elements(static_cast<size_t>(product(chunk())) * size);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = metadata_.fill[i % size];
  return elements;
}

Result<std::vector<double>> Array::read_doubles(std::span<const int64_t> begin, std::span<const int64_t> count) const {
  return read(begin, count).map([&](const Bytes& bytes) {
    std::vector<double> values(bytes.size() / type().size);
    to_doubles(bytes, type(), values);
    return values;
  });
}

std::vector<std::string> array_names(const fs::path& group) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(group, ignored)) {
    const bool v2 = fs::exists(entry.path() / ".zarray", ignored);
    if (v2 || Array::open(entry.path()).has_value()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace oarlock::zarr
