// What the metadata of a zarr array says: .zarray of version 2, zarr.json of version 3. Pure: from JSON to a struct.
// https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html and .../v3/core
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/zarr/byte_codec.h"
#include "trainer/data/zarr/element_type.h"

namespace oarlock::zarr {

using Shape = std::vector<int64_t>;

// How the array of one chunk becomes bytes, in the order of writing.
struct Encoding {
  std::vector<size_t> transpose;  // axis i of what is stored is axis transpose[i] of the chunk; empty: as it is
  bool big_endian = false;
  std::vector<ByteCodec> codecs;
};

// A shard: a file that holds many chunks, and where each of them lies.
struct Sharding {
  Shape shape;  // elements of a shard along each axis
  std::vector<ByteCodec> index_codecs;
  bool index_at_end = true;
};

struct ArrayMetadata {
  Shape shape;
  Shape chunk;  // elements of a chunk along each axis; of those within a shard where there are shards
  ElementType type;
  std::vector<uint8_t> fill;  // one element, little-endian: the value of chunks that are not stored
  Encoding encoding;
  std::vector<Sharding> sharding;  // none or one
  std::string key_prefix;          // of a chunk's file, as "c/"
  char key_separator = '.';        // between the chunk's numbers

  // The file of a chunk (or shard) by its numbers, below the array's folder.
  std::string key(std::span<const int64_t> numbers) const;
};

// kDataErr: not such metadata, or something that is not supported; the message names the member, but no file.
Result<ArrayMetadata> parse_v2(const nlohmann::json& zarray);
Result<ArrayMetadata> parse_v3(const nlohmann::json& zarr_json);

}  // namespace oarlock::zarr
