// A file read from its start, plain or gzip (of several members, too), told by its content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"

struct gzFile_s;  // zlib's NOLINT(readability-identifier-naming)

namespace oarlock {

class GzFile {
 public:
  // kNoInput: not there.
  static Result<GzFile> open(const std::filesystem::path& path);

  // Fills the buffer; fewer bytes only at the end of the content. kDataErr: the gzip stream is truncated or damaged.
  Result<size_t> read(std::span<uint8_t> buffer);

  // How much of the file, compressed or not, was read so far: for telling progress.
  int64_t offset() const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  GzFile(std::filesystem::path path, gzFile_s* file) : path_(std::move(path)), file_(file) {}

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace oarlock
