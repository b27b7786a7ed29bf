// Files whose size and checksum are known: computed while writing, compared when reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"

struct XXH3_state_s;

namespace oarlock {

struct FileDigest {
  int64_t bytes = 0;
  std::string xxh3_128;  // 32 lower-case hex digits, canonical (big-endian) form, as xxh128sum prints it

  bool operator==(const FileDigest&) const = default;
};

// The digest of bytes that are added in order.
class DigestBuilder {
 public:
  DigestBuilder();
  ~DigestBuilder();
  DigestBuilder(DigestBuilder&& other) noexcept;
  DigestBuilder& operator=(DigestBuilder&&) = delete;

  void add(std::span<const std::byte> bytes);
  FileDigest digest() const;

 private:
  XXH3_state_s* state_;
  int64_t bytes_ = 0;
};

// The digest of a file's content that is in memory.
FileDigest digest_of_text(std::string_view content);

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

// An existing file, read once from front to end, with its digest computed on the way. Failing system calls give the
// codes of fail_errno().
class DigestReader {
 public:
  static Result<DigestReader> open(const std::filesystem::path& path);
  ~DigestReader();
  DigestReader(DigestReader&& other) noexcept;
  DigestReader& operator=(DigestReader&&) = delete;

  uint64_t size() const;  // of the file when it was opened

  // Reads the next bytes, all of them. kDataErr: the file ends before.
  Result<void> read(std::span<std::byte> target);
  // Reads at least one and at most so many bytes and gives their number; 0 at the end of the file.
  Result<size_t> read_some(std::span<std::byte> target);

  // Of what was read so far.
  FileDigest digest() const;

 private:
  struct Impl;
  explicit DigestReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads a whole file for its digest. The codes of fail_errno().
Result<FileDigest> digest_of(const std::filesystem::path& path);

}  // namespace oarlock
