// Files whose size and checksum are known: computed while writing, compared when reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"

namespace oarlock {

struct FileDigest {
  int64_t bytes = 0;
  std::string xxh3_128;  // 32 lower-case hex digits, canonical (big-endian) form, as xxh128sum prints it

  bool operator==(const FileDigest&) const = default;
};

// A new file, written from front to end. Without finish() the file is incomplete; it is not removed.
class DigestWriter {
 public:
  // The file must not exist yet. kCantCreate.
  static Result<DigestWriter> create(const std::filesystem::path& path);
  ~DigestWriter();
  DigestWriter(DigestWriter&& other) noexcept;
  DigestWriter& operator=(DigestWriter&&) = delete;

  Result<void> write(std::span<const std::byte> bytes);  // kIoErr, disk full included
  Result<void> write(std::string_view text);
  Result<FileDigest> finish();  // fsyncs and closes

 private:
  struct Impl;
  explicit DigestWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads a whole file for its digest. kNoInput, kIoErr.
Result<FileDigest> digest_of(const std::filesystem::path& path);

}  // namespace oarlock
