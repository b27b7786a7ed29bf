// Reads and decodes the chunks of a zarr array, one at a time. Internal to trainer/formats/zarr.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "trainer/formats/zarr/metadata.h"

namespace oarlock::zarr {

// The positions of the chunks of a shard in its file, in row-major order of their numbers within the shard.
struct ShardIndex {
  static constexpr uint64_t kAbsent = ~uint64_t{0};  // offset and size of a chunk that is not stored
  struct Entry {
    uint64_t offset;
    uint64_t size;
  };
  std::vector<Entry> entries;
};

// Not thread-safe; each thread uses its own reader.
class ChunkReader {
 public:
  // `folder` and `metadata` must outlive the reader.
  ChunkReader(const std::filesystem::path& folder, const ArrayMetadata& metadata)
      : folder_(folder), metadata_(metadata) {}

  // Returns the elements of the chunk with these numbers, row-major and little-endian, or nothing if the chunk is not
  // stored. Returns kDataErr if it is truncated or damaged. Messages name the file and the chunk.
  Result<std::optional<std::vector<uint8_t>>> read(std::span<const int64_t> numbers);

  // Returns "FOLDER: chunk [0, 2] (FOLDER/c/0/2)" for messages.
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

  const std::filesystem::path& folder_;
  const ArrayMetadata& metadata_;
  std::optional<Shard> shard_;  // the shard that was read last
};

}  // namespace oarlock::zarr
