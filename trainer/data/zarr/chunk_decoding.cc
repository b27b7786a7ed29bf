#include "trainer/data/zarr/chunk_decoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace oarlock::zarr {
namespace {

using Bytes = std::vector<uint8_t>;

// Undoes the codecs, the last first. Nothing may become larger than what an intermediate codec could have made of
// `size` bytes.
Result<Bytes> undo(const std::vector<ByteCodec>& codecs, std::span<const uint8_t> bytes, size_t size) {
  const size_t limit = codecs.size() > 1 ? size + size / 8 + 4096 : size;
  Bytes current(codecs.empty() ? bytes.begin() : bytes.end(), bytes.end());
  for (size_t i = codecs.size(); i > 0; --i) {
    const bool first = i == codecs.size();
    Result<Bytes> decoded = decode(codecs[i - 1], first ? bytes : std::span<const uint8_t>(current), limit);
    if (!decoded) return decoded;
    current = std::move(*decoded);
  }
  if (current.size() != size)
    return fail(ExitCode::kDataErr, fmt::format("is {}: {} bytes of elements where {} are expected",
                                                current.size() < size ? "truncated" : "damaged", current.size(), size));
  return current;
}

void swap_bytes(Bytes& bytes, size_t element_size) {
  for (size_t i = 0; i < bytes.size(); i += element_size) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + element_size));
  }
}

// What was stored with its axes in another order, in the order of the chunk's.
Bytes restore_axes(const Bytes& stored, const std::vector<size_t>& order, std::span<const int64_t> shape,
                   size_t element_size) {
  const size_t axes = shape.size();
  std::vector<size_t> stride_of_axis(axes);  // in what is stored
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

}  // namespace

Result<Bytes> decode_chunk(std::span<const uint8_t> bytes, const Encoding& encoding, std::span<const int64_t> shape,
                           size_t element_size) {
  size_t size = element_size;
  for (const int64_t length : shape) size *= static_cast<size_t>(length);
  Result<Bytes> elements = undo(encoding.codecs, bytes, size);
  if (!elements) return elements;
  if (encoding.big_endian) swap_bytes(*elements, element_size);
  if (encoding.transpose.empty()) return elements;
  return restore_axes(*elements, encoding.transpose, shape, element_size);
}

Result<ShardIndex> decode_shard_index(std::span<const uint8_t> shard, const Sharding& sharding, size_t chunks) {
  const size_t decoded_size = chunks * sizeof(ShardIndex::Entry);
  const size_t size = decoded_size + sharding.index_codecs.size() * sizeof(uint32_t);
  if (shard.size() < size) return fail(ExitCode::kDataErr, fmt::format("is truncated: {} bytes", shard.size()));
  const std::span<const uint8_t> stored = sharding.index_at_end ? shard.last(size) : shard.first(size);
  const Result<Bytes> bytes = undo(sharding.index_codecs, stored, decoded_size).map_error([](Error error) {
    error.message = "has an index that " + error.message;
    return error;
  });
  if (!bytes) return tl::make_unexpected(bytes.error());
  ShardIndex index;
  index.entries.resize(chunks);
  std::memcpy(index.entries.data(), bytes->data(), bytes->size());
  for (const auto& [offset, length] : index.entries) {
    const bool absent = offset == ShardIndex::kAbsent && length == ShardIndex::kAbsent;
    if (!absent && (offset > shard.size() || length > shard.size() - offset))
      return fail(ExitCode::kDataErr,
                  fmt::format("is truncated: {} bytes where a chunk ends at {}", shard.size(), offset + length));
  }
  return index;
}

}  // namespace oarlock::zarr
