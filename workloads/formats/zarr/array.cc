#include "workloads/formats/zarr/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/files.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::zarr {
namespace {

// ---- Chunks ----------------------------------------------------------------------------------------------------

// The positions of the chunks of a shard in its file, in row-major order of their numbers within the shard.
struct ShardIndex {
  static constexpr uint64_t kAbsent = ~uint64_t{0};  // offset and size of a chunk that is not stored
  struct Entry {
    uint64_t offset;
    uint64_t size;
  };
  std::vector<Entry> entries;
};

// Reads and decodes the chunks of an array, one at a time. Not thread-safe; each thread uses its own reader.
class ChunkReader {
 public:
  // `directory` and `metadata` must outlive the reader.
  ChunkReader(const std::filesystem::path& directory, const ArrayMetadata& metadata)
      : directory_(directory), metadata_(metadata) {}

  // Returns the elements of the chunk with these numbers, row-major and little-endian, or nothing if the chunk is not
  // stored. Returns kDataErr if it is truncated or damaged. Messages name the file and the chunk.
  Result<std::optional<std::vector<uint8_t>>> read(std::span<const int64_t> numbers);

  // Returns "DIRECTORY: chunk [0, 2] (DIRECTORY/c/0/2)" for messages.
  std::string place(std::span<const int64_t> numbers) const;

 private:
  struct Shard {
    std::string key;
    std::optional<MappedFile> file;  // empty if the shard is not stored
    ShardIndex index;
  };

  // Returns the numbers of the file that contains a chunk: those of its shard if the array is sharded.
  Shape file_numbers(std::span<const int64_t> numbers) const;
  Result<std::optional<std::vector<uint8_t>>> read_from_shard(std::span<const int64_t> numbers);
  Result<void> open_shard(const std::string& key);

  const std::filesystem::path& directory_;
  const ArrayMetadata& metadata_;
  std::optional<Shard> shard_;  // the shard that was read last
};

using Bytes = std::vector<uint8_t>;
using OptionalBytes = std::optional<Bytes>;

// Applies the decoders in reverse order of encoding. `size` is the expected number of bytes. Intermediate results are
// limited to the size that an encoder could have produced from it.
Result<Bytes> decode_all(const std::vector<ByteCodec>& codecs, std::span<const uint8_t> bytes, size_t size) {
  const size_t limit = codecs.size() > 1 ? size + size / 8 + 4096 : size;
  Bytes current;
  if (codecs.empty()) current.assign(bytes.begin(), bytes.begin() + std::ptrdiff_t(std::min(bytes.size(), size)));
  for (size_t i = codecs.size(); i > 0; --i) {
    const bool first = i == codecs.size();
    ASSIGN_OR_RETURN(current, decode(codecs[i - 1], first ? bytes : std::span<const uint8_t>(current), limit));
  }
  const size_t found = codecs.empty() ? bytes.size() : current.size();
  if (found != size)
    return fail(ExitCode::kDataErr, fmt::format("is {}: expected {} bytes of elements, found {}",
                                                found < size ? "truncated" : "damaged", size, found));
  return current;
}

void swap_bytes(Bytes& bytes, size_t element_size) {
  for (size_t i = 0; i < bytes.size(); i += element_size) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + element_size));
  }
}

// Returns an array that was stored with permuted axes in the axis order of the chunk.
Bytes undo_transpose(const Bytes& stored, const std::vector<size_t>& order, std::span<const int64_t> shape,
                     size_t element_size) {
  const size_t axes = shape.size();
  std::vector<size_t> stride_of_axis(axes);  // in the stored array
  size_t stride = element_size;
  for (size_t i = axes; i > 0; --i) {
    stride_of_axis[order[i - 1]] = stride;
    stride *= static_cast<size_t>(shape[order[i - 1]]);
  }
  Bytes out(stored.size());
  std::vector<int64_t> index(axes, 0);
  size_t from = 0;
  for (size_t to = 0; to < out.size(); to += element_size) {
    std::memcpy(&out[to], &stored[from], element_size);
    for (size_t axis = axes; axis > 0; --axis) {
      from += stride_of_axis[axis - 1];
      if (++index[axis - 1] < shape[axis - 1]) break;
      from -= stride_of_axis[axis - 1] * static_cast<size_t>(shape[axis - 1]);
      index[axis - 1] = 0;
    }
  }
  return out;
}

