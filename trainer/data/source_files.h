// The files that a data set consists of: whether they changed, and a digest of their content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/log.h"

namespace oarlock {

class SourceFiles {
 public:
  // Lists files, and all regular files below directories. Symbolic links are followed, except to a directory that
  // contains them. Fails as fail_errno() if a path does not exist or cannot be read, and with kNoInput if it is neither
  // a file nor a directory.
  static Result<SourceFiles> list(const std::vector<std::filesystem::path>& paths);

  // Returns a hash of the absolute paths, sizes, times of modification and of status change, and inode numbers. It
  // changes when a file is written, replaced, added or removed.
  std::string state() const;

  // Reads all files, and returns a hash of their names, relative to the directory of their path in list(), and
  // contents. Copies of a data set have the same digest. Reports progress to `log`. Fails as reading a file.
  Result<std::string> digest(const Logger& log) const;

 private:
  struct File {
    std::string name;
    std::filesystem::path path;
    int64_t size = 0;
    std::string status;
  };

  Result<void> add(const std::filesystem::path& path, const std::string& name, bool is_root);

  std::vector<File> files_;
  std::vector<std::pair<uint64_t, uint64_t>> parents_;  // device and inode of the directories that add() is in
};

// Returns the hash of a string: 32 hexadecimal digits.
std::string hash_of(std::string_view content);

// Returns the hash of the content of a file. Fails as reading it.
Result<std::string> hash_of_file(const std::filesystem::path& path);

}  // namespace oarlock
