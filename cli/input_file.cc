#include "cli/input_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "common/yaml/reader.h"

namespace oarlock::cli {
namespace {

Result<std::string> read_standard_input() {
  if (::isatty(STDIN_FILENO) == 1)
    return fail(ExitCode::kUsage,
                "'-' reads from standard input, which is a terminal; redirect a file or a pipe to it");
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno(errno, "standard input cannot be read");
    if (size == 0) return text;
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > yaml::limits::kFileBytes)
      return fail(ExitCode::kConfig,
                  fmt::format("stdin: has more than {} MiB, the limit for a file", yaml::limits::kFileBytes >> 20));
  }
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& given) {
  std::error_code ignored;
  const bool is_pipe = given != "-" && std::filesystem::is_fifo(given, ignored);
  if (given != "-" && !is_pipe) return InputFile(given, given);
  const Result<std::string> text = is_pipe ? read_file(given, yaml::limits::kFileBytes + 1) : read_standard_input();
  if (!text) return tl::make_unexpected(text.error());
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return fail_errno(error.value(), fmt::format("a copy of {}", is_pipe ? given : "standard input"));
  Result<ScratchFolder> folder = ScratchFolder::create(temporary, "oarlock-");
  if (!folder)
    return fail(folder.error().code,
                fmt::format("a copy of {}: {}", is_pipe ? given : "standard input", folder.error().message));
  InputFile input((folder->path() / "stdin.yaml").string(), is_pipe ? given : "stdin");
  input.copy_.emplace(*std::move(folder));
  std::ofstream file(input.path_, std::ios::binary);
  file << *text;
  file.close();
  if (!file) return fail(ExitCode::kCantCreate, fmt::format("{}: cannot be written", input.path_));
  return input;
}

}  // namespace oarlock::cli
