// From the bytes of a chunk's file to its elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/zarr/metadata.h"

namespace oarlock::zarr {

// The elements of a chunk in row-major order, little-endian. kDataErr: truncated, damaged, of another size than its
// shape's; the message says what, but not where.
Result<std::vector<uint8_t>> decode_chunk(std::span<const uint8_t> bytes, const Encoding& encoding,
                                          std::span<const int64_t> shape, size_t element_size);

// Where the chunks of a shard lie in its file, in row-major order of their numbers within the shard.
struct ShardIndex {
  static constexpr uint64_t kAbsent = ~uint64_t{0};  // of a chunk that is not stored: offset and size
  struct Entry {
    uint64_t offset;
    uint64_t size;
  };
  std::vector<Entry> entries;
};

Result<ShardIndex> decode_shard_index(std::span<const uint8_t> shard, const Sharding& sharding, size_t chunks);

}  // namespace oarlock::zarr
