#include "trainer/data/zarr/chunk_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace oarlock::zarr {
namespace {

using Chunk = std::optional<std::vector<uint8_t>>;

// Nothing where there is no such file.
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

Shape ChunkReader::file_numbers(std::span<const int64_t> numbers) const {
  Shape out(numbers.begin(), numbers.end());
  if (metadata_.sharding.empty()) return out;
  for (size_t axis = 0; axis < out.size(); ++axis)
    out[axis] /= metadata_.sharding[0].shape[axis] / metadata_.chunk[axis];
  return out;
}

Result<Chunk> ChunkReader::read(std::span<const int64_t> numbers) {
  const auto placed = [&](Error error) {
    error.message = fmt::format("{} {}", place(numbers), error.message);
    return error;
  };
  if (!metadata_.sharding.empty()) return read_from_shard(numbers).map_error(placed);
  const Result<std::optional<MappedFile>> file = map_file(folder_ / metadata_.key(numbers));
  if (!file) return tl::make_unexpected(file.error());
  if (!*file) return std::nullopt;
  return decode_chunk((*file)->bytes(), metadata_.encoding, metadata_.chunk, metadata_.type.size)
      .map([](std::vector<uint8_t> elements) { return Chunk(std::move(elements)); })
      .map_error(placed);
}

Result<void> ChunkReader::open_shard(const std::string& key) {
  if (shard_ && shard_->key == key) return {};
  shard_.reset();
  Result<std::optional<MappedFile>> file = map_file(folder_ / key);
  if (!file) return tl::make_unexpected(file.error());
  Shard shard{key, std::move(*file), {}};
  if (shard.file) {
    size_t chunks = 1;
    for (size_t axis = 0; axis < metadata_.chunk.size(); ++axis)
      chunks *= static_cast<size_t>(metadata_.sharding[0].shape[axis] / metadata_.chunk[axis]);
    Result<ShardIndex> index = decode_shard_index(shard.file->bytes(), metadata_.sharding[0], chunks);
    if (!index) return tl::make_unexpected(index.error());
    shard.index = std::move(*index);
  }
  shard_ = std::move(shard);
  return {};
}

Result<Chunk> ChunkReader::read_from_shard(std::span<const int64_t> numbers) {
  if (auto opened = open_shard(metadata_.key(file_numbers(numbers))); !opened)
    return tl::make_unexpected(opened.error());
  if (!shard_->file) return std::nullopt;
  size_t place_in_shard = 0;
  for (size_t axis = 0; axis < numbers.size(); ++axis) {
    const int64_t chunks = metadata_.sharding[0].shape[axis] / metadata_.chunk[axis];
    place_in_shard = place_in_shard * static_cast<size_t>(chunks) + static_cast<size_t>(numbers[axis] % chunks);
  }
  const auto [offset, size] = shard_->index.entries[place_in_shard];
  if (offset == ShardIndex::kAbsent) return std::nullopt;
  return decode_chunk(shard_->file->bytes().subspan(offset, size), metadata_.encoding, metadata_.chunk,
                      metadata_.type.size)
      .map([](std::vector<uint8_t> elements) { return Chunk(std::move(elements)); });
}

}  // namespace oarlock::zarr
