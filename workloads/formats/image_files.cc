#include "workloads/formats/image_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "workloads/formats/gzip_file.h"

namespace oarlock {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMaxElements = int64_t{1} << 40;

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

// Reads the magic number, and checks the element type and the number of dimensions.
Result<void> read_magic(GzipFile& file, int dimensions, const std::filesystem::path& path) {
  std::array<uint8_t, 4> magic{};
  ASSIGN_OR_RETURN(const size_t size, file.read(magic));
  const std::array<uint8_t, 4> expected{0, 0, kUnsignedByte, static_cast<uint8_t>(dimensions)};
  if (size == 0) return invalid_file(path, "the file, or its gzip stream, is empty");
  if (size < magic.size() || magic[0] != 0 || magic[1] != 0) {
    return invalid_file(path, fmt::format("not an idx file: expected it to start with {:02x}, found {:02x}",
                                          fmt::join(expected, " "), fmt::join(std::span(magic).first(size), " ")));
  }
  if (magic[2] != kUnsignedByte) {
    return invalid_file(path,
                        fmt::format("expected elements of type 0x08 (unsigned byte), found type 0x{:02x}", magic[2]));
  }
  if (magic[3] != dimensions)
    return invalid_file(path, fmt::format("expected {} dimension(s), found {}", dimensions, magic[3]));
  return {};
}

Result<std::vector<int64_t>> read_dimensions(GzipFile& file, int dimensions, const std::filesystem::path& path) {
  std::vector<int64_t> dims;
  int64_t count = 1;
  for (int i = 0; i < dimensions; ++i) {
    std::array<uint8_t, 4> raw{};
    ASSIGN_OR_RETURN(const size_t size, file.read(raw));
    if (size < raw.size())
      return invalid_file(path, fmt::format("expected {} dimension(s), found the end of the file", dimensions));
    dims.push_back(big_endian(raw.data()));
    if (dims.back() == 0 || dims.back() > kMaxElements / count)
      return invalid_file(path, fmt::format("invalid dimensions {}", fmt::join(dims, " x ")));
    count *= dims.back();
  }
  return dims;
}

// Reads `count` elements. The buffer grows as data arrives, so that a corrupt header cannot cause a huge allocation. A
// small compressed file can contain any number of elements.
Result<std::vector<uint8_t>> read_elements(GzipFile& file, int64_t count, const std::filesystem::path& path) {
  constexpr int64_t kChunk = 1 << 20;
  constexpr uint64_t kCopies = 2;             // while the buffer grows
  constexpr size_t kMany = size_t{64} << 20;  // bytes after which the file is large indeed, and not truncated
  std::vector<uint8_t> bytes;
  while (static_cast<int64_t>(bytes.size()) < count) {
    const size_t before = bytes.size();
    if (before == kMany) RETURN_IF_ERROR(expect_memory(static_cast<uint64_t>(count), kCopies, path.string()));
    bytes.resize(static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(before) + kChunk)));
    ASSIGN_OR_RETURN(const size_t size, file.read(std::span(bytes).subspan(before)));
    if (before + size < bytes.size()) {
      return invalid_file(
          path, fmt::format("expected {} bytes of elements, found {}: the file is truncated", count, before + size));
    }
  }
  return bytes;
}

}  // namespace

Result<IdxFile> read_idx_file(const std::filesystem::path& path, int dimensions) {
  ASSIGN_OR_RETURN(GzipFile file, GzipFile::open(path));
  RETURN_IF_ERROR(read_magic(file, dimensions, path));
  IdxFile idx;
  ASSIGN_OR_RETURN(idx.dims, read_dimensions(file, dimensions, path));
  int64_t count = 1;
  for (const int64_t dim : idx.dims) count *= dim;
  ASSIGN_OR_RETURN(idx.bytes, read_elements(file, count, path));

  // Reading past the elements also makes zlib verify the checksum at the end of the stream.
  std::array<uint8_t, 1> more{};
  ASSIGN_OR_RETURN(const size_t trailing, file.read(more));
  if (trailing > 0) {
    return invalid_file(path, fmt::format("expected the end of the file after {} elements ({}), found more data", count,
                                          fmt::join(idx.dims, " x ")));
  }
  return idx;
}

Result<CifarFile> CifarFile::open(const std::filesystem::path& path, int64_t labels) {
  // Labels and statistics are read sequentially, and the page cache keeps the pages for training.
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path, MappedFile::Access::kSequential));
  const auto bytes = static_cast<int64_t>(file.bytes().size());
  const int64_t record = labels + kPixels;
  const int64_t size = bytes / record;
  if (bytes % record != 0) {
    return invalid_file(path,
                        fmt::format("{} bytes are not a multiple of {}, the size of a record: record {} (from 0) ends "
                                    "after {} bytes; the file is truncated or has another format",
                                    bytes, record, size, bytes % record));
  }
  if (size == 0) return invalid_file(path, "has no records");
  return CifarFile(std::move(file), labels, size);
}

}  // namespace oarlock
