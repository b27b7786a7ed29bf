#include "trainer/data/cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

// Locks a folder. Waits while another process holds the lock.
Result<FileDescriptor> lock_folder(const fs::path& folder, const Logger& log) {
  const fs::path path = folder / "lock";
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be created", path.string()));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno == EWOULDBLOCK) log.info("waiting for another process that converts data", {{"lock", path.string()}});
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail_errno(errno, fmt::format("{}: cannot be locked", path.string()));
  }
  return file;
}

// Removes the folders of processes that were killed. Requires the lock, under which no other process is building.
void remove_partial_folders(const fs::path& parent) {
  visit_folder(parent, [](const fs::path& path) {
    std::error_code ignored;
    if (path.extension() == ".part") fs::remove_all(path, ignored);
  });
}

Result<void> publish(const fs::path& part, const fs::path& folder) {
  if (::rename(part.c_str(), folder.c_str()) != 0)
    return fail_errno(errno, fmt::format("{}: cannot be renamed to {}", part.string(), folder.string()));
  return sync_folder(folder.parent_path());
}

}  // namespace

Result<void> build_cache_folder(const fs::path& folder, const Logger& log,
                                const std::function<Result<void>(const fs::path& part)>& fill) {
  std::error_code ignored;
  if (fs::exists(folder, ignored)) return {};
  const fs::path parent = folder.parent_path();
  RETURN_IF_ERROR(make_writable_folder(parent));
  ASSIGN_OR_RETURN(const FileDescriptor lock, lock_folder(parent, log));
  if (fs::exists(folder, ignored)) return {};  // built by another process in the meantime
  remove_partial_folders(parent);
  const fs::path part = folder.string() + ".part";
  const Result<void> published =
      make_writable_folder(part).and_then([&] { return fill(part); }).and_then([&] { return publish(part, folder); });
  if (!published) fs::remove_all(part, ignored);
  return published;
}

}  // namespace oarlock
