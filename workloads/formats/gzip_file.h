// Sequential reading of a file that may be compressed with gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"

namespace oarlock {

// Makes an error of kind kDataErr for a file of a data set that is damaged or incomplete.
tl::unexpected<Error> invalid_file(const std::filesystem::path& path, const std::string& reason);

// Reads a plain or gzip file from its beginning. The content decides which it is. A gzip file may have several members,
// and zeros after the last one; other content there is an error, because it may be a damaged member (zlib's gzread()
// ignores it).
class GzipFile {
 public:
  // Returns kNoInput if the file does not exist.
  static Result<GzipFile> open(const std::filesystem::path& path);

  ~GzipFile();
  GzipFile(GzipFile&&) noexcept;
  GzipFile& operator=(GzipFile&&) noexcept;

  // Fills the buffer with decompressed bytes and returns their number, which is smaller than the buffer only at the end
  // of the content. Returns kDataErr if the gzip stream is truncated or damaged.
  Result<size_t> read(std::span<uint8_t> buffer);

  // Returns the number of bytes of the file on disk that were read so far, for progress reports.
  int64_t offset() const;

 private:
  class Stream;
  explicit GzipFile(std::unique_ptr<Stream> stream);

  std::unique_ptr<Stream> stream_;
};

}  // namespace oarlock
