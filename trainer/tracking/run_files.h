// Access to files of a run that other processes write, too, or may have replaced. Nothing here blocks on a pipe, writes
// through a symbolic link, or maps a file into memory: a mapped file that another process truncates ends this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// Opens a regular file. `flags` are those of open(2); symbolic links are followed for O_RDONLY only. Fails with
// kNoInput if the path is something else, and otherwise as fail_errno().
Result<FileDescriptor> open_regular_file(const std::filesystem::path& path, int flags);

// Creates a file for reading and writing. Removes what has its name, which an earlier process has left, or a link or a
// pipe. Fails as fail_errno(), such as for a folder of this name.
Result<FileDescriptor> create_new_file(const std::filesystem::path& path);

// Returns the next bytes, at most `size`, and fewer only at the end. They are valid until the next call.
using ByteSource = std::function<std::string_view(size_t size)>;

// Returns a source that removes the bytes from the beginning of `bytes`, which must outlive it.
ByteSource source_of(std::string_view& bytes);

// Reads a regular file from its beginning to its end, in pieces. A failure, and a file that is truncated meanwhile, are
// an early end.
class SequentialFile {
 public:
  // Fails as open_regular_file().
  static Result<SequentialFile> open(const std::filesystem::path& path);

  // As ByteSource.
  std::string_view read(size_t size);

 private:
  explicit SequentialFile(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
  std::string buffer_;
  size_t begin_ = 0;  // of the bytes in the buffer that were not returned yet
};

}  // namespace oarlock
