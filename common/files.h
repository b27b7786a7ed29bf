// Files: a descriptor with unique ownership, functions on whole files, a temporary directory, and a memory-mapped file.
// Errors name the path; their exit code depends on errno (fail_errno()).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/error.h"

namespace oarlock {

// A file descriptor with unique ownership.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  // Transfers ownership to the caller.
  int release() { return std::exchange(fd_, -1); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Writes all bytes to a descriptor, with several calls of write(2) if necessary. Returns 0, or the errno of the
// failure, after which a part of the bytes may have been written.
[[nodiscard]] int write_all(int fd, std::string_view bytes);

// Returns the content of a file, or its first `max_bytes` bytes.
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes = SIZE_MAX);

// Opens a regular file for reading; symbolic links are followed. Never blocks on a pipe or device: fails with kNoInput
// if the file is not a regular one.
Result<FileDescriptor> open_regular_file(const std::filesystem::path& path);

// Returns the content of a regular file; symbolic links are followed. Never blocks on a pipe or device: fails with
// kNoInput if the file is not a regular one, and with kDataErr if it is longer than `max_bytes`. For paths that come
// from a configuration file, and for directories that others may write to.
Result<std::string> read_regular_file(const std::filesystem::path& path, size_t max_bytes);

// Returns the first `max_bytes` of a regular file, or all of a shorter one. Fails like open_regular_file().
Result<std::string> read_beginning(const std::filesystem::path& path, size_t max_bytes);

// Replaces the content of a file, or creates it, without a rename: a container runtime may have mounted it. Does not
// wait if the path is that of a named pipe without a reader.
Result<void> write_in_place(const std::filesystem::path& path, std::string_view content);

// Creates a file for reading and writing. Replaces a file, link or pipe of this name, which may remain from a killed
// process or belong to another user. Fails as fail_errno(), for example if a directory has the name.
Result<FileDescriptor> create_new_file(const std::filesystem::path& path, mode_t permissions = 0666);

// Creates a file in memory for reading and writing, with this content. It exists as long as a descriptor or mapping of
// it. /proc/PID/fd shows it as "/memfd:NAME".
Result<FileDescriptor> create_memory_file(const char* name, std::string_view content = {});

// Replaces the content of a file atomically and durably: writes a temporary file, syncs it, renames it, and syncs the
// directory. After a crash the file has either the old or the new content.
Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Creates a directory with its parents, durably. Fails with kCantCreate if the directory cannot be created, or exists
// and is not writable.
Result<void> make_writable_directory(const std::filesystem::path& path);

// Calls `visit` with the path of each entry of a directory, in no particular order. Returns the error of reading the
// directory, after which entries are missing. A range-based for loop over std::filesystem::directory_iterator throws
// such errors.
std::error_code visit_directory(const std::filesystem::path& directory,
                                const std::function<void(const std::filesystem::path&)>& visit);

// A new directory that only this user can access. The destructor removes it with its content; files of it that are
// mapped into memory remain valid. Not thread-safe.
class ScratchDirectory {
 public:
  // Creates a directory in `parent`. Its name is `prefix` and six random characters.
  static Result<ScratchDirectory> create(const std::filesystem::path& parent, std::string_view prefix);

  ~ScratchDirectory();
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;  // empty after a move
};

// Calls fsync(2) on a closed file.
Result<void> sync_file(const std::filesystem::path& path);

// Calls fsync(2) on a directory, which makes renames in it durable.
Result<void> sync_directory(const std::filesystem::path& path);

// Maps a whole file read-only. The kernel reads pages when they are accessed and may evict them at any time. Reading
// is thread-safe. The mapping ends with the object.
class MappedFile {
 public:
  // The expected access pattern. The kernel reads ahead for kSequential only.
  enum class Access { kSequential, kRandom };

  // Returns kNoInput if the file does not exist or is not a regular file.
  static Result<MappedFile> open(const std::filesystem::path& path, Access access);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  const uint8_t* data_;
  size_t size_;
};

}  // namespace oarlock
