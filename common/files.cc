#include "common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "common/mapped_files.h"
#include "common/status_macros.h"
#include "common/temporary_files.h"

namespace oarlock {

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return 0;
}

namespace {

Result<std::string> read_content(const FileDescriptor& file, const std::filesystem::path& path, size_t max_bytes) {
  std::string content;
  std::array<char, 65536> buffer;
  while (content.size() < max_bytes) {
    const ssize_t got = ::read(file.get(), buffer.data(), std::min(buffer.size(), max_bytes - content.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
    if (got == 0) break;
    content.append(buffer.data(), static_cast<size_t>(got));
  }
  return content;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be opened", path.string()));
  return read_content(file, path, max_bytes);
}

Result<FileDescriptor> open_regular_file(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDONLY | O_NOCTTY | O_CLOEXEC;
  // Without O_NONBLOCK, open(2) of a named pipe waits for a writer.
  FileDescriptor file(::open(path.c_str(), kFlags | O_NONBLOCK));
  // With it, open(2) does not wait for the end of a lease. Only regular files have leases.
  if (!file.open() && errno == EWOULDBLOCK) file = FileDescriptor(::open(path.c_str(), kFlags));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be opened", path.string()));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
  if (!S_ISREG(status.st_mode)) return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", path.string()));
  return file;
}

Result<std::string> read_regular_file(const std::filesystem::path& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const FileDescriptor file, open_regular_file(path));
  Result<std::string> content = read_content(file, path, max_bytes + 1);
  if (content && content->size() > max_bytes)
    return fail(ExitCode::kDataErr, fmt::format("{}: longer than {} bytes", path.string(), max_bytes));
  return content;
}

Result<std::string> read_beginning(const std::filesystem::path& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const FileDescriptor file, open_regular_file(path));
  return read_content(file, path, max_bytes);
}

Result<void> write_in_place(const std::filesystem::path& path, std::string_view content) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
  const FileDescriptor file(::open(path.c_str(), kFlags, 0644));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be opened for writing", path.string()));
  if (const int error = write_all(file.get(), content); error != 0)
    return fail_errno(error, fmt::format("{}: cannot be written", path.string()));
  return {};
}

Result<FileDescriptor> create_new_file(const std::filesystem::path& path, mode_t permissions) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  FileDescriptor file(::open(path.c_str(), kFlags, permissions));
  if (!file.open() && errno == EEXIST && ::unlink(path.c_str()) == 0)
    file = FileDescriptor(::open(path.c_str(), kFlags, permissions));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be created", path.string()));
  return file;
}

Result<FileDescriptor> create_memory_file(const char* name, std::string_view content) {
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: a file in memory cannot be created", name));
  if (const int error = write_all(file.get(), content); error != 0)
    return fail_errno(error, fmt::format("{}: a file in memory cannot be written", name));
  return file;
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary = new_temporary_path(path);
  {
    ASSIGN_OR_RETURN(const FileDescriptor file, create_new_file(temporary, 0644));
    int error = write_all(file.get(), content);
    if (error == 0 && ::fsync(file.get()) != 0) error = errno;
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) {
      ::unlink(temporary.c_str());
      return fail_errno(error, fmt::format("{}: cannot be written", path.string()));
    }
  }
  return sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

std::error_code visit_directory(const std::filesystem::path& directory,
                                const std::function<void(const std::filesystem::path&)>& visit) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) visit(entries->path());
  return error;
}

Result<void> make_writable_directory(const std::filesystem::path& path) {
  std::error_code error;
  std::vector<std::filesystem::path> created;  // the deepest one first
  for (std::filesystem::path at = path; !at.empty() && at != at.root_path(); at = at.parent_path()) {
    if (at.has_filename() && std::filesystem::symlink_status(at, error).type() != std::filesystem::file_type::not_found)
      break;
    if (at.has_filename()) created.push_back(at);
  }
  error.clear();
  std::filesystem::create_directories(path, error);
  // The exit code does not depend on errno: a directory that cannot be created is an output problem.
  if (error)
    return fail(ExitCode::kCantCreate,
                fmt::format("{}: the directory cannot be created: {}", path.string(), error.message()));
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    return fail(ExitCode::kCantCreate, fmt::format("{}: the directory is not writable for uid {}: {}", path.string(),
                                                   ::geteuid(), std::generic_category().message(errno)));
  }
  // A new directory is durable after an fsync of its parent. A parent without read permission cannot be synced.
  for (const std::filesystem::path& directory : created) {
    auto synced = sync_directory(directory.has_parent_path() ? directory.parent_path() : ".");
    if (!synced && synced.error().code != ExitCode::kNoPermission) return synced;
  }
  return {};
}

Result<ScratchDirectory> ScratchDirectory::create(const std::filesystem::path& parent, std::string_view prefix) {
  std::string path = (parent / fmt::format("{}XXXXXX", prefix)).string();
  if (::mkdtemp(path.data()) == nullptr) return fail_errno(errno, fmt::format("{}: cannot be created", path));
  return ScratchDirectory(path);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<void> sync_file(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open() || ::fsync(file.get()) != 0)
    return fail_errno(errno, fmt::format("{}: cannot be written", path.string()));
  return {};
}

Result<void> sync_directory(const std::filesystem::path& path) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0) {
    return fail_errno(errno, fmt::format("{}: the directory cannot be synced", path.string()));
  }
  return {};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, Access access) {
  ASSIGN_OR_RETURN(const FileDescriptor file, open_regular_file(path));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return fail_errno(errno, fmt::format("{}: cannot be mapped into memory", path.string()));
  add_mapped_file(memory, size, path);
  ::madvise(memory, size, access == Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL);
  return MappedFile(static_cast<const uint8_t*>(memory), size);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  remove_mapped_file(data_);
  // mmap returned a pointer to non-const memory.
  ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace oarlock