// Decodes a chunk to its elements in row-major order, little-endian. The message of kDataErr does not name the chunk.
Result<Bytes> decode_chunk(std::span<const uint8_t> bytes, const ArrayMetadata& metadata) {
  const size_t element_size = metadata.type.size;
  size_t size = element_size;
  for (const int64_t length : metadata.chunk) size *= static_cast<size_t>(length);
  ASSIGN_OR_RETURN(Bytes elements, decode_all(metadata.encoding.codecs, bytes, size));
  if (metadata.encoding.big_endian) swap_bytes(elements, element_size);
  if (metadata.encoding.transpose.empty()) return elements;
  return undo_transpose(elements, metadata.encoding.transpose, metadata.chunk, element_size);
}

// Decodes the index of a shard of `chunks` chunks and checks that every chunk is inside the file.
Result<ShardIndex> decode_shard_index(std::span<const uint8_t> shard, const Sharding& sharding, size_t chunks) {
  const size_t decoded_size = chunks * sizeof(ShardIndex::Entry);
  const size_t size = decoded_size + sharding.index_codecs.size() * sizeof(uint32_t);
  if (shard.size() < size) return fail(ExitCode::kDataErr, fmt::format("is truncated: {} bytes", shard.size()));
  constexpr uint64_t kCopies = 2;
  RETURN_IF_ERROR(expect_memory(chunks, kCopies * sizeof(ShardIndex::Entry), "the index of the shard"));
  const std::span<const uint8_t> stored = sharding.index_at_end ? shard.last(size) : shard.first(size);
  const Result<Bytes> bytes = decode_all(sharding.index_codecs, stored, decoded_size);
  if (!bytes) return fail(bytes.error().code, "has an index that " + bytes.error().message);
  ShardIndex index;
  index.entries.resize(chunks);
  std::memcpy(index.entries.data(), bytes->data(), bytes->size());
  for (const auto& [offset, length] : index.entries) {
    const bool absent = offset == ShardIndex::kAbsent && length == ShardIndex::kAbsent;
    if (!absent && (offset > shard.size() || length > shard.size() - offset))
      return fail(ExitCode::kDataErr,
                  fmt::format("is truncated: {} bytes, but a chunk ends at byte {}", shard.size(), offset + length));
  }
  return index;
}

// Returns nothing if the file does not exist.
Result<std::optional<MappedFile>> map_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return MappedFile::open(path, MappedFile::Access::kSequential).map([](MappedFile file) {
    return std::optional<MappedFile>(std::move(file));
  });
}

std::string ChunkReader::place(std::span<const int64_t> numbers) const {
  return fmt::format("{}: chunk [{}] ({})", directory_.string(), fmt::join(numbers, ", "),
                     (directory_ / metadata_.key(file_numbers(numbers))).string());
}

Result<OptionalBytes> ChunkReader::read(std::span<const int64_t> numbers) {
  const auto with_place = [&](Error error) {
    error.message = fmt::format("{} {}", place(numbers), error.message);
    return error;
  };
  if (!metadata_.sharding.empty()) return read_from_shard(numbers).map_error(with_place);
  ASSIGN_OR_RETURN(const std::optional<MappedFile> file, map_file(directory_ / metadata_.key(numbers)));
  if (!file) return std::nullopt;
  return decode_chunk(file->bytes(), metadata_)
      .map([](Bytes elements) { return OptionalBytes(std::move(elements)); })
      .map_error(with_place);
}

Shape ChunkReader::file_numbers(std::span<const int64_t> numbers) const {
  Shape out(numbers.begin(), numbers.end());
  if (metadata_.sharding.empty()) return out;
  for (size_t axis = 0; axis < out.size(); ++axis)
    out[axis] /= metadata_.sharding[0].shape[axis] / metadata_.chunk[axis];
  return out;
}

