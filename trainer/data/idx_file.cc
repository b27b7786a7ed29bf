#include "trainer/data/idx_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "trainer/data/gz_file.h"

namespace oarlock {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr char kRemedy[] = "fetch the file again";

tl::unexpected<Error> bad(const std::filesystem::path& path, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {}; {}", path.string(), what, kRemedy));
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

// The elements, grown as they come, so that a damaged header cannot ask for terabytes.
Result<std::vector<uint8_t>> read_elements(GzFile& file, int64_t count, const std::filesystem::path& path) {
  constexpr int64_t kChunk = 1 << 20;
  std::vector<uint8_t> bytes;
  while (static_cast<int64_t>(bytes.size()) < count) {
    const size_t before = bytes.size();
    bytes.resize(static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(before) + kChunk)));
    const auto got = file.read(std::span(bytes).subspan(before));
    if (!got) return tl::make_unexpected(got.error());
    if (before + *got < bytes.size()) {
      return bad(path,
                 fmt::format("expected {} bytes of elements, found {}: the file is truncated", count, before + *got));
    }
  }
  return bytes;
}

}  // namespace

Result<IdxFile> read_idx_file(const std::filesystem::path& path, int dimensions) {
  Result<GzFile> opened = GzFile::open(path);
  if (!opened) return tl::make_unexpected(opened.error());
  GzFile& file = *opened;

  std::array<uint8_t, 4> magic{};
  const auto magic_size = file.read(magic);
  if (!magic_size) return tl::make_unexpected(magic_size.error());
  const std::array<uint8_t, 4> expected{0, 0, kUnsignedByte, static_cast<uint8_t>(dimensions)};
  if (*magic_size == 0) return bad(path, "the file is empty, or holds nothing but an empty gzip stream");
  if (*magic_size < magic.size() || magic[0] != 0 || magic[1] != 0) {
    return bad(path, fmt::format("not an idx file: expected it to start with {:02x}, found {:02x}",
                                 fmt::join(expected, " "), fmt::join(std::span(magic).first(*magic_size), " ")));
  }
  if (magic[2] != kUnsignedByte) {
    return bad(path, fmt::format("expected elements of type 0x08 (unsigned byte), found type 0x{:02x}", magic[2]));
  }
  if (magic[3] != dimensions) return bad(path, fmt::format("expected {} dimension(s), found {}", dimensions, magic[3]));

  IdxFile idx;
  int64_t count = 1;
  for (int i = 0; i < dimensions; ++i) {
    std::array<uint8_t, 4> raw{};
    const auto got = file.read(raw);
    if (!got) return tl::make_unexpected(got.error());
    if (*got < raw.size())
      return bad(path, fmt::format("expected {} dimension(s), found the end of the file", dimensions));
    idx.dims.push_back(big_endian(raw.data()));
    if (idx.dims.back() == 0 || idx.dims.back() > kMaxElements / count) {
      return bad(path, fmt::format("dimensions {} make no sense", fmt::join(idx.dims, " x ")));
    }
    count *= idx.dims.back();
  }

  auto bytes = read_elements(file, count, path);
  if (!bytes) return tl::make_unexpected(bytes.error());
  idx.bytes = std::move(*bytes);

  // Reading on also makes zlib compare the checksum at the end of the stream.
  std::array<uint8_t, 1> more{};
  const auto trailing = file.read(more);
  if (!trailing) return tl::make_unexpected(trailing.error());
  if (*trailing > 0) {
    return bad(path, fmt::format("expected the end of the file after {} elements ({}), found more data", count,
                                 fmt::join(idx.dims, " x ")));
  }
  return idx;
}

}  // namespace oarlock
