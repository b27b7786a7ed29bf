// Files of users on the command line: a path, or "-" for standard input.
#pragma once

#include <filesystem>
#include <string>

#include "common/error.h"

namespace oarlock::cli {

// A file that can be read several times and by other programs. Standard input and pipes, such as /dev/stdin or <(...)
// of a shell, are copied to a temporary file, which exists as long as this object.
class InputFile {
 public:
  // Fails with kUsage if `given` is "-" and standard input is a terminal, with kConfig if standard input is larger than
  // the largest YAML file (yaml::limits::kFileBytes), and with kIoErr or kCantCreate if it cannot be copied. A longer
  // pipe is cut behind that size, so that its readers report it.
  static Result<InputFile> open(const std::string& given);

  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  // The name for messages: the given path, or "stdin".
  const std::string& name() const { return name_; }

 private:
  InputFile(std::string path, std::string name) : path_(std::move(path)), name_(std::move(name)) {}

  std::string path_;
  std::string name_;
  std::filesystem::path temporary_;  // the folder to remove; empty if there is none
};

}  // namespace oarlock::cli
