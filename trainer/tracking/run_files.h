// Access to files and directories of a run that other processes may write, replace or copy. No function blocks on a
// pipe, writes through a symbolic link, or maps a file into memory: a mapped file that another process truncates ends
// this process.
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

// Returns the next `size` bytes, or fewer at the end. They are valid until the next call.
using ByteSource = std::function<std::string_view(size_t size)>;

// Returns a source that removes the bytes from the beginning of `bytes`, which must outlive it.
ByteSource source_of(std::string_view& bytes);

// Reads a regular file sequentially. A read error, or a file that is truncated meanwhile, reads as the end of the file.
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

// ---- Copies of a directory ----------------------------------------------------------------------------------------
// A copied checkpoint directory contains the state of the same run, and the two must not report to the same run.

// Returns the place of a directory: "<number of its inode> <absolute path>", in UTF-8. Empty if the directory
// does not exist.
std::string place_of(const std::filesystem::path& directory);

// Where, and by which job, a run was reported.
struct RunPlace {
  std::string directory;  // as of place_of(); may be empty
  std::string uid;        // of the TrainingJob; may be empty

  bool operator==(const RunPlace&) const = default;
};

// Returns whether the directory of `place` is a copy of that of `earlier`: it has another inode, and another path or
// another job. A directory that was renamed, or mounted elsewhere, has the same inode, and one that was restored for
// its job has the same path. In a pod, all jobs may have the same path. A directory that was moved to another file
// system and another path counts as a copy: this splits its report into two runs, whereas two directories that reported
// to one run would lose points. Returns false if one of the directories is not known.
bool is_copied(const RunPlace& earlier, const RunPlace& place);

}  // namespace oarlock
