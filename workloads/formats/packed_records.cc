#include "workloads/formats/packed_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr int64_t kGroup = 16;
constexpr std::array<char, 8> kMagic{'o', 'a', 'r', 'p', 'a', 'c', 'k', '1'};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t records = 0;
  uint64_t bytes = 0;
};

struct Group {
  uint64_t begin;
  std::array<uint16_t, kGroup> lengths;
};
static_assert(sizeof(Header) == 24 && sizeof(Group) == 40, "no padding");

size_t groups_of(uint64_t records) { return (records + kGroup - 1) / kGroup; }

std::filesystem::path bytes_path(const std::filesystem::path& stem) { return stem.string() + ".bytes"; }
std::filesystem::path index_path(const std::filesystem::path& stem) { return stem.string() + ".index"; }

// The cast is valid because the mapping is page-aligned, and the sizes of Header and Group are multiples of 8 bytes.
const Group& group_of(std::span<const uint8_t> index, int64_t record) {
  return reinterpret_cast<const Group*>(index.data() + sizeof(Header))[record / kGroup];
}

template <typename T>
void write(std::ofstream& file, const T& value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

Result<PackedRecords> PackedRecords::open(const std::filesystem::path& stem) {
  ASSIGN_OR_RETURN(MappedFile index, MappedFile::open(index_path(stem), MappedFile::Access::kRandom));
  ASSIGN_OR_RETURN(MappedFile bytes, MappedFile::open(bytes_path(stem), MappedFile::Access::kRandom));
  Header header;
  const size_t index_size = index.bytes().size();
  if (index_size >= sizeof header) std::memcpy(&header, index.bytes().data(), sizeof header);
  const size_t groups = index_size < sizeof header ? 0 : (index_size - sizeof header) / sizeof(Group);
  if (index_size != sizeof header + groups * sizeof(Group) || header.magic != kMagic ||
      header.records > groups * kGroup || groups_of(header.records) != groups || bytes.bytes().size() != header.bytes) {
    return fail(ExitCode::kDataErr, fmt::format("{}: damaged or of another version; remove the directory {}",
                                                index_path(stem).string(), stem.parent_path().string()));
  }
  return PackedRecords(std::move(bytes), std::move(index), static_cast<int64_t>(header.records));
}

int64_t PackedRecords::length(int64_t record) const {
  return group_of(index_.bytes(), record).lengths[static_cast<size_t>(record % kGroup)];
}

std::span<const uint8_t> PackedRecords::operator[](int64_t record) const {
  const Group& group = group_of(index_.bytes(), record);
  const auto position = static_cast<size_t>(record % kGroup);
  const size_t size = bytes_.bytes().size();
  uint64_t begin = std::min<uint64_t>(group.begin, size);
  for (size_t i = 0; i < position; ++i) begin += group.lengths[i];
  if (group.begin > size || begin + group.lengths[position] > size) {
    throw ErrorException(
        {ExitCode::kDataErr, fmt::format("record {} of the prepared data is not inside its file; remove "
                                         "the directory of the prepared data; it is then created again",
                                         record)});
  }
  return bytes_.bytes().subspan(begin, group.lengths[position]);
}

Result<PackedRecordsWriter> PackedRecordsWriter::create(const std::filesystem::path& stem) {
  PackedRecordsWriter writer(stem);
  errno = 0;
  writer.bytes_.open(bytes_path(stem), std::ios::binary | std::ios::trunc);
  writer.index_.open(index_path(stem), std::ios::binary | std::ios::trunc);
  if (!writer.bytes_ || !writer.index_)
    return fail_errno(errno, fmt::format("{}: cannot be created", index_path(stem).string()));
  write(writer.index_, Header{.magic = {}});  // invalid until finish()
  return writer;
}

Result<void> PackedRecordsWriter::add(std::span<const uint8_t> record) {
  if (records_ % kGroup == 0) write(index_, static_cast<uint64_t>(written_));
  write(index_, static_cast<uint16_t>(record.size()));
  bytes_.write(reinterpret_cast<const char*>(record.data()), static_cast<std::streamsize>(record.size()));
  ++records_;
  written_ += static_cast<int64_t>(record.size());
  return bytes_ && index_ ? Result<void>() : write_error();
}

tl::unexpected<Error> PackedRecordsWriter::write_error() const {
  return fail_errno(errno == 0 ? EIO : errno, fmt::format("{}: cannot be written", stem_.string()));
}

Result<void> PackedRecordsWriter::finish() {
  errno = 0;
  for (int64_t i = records_; i % kGroup != 0; ++i) write(index_, uint16_t{0});
  index_.seekp(0);
  write(index_, Header{.records = static_cast<uint64_t>(records_), .bytes = static_cast<uint64_t>(written_)});
  bytes_.close();
  index_.close();
  if (!bytes_ || !index_) return write_error();
  return sync_file(bytes_path(stem_)).and_then([&] { return sync_file(index_path(stem_)); });
}

}  // namespace oarlock