Result<void> ChunkReader::open_shard(const std::string& key) {
  if (shard_ && shard_->key == key) return {};
  shard_.reset();
  Shard shard{key, std::nullopt, {}};
  ASSIGN_OR_RETURN(shard.file, map_file(directory_ / key));
  if (shard.file) {
    size_t chunks = 1;
    for (size_t axis = 0; axis < metadata_.chunk.size(); ++axis)
      chunks *= static_cast<size_t>(metadata_.sharding[0].shape[axis] / metadata_.chunk[axis]);
    ASSIGN_OR_RETURN(shard.index, decode_shard_index(shard.file->bytes(), metadata_.sharding[0], chunks));
  }
  shard_ = std::move(shard);
  return {};
}

Result<OptionalBytes> ChunkReader::read_from_shard(std::span<const int64_t> numbers) {
  RETURN_IF_ERROR(open_shard(metadata_.key(file_numbers(numbers))));
  if (!shard_->file) return std::nullopt;
  size_t index_in_shard = 0;
  for (size_t axis = 0; axis < numbers.size(); ++axis) {
    const int64_t chunks = metadata_.sharding[0].shape[axis] / metadata_.chunk[axis];
    index_in_shard = index_in_shard * static_cast<size_t>(chunks) + static_cast<size_t>(numbers[axis] % chunks);
  }
  const auto [offset, size] = shard_->index.entries[index_in_shard];
  if (offset == ShardIndex::kAbsent) return std::nullopt;
  return decode_chunk(shard_->file->bytes().subspan(offset, size), metadata_).map([](Bytes elements) {
    return OptionalBytes(std::move(elements));
  });
}

// ---- Array -----------------------------------------------------------------------------------------------------

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;

constexpr int kMaxDepth = 100;  // nesting of the metadata, including attributes of other programs
constexpr size_t kMaxMetadataBytes = size_t{16} << 20;

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
  ASSIGN_OR_RETURN(const std::string text, read_regular_file(file, kMaxMetadataBytes));
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

Result<Array> Array::open(const fs::path& directory, MissingChunks missing) {
  std::error_code ignored;
  const auto opened = [&](ArrayMetadata metadata) { return Array(directory, std::move(metadata), missing); };
  if (const fs::path v3 = directory / "zarr.json"; fs::exists(v3, ignored))
    return read_metadata(v3, parse_v3).map(opened);
  if (const fs::path v2 = directory / ".zarray"; fs::exists(v2, ignored))
    return read_metadata(v2, parse_v2).map(opened);
  return fail(ExitCode::kNoInput,
              fmt::format("{}: not a zarr array: it contains neither zarr.json nor .zarray", directory.string()));
}

Result<Bytes> Array::read(std::span<const int64_t> begin, std::span<const int64_t> count) const {
  check_box(shape(), begin, count);
  const size_t size = metadata_.type.size;
  constexpr uint64_t kCopies = 2;  // read_doubles() converts the elements
  RETURN_IF_ERROR(expect_memory(static_cast<uint64_t>(product(count)), kCopies * sizeof(double), directory_.string()));
  RETURN_IF_ERROR(expect_memory(static_cast<uint64_t>(product(chunk())), size, "a chunk of " + directory_.string()));
  Bytes out(static_cast<size_t>(product(count)) * size);
  if (out.empty()) return out;
  Shape first(begin.size());
  Shape last(begin.size());
  for (size_t axis = 0; axis < begin.size(); ++axis) {
    first[axis] = begin[axis] / chunk()[axis];
    last[axis] = (begin[axis] + count[axis] - 1) / chunk()[axis];
  }
  ChunkReader reader(directory_, metadata_);
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
  if (metadata_.fill.empty()) {
    return fail(ExitCode::kDataErr, place + " is missing, and the array has no fill value: copy the array again");
  }
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
  visit_directory(group, [&names](const fs::path& path) {
    std::error_code ignored;
    const bool v2 = fs::exists(path / ".zarray", ignored);
    if (v2 || Array::open(path).has_value()) names.push_back(path.filename());
  });
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace oarlock::zarr
