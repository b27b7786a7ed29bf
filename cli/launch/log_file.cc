#include "cli/launch/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "common/status_macros.h"

namespace oarlock::launch {

Result<LogFile> LogFile::open(const std::filesystem::path& path) {
  RETURN_IF_ERROR(make_writable_directory(path.parent_path()));
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  FileDescriptor file(::open(path.c_str(), kFlags, 0644));
  if (!file.open() && errno == ENXIO)
    return fail(ExitCode::kCantCreate, fmt::format("{}: is a named pipe that no process reads", path.string()));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be created", path.string()));
  return LogFile(path, std::move(file));
}

std::optional<std::string> LogFile::write(std::string_view bytes) {
  if (missing_bytes_ > 0) {
    const std::string notice = fmt::format("\n[up to {} bytes of output are missing here]\n", missing_bytes_);
    if (write_all(file_.get(), notice) != 0) {
      missing_bytes_ += bytes.size();
      return std::nullopt;
    }
    missing_bytes_ = 0;
  }
  const int error = write_all(file_.get(), bytes);
  if (error == 0) return std::nullopt;
  missing_bytes_ = bytes.size();
  if (std::exchange(is_reported_, true)) return std::nullopt;
  return fmt::format("{}: cannot be written: {}; output is missing in the file until there is space", path_.string(),
                     std::generic_category().message(error));
}

}  // namespace oarlock::launch
