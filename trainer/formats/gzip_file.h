// Sequential reading of a file that may be compressed with gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"

struct gzFile_s;  // of zlib NOLINT(readability-identifier-naming)

namespace oarlock {

// Makes an error of kind kDataErr for a file of a data set that is damaged or incomplete.
tl::unexpected<Error> invalid_file(const std::filesystem::path& path, const std::string& reason);

// Reads a plain or gzip file from its beginning. The content decides which it is; a gzip file may have several members.
class GzipFile {
 public:
  // Returns kNoInput if the file does not exist.
  static Result<GzipFile> open(const std::filesystem::path& path);

  // Fills the buffer with decompressed bytes and returns their number, which is smaller than the buffer only at the end
  // of the content. Returns kDataErr if the gzip stream is truncated or damaged.
  Result<size_t> read(std::span<uint8_t> buffer);

  // Returns the number of bytes of the file on disk that were read so far, for progress reports.
  int64_t offset() const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  GzipFile(std::filesystem::path path, gzFile_s* file) : path_(std::move(path)), file_(file) {}

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace oarlock
