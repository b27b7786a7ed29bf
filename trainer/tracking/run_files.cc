#include "trainer/tracking/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

constexpr size_t kReadAheadBytes = size_t{256} << 10;

tl::unexpected<Error> not_a_regular_file(const std::filesystem::path& path) {
  return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", path.string()));
}

}  // namespace

Result<FileDescriptor> open_regular_file(const std::filesystem::path& path, int flags) {
  const bool is_read_only = (flags & O_ACCMODE) == O_RDONLY;
  flags |= O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (is_read_only ? 0 : O_NOFOLLOW);
  FileDescriptor file(::open(path.c_str(), flags, 0666));
  // ENXIO: a pipe without a reader, or a socket.
  if (!file.open() && (errno == ENXIO || errno == EISDIR || (errno == ELOOP && !is_read_only)))
    return not_a_regular_file(path);
  if (!file.open()) return fail_errno(errno, fmt::format("{}: open", path.string()));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return fail_errno(errno, fmt::format("{}: stat", path.string()));
  if (!S_ISREG(status.st_mode)) return not_a_regular_file(path);
  return file;
}

ByteSource source_of(std::string_view& bytes) {
  return [&bytes](size_t size) {
    const std::string_view out = bytes.substr(0, size);
    bytes.remove_prefix(out.size());
    return out;
  };
}

Result<SequentialFile> SequentialFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(FileDescriptor file, open_regular_file(path, O_RDONLY));
  return SequentialFile(std::move(file));
}

std::string_view SequentialFile::read(size_t size) {
  if (buffer_.size() - begin_ < size) {
    buffer_.erase(0, std::exchange(begin_, 0));
    while (buffer_.size() < size) {
      const size_t known = buffer_.size();
      // In steps, because a damaged size may be large and the file short.
      buffer_.resize(known + kReadAheadBytes);
      ssize_t got = 0;
      do {
        got = ::read(file_.get(), buffer_.data() + known, kReadAheadBytes);
      } while (got < 0 && errno == EINTR);
      buffer_.resize(known + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got <= 0) break;
    }
  }
  const std::string_view out = std::string_view(buffer_).substr(begin_, size);
  begin_ += out.size();
  return out;
}

std::string place_of(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(directory, error);
  struct stat status = {};
  if (error || ::stat(path.c_str(), &status) != 0) return "";
  return fmt::format("{} {}", status.st_ino, replace_invalid_utf8(path.string()));
}

bool is_copied(const RunPlace& earlier, const RunPlace& place) {
  const std::string_view earlier_directory = earlier.directory;
  const std::string_view directory = place.directory;
  const size_t earlier_space = earlier_directory.find(' ');
  const size_t space = directory.find(' ');
  if (earlier_space == std::string_view::npos || space == std::string_view::npos) return false;
  if (earlier_directory.substr(0, earlier_space) == directory.substr(0, space)) return false;
  const bool is_of_another_job = !earlier.uid.empty() && !place.uid.empty() && earlier.uid != place.uid;
  return is_of_another_job || earlier_directory.substr(earlier_space) != directory.substr(space);
}

}  // namespace oarlock
