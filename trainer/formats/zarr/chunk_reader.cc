#include "trainer/formats/zarr/chunk_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "common/status_macros.h"

namespace oarlock::zarr {
namespace {

using Bytes = std::vector<uint8_t>;
using OptionalBytes = std::optional<Bytes>;

// Applies the decoders in reverse order of encoding. `size` is the expected number of bytes. Intermediate results are
// limited to the size that an encoder could have produced from it.
Result<Bytes> decode_all(const std::vector<ByteCodec>& codecs, std::span<const uint8_t> bytes, size_t size) {
  const size_t limit = codecs.size() > 1 ? size + size / 8 + 4096 : size;
  Bytes current(codecs.empty() ? bytes.begin() : bytes.end(), bytes.end());
  for (size_t i = codecs.size(); i > 0; --i) {
    const bool first = i == codecs.size();
    ASSIGN_OR_RETURN(current, decode(codecs[i - 1], first ? bytes : std::span<const uint8_t>(current), limit));
  }
  if (current.size() != size)
    return fail(ExitCode::kDataErr, fmt::format("is {}: expected {} bytes of elements, found {}",
                                                current.size() < size ? "truncated" : "damaged", size, current.size()));
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

}  // namespace

std::string ChunkReader::place(std::span<const int64_t> numbers) const {
  return fmt::format("{}: chunk [{}] ({})", folder_.string(), fmt::join(numbers, ", "),
                     (folder_ / metadata_.key(file_numbers(numbers))).string());
}

Result<OptionalBytes> ChunkReader::read(std::span<const int64_t> numbers) {
  const auto with_place = [&](Error error) {
    error.message = fmt::format("{} {}", place(numbers), error.message);
    return error;
  };
  if (!metadata_.sharding.empty()) return read_from_shard(numbers).map_error(with_place);
  ASSIGN_OR_RETURN(const std::optional<MappedFile> file, map_file(folder_ / metadata_.key(numbers)));
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
  ASSIGN_OR_RETURN(shard.file, map_file(folder_ / key));
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

}  // namespace oarlock::zarr
