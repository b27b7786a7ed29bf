// A file of --log-dir, which receives the output of one stream of a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// A write that fails, as on a full disk, does not stop the training: the bytes are lost, and later ones are written
// again when there is space, after a line that states how many bytes are missing.
class LogFile {
 public:
  LogFile() = default;  // not open

  // Opens a file to append to it, and creates its directory. Never waits, also if a named pipe is in its place.
  static Result<LogFile> open(const std::filesystem::path& path);

  bool is_open() const { return file_.open(); }
  const std::filesystem::path& path() const { return path_; }

  // Appends the bytes. Returns a message for the user when bytes are lost for the first time.
  std::optional<std::string> write(std::string_view bytes);

 private:
  LogFile(std::filesystem::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  uint64_t missing_bytes_ = 0;  // since the last successful write
  bool is_reported_ = false;
};

}  // namespace oarlock::launch
