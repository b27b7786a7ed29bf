// Files of users on the command line: a path, or "-" for standard input.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/files.h"

namespace oarlock::cli {

// A file that can be read several times and by other programs. Standard input and pipes, such as /dev/stdin or <(...)
// of a shell, are copied to a temporary file, which exists as long as this object.
class InputFile {
 public:
  // Fails with kUsage if `given` is "-" and standard input is a terminal, with kConfig if standard input is larger than
  // the largest YAML file (yaml::limits::kFileBytes), and with kIoErr or kCantCreate if it cannot be copied. Of a
  // longer pipe, one byte more than this size is copied, so that the reader of the copy reports the size.
  static Result<InputFile> open(const std::string& given);

  const std::string& path() const { return path_; }
  // The name for messages: the given path, or "stdin".
  const std::string& name() const { return name_; }

 private:
  InputFile(std::string path, std::string name) : path_(std::move(path)), name_(std::move(name)) {}

  std::string path_;
  std::string name_;
  std::optional<ScratchFolder> copy_;  // of standard input or a pipe
};

}  // namespace oarlock::cli
