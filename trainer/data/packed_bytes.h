// Records of 1 to 65,535 bytes, one after the other in one memory-mapped file, with an index of 2.5 bytes per record in
// another: 60 million records of 300 bytes are 18 GB on the disk, and in memory only what was touched of late.
//
//   STEM.bytes  the records' bytes
//   STEM.index  "oarpack1", the number of records and that of bytes, both uint64; then for each 16 records the offset
//   of
//               the first in STEM.bytes, uint64, and the lengths, 16 uint16 (0 behind the last record)
//
// Little-endian. The files of one stem belong together; a writer that was killed leaves files that do not open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

#include "common/error.h"
#include "trainer/data/mapped_file.h"

namespace oarlock {

class PackedBytes {
 public:
  static constexpr int64_t kMaxLength = 65535;

  // kNoInput: no such files. kDataErr: damaged, or of another format.
  static Result<PackedBytes> open(const std::filesystem::path& stem);

  int64_t size() const { return size_; }
  // `record` must be below size(). Thread-safe.
  int64_t length(int64_t record) const;
  std::span<const uint8_t> operator[](int64_t record) const;

 private:
  PackedBytes(MappedFile bytes, MappedFile index, int64_t size)
      : bytes_(std::move(bytes)), index_(std::move(index)), size_(size) {}

  MappedFile bytes_;
  MappedFile index_;
  int64_t size_;
};

// Writes such files, in memory of a constant size.
class PackedBytesWriter {
 public:
  // kCantCreate and kin: cannot be made. Replaces what is there.
  static Result<PackedBytesWriter> create(const std::filesystem::path& stem);

  // `record` holds 1 to kMaxLength bytes. A failed write is reported by finish().
  void add(std::span<const uint8_t> record);
  int64_t size() const { return records_; }
  // Everything is on the disk then. kIoErr: the disk is full.
  Result<void> finish();

 private:
  explicit PackedBytesWriter(std::filesystem::path stem) : stem_(std::move(stem)) {}

  std::filesystem::path stem_;
  std::ofstream bytes_;
  std::ofstream index_;
  int64_t records_ = 0;
  int64_t written_ = 0;  // bytes
};

}  // namespace oarlock
