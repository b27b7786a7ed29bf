// The chunks of an array, one after the other; for the files of this folder only.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/mapped_file.h"
#include "trainer/data/zarr/chunk_decoding.h"
#include "trainer/data/zarr/metadata.h"

namespace oarlock::zarr {

class ChunkReader {
 public:
  // Both outlive the reader.
  ChunkReader(const std::filesystem::path& folder, const ArrayMetadata& metadata)
      : folder_(folder), metadata_(metadata) {}

  // The elements of the chunk with these numbers; nothing where it is not stored. Errors name file and chunk.
  Result<std::optional<std::vector<uint8_t>>> read(std::span<const int64_t> numbers);

  // For messages: "FOLDER: chunk [0, 2] (FOLDER/c/0/2)".
  std::string place(std::span<const int64_t> numbers) const;

 private:
  struct Shard {
    std::string key;
    std::optional<MappedFile> file;  // nothing: not stored
    ShardIndex index;
  };

  Shape file_numbers(std::span<const int64_t> numbers) const;  // of the chunk's shard, where there are shards
  Result<std::optional<std::vector<uint8_t>>> read_from_shard(std::span<const int64_t> numbers);
  Result<void> open_shard(const std::string& key);

  const std::filesystem::path& folder_;
  const ArrayMetadata& metadata_;
  std::optional<Shard> shard_;  // the last one
};

}  // namespace oarlock::zarr
