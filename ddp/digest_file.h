// Reading and writing files while computing their size and checksum.
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
  std::string xxh3_128;  // 32 lowercase hex digits in canonical (big-endian) form, as printed by xxh128sum

  bool operator==(const FileDigest&) const = default;
};

// Computes the digest of bytes that are added in order.
class DigestBuilder {
 public:
  DigestBuilder();
  ~DigestBuilder();
  DigestBuilder(DigestBuilder&&) noexcept;
  DigestBuilder& operator=(DigestBuilder&&) = delete;

  void add(std::span<const std::byte> bytes);
  FileDigest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t bytes_ = 0;
};

// Returns the digest of the content of a file.
FileDigest digest_of_text(std::string_view content);

// Writes a new file sequentially. A file without finish() is incomplete and is not removed.
class DigestWriter {
 public:
  // Creates the file, which must not exist. Returns kCantCreate, or kIoErr if the disk is full.
  static Result<DigestWriter> create(const std::filesystem::path& path);
  ~DigestWriter();
  DigestWriter(DigestWriter&& other) noexcept;
  DigestWriter& operator=(DigestWriter&&) = delete;

  // Return kIoErr if writing fails, for example because the disk is full.
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view text);

  // Syncs the file to disk and closes it.
  Result<FileDigest> finish();

 private:
  struct Impl;
  explicit DigestWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads an existing file sequentially and computes its digest. Failed system calls return the codes of fail_errno().
class DigestReader {
 public:
  static Result<DigestReader> open(const std::filesystem::path& path);
  ~DigestReader();
  DigestReader(DigestReader&& other) noexcept;
  DigestReader& operator=(DigestReader&&) = delete;

  uint64_t size() const;  // size of the file when it was opened

  // Fills `target` with the next bytes. Returns kDataErr if the file ends first.
  Result<void> read(std::span<std::byte> target);
  // Reads between one and target.size() bytes and returns their number; 0 at the end of the file.
  Result<size_t> read_some(std::span<std::byte> target);

  // Returns the digest of the bytes read so far.
  FileDigest digest() const;

 private:
  struct Impl;
  explicit DigestReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads a whole file and returns its digest, or the codes of fail_errno().
Result<FileDigest> digest_of(const std::filesystem::path& path);

}  // namespace oarlock
