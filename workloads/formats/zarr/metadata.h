// The metadata of a zarr array: .zarray of version 2, and zarr.json of version 3. Parsing does no I/O.
// https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html and .../v3/core
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "workloads/formats/zarr/codec.h"

namespace oarlock::zarr {

using Shape = std::vector<int64_t>;

// How the elements of one chunk are encoded as bytes, in the order of encoding.
struct Encoding {
  std::vector<size_t> transpose;  // axis i of the stored array is axis transpose[i] of the chunk; empty: not transposed
  bool big_endian = false;
  std::vector<ByteCodec> codecs;
};

// A shard is a file that contains many chunks and an index of their offsets.
struct Sharding {
  Shape shape;  // elements of a shard along each axis
  std::vector<ByteCodec> index_codecs;
  bool index_at_end = true;
};

struct ArrayMetadata {
  Shape shape;
  Shape chunk;  // elements of a chunk along each axis; with sharding, of a chunk within a shard
  ElementType type;
  std::vector<uint8_t> fill;  // the fill value: one little-endian element; empty if there is none
  Encoding encoding;
  std::vector<Sharding> sharding;  // none or one
  std::string key_prefix;          // of the file of a chunk, for example "c/"
  char key_separator = '.';        // between the numbers of a chunk

  // Returns the path of the file of a chunk (or shard), relative to the directory of the array.
  std::string key(std::span<const int64_t> numbers) const;
};

// Parse the metadata of one version. Return kDataErr if it is invalid or uses an unsupported feature. The message names
// the member, but not the file.
Result<ArrayMetadata> parse_v2(const nlohmann::json& zarray);
Result<ArrayMetadata> parse_v3(const nlohmann::json& zarr_json);

}  // namespace oarlock::zarr
