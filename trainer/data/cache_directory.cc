#include "trainer/data/cache_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "common/file_lock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "trainer/data/cache_manifest.h"
#include "trainer/data/source_files.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto kLockRetryInterval = 100ms;
constexpr auto kLogInterval = 30s;
constexpr auto kMaxBuildTime = 24h;  // after which a .part directory without a lock is the rest of a killed process
constexpr char kPart[] = ".part";

bool is_same_file(const FileDescriptor& file, const fs::path& path) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

struct DirectoryLock {
  FileDescriptor file;
  bool is_held = false;  // false: the file system does not support locks
};

// Waits while another process holds the lock.
Result<DirectoryLock> lock_directory(const fs::path& directory, const Logger& log) {
  const fs::path path = directory / "lock";
  const auto begin = steady_clock::now();
  auto next_log = begin;
  for (;;) {
    ASSIGN_OR_RETURN(FileDescriptor file, open_lock_file(path));
    ASSIGN_OR_RETURN(const LockOutcome outcome, try_lock(file.get(), LockMode::kExclusive, path));
    if (outcome == LockOutcome::kUnsupported) {
      log.warn(
          "the file system does not support locks (flock): processes that convert data at the same time may each do "
          "the whole work, and outdated data are not removed; data.cache selects another directory",
          {{"directory", directory.string()}});
      return DirectoryLock{};
    }
    if (outcome == LockOutcome::kLocked) {
      if (is_same_file(file, path)) return DirectoryLock{.file = std::move(file), .is_held = true};
      continue;  // another process removed the directory
    }
    if (const auto now = steady_clock::now(); now >= next_log) {
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - begin).count();
      log.info("waiting for another process that converts data", {{"lock", path.string()}, {"seconds", waited}});
      next_log = now + kLogInterval;
    }
    std::this_thread::sleep_for(kLockRetryInterval);
  }
}

bool is_recent(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written < kMaxBuildTime;
}

// Removes the rest of processes that were killed. With the lock, no other process is building.
void remove_partial_directories(const fs::path& parent, bool is_locked) {
  visit_directory(parent, [&](const fs::path& path) {
    std::error_code ignored;
    if (path.extension() == kPart && (is_locked || !is_recent(path))) fs::remove_all(path, ignored);
  });
}

fs::path part_of(const fs::path& directory) { return fmt::format("{}.{}{}", directory.string(), random_hex(4), kPart); }

// Removes a directory, which disappears under its name before its files do. Returns whether it could be renamed.
bool remove_atomically(const fs::path& directory) {
  std::error_code error;
  const fs::path part = part_of(directory);
  fs::rename(directory, part, error);
  if (error) return false;
  fs::remove_all(part, error);
  return true;
}

Result<void> sync_tree(const fs::path& directory) {
  Result<void> synced;
  visit_directory(directory, [&](const fs::path& path) {
    std::error_code ignored;
    const fs::file_status status = fs::symlink_status(path, ignored);
    if (synced && fs::is_directory(status)) synced = sync_tree(path);
    if (synced && fs::is_regular_file(status)) synced = sync_file(path);
  });
  return synced.and_then([&] { return sync_directory(directory); });
}

// Fills a new directory and renames it to `directory`. Succeeds, too, if another process did so in the meantime.
Result<void> build(const fs::path& directory, const CacheFill& fill) {
  const fs::path part = part_of(directory);
  std::error_code ignored;
  const Result<void> published =
      make_writable_directory(part)
          .and_then([&] { return fill(part); })
          .and_then([&]() -> Result<void> {
            if (::rename(part.c_str(), directory.c_str()) == 0) return {};
            if (errno == EEXIST || errno == ENOTEMPTY) return {};
            return fail_errno(errno, fmt::format("{}: cannot be renamed to {}", part.string(), directory.string()));
          })
          .and_then([&] { return sync_directory(directory.parent_path()); });
  if (!published && !fs::exists(part, ignored) && !fs::exists(directory, ignored))
    return fail(ExitCode::kTempFail,
                fmt::format("{}: removed by another process: the file system's locks are not valid on all nodes ({})",
                            part.string(), published.error().message));
  fs::remove_all(part, ignored);
  return published;
}

std::vector<std::string> absolute_paths(const std::vector<fs::path>& paths) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const fs::path& path : paths) out.push_back(fs::absolute(path, ignored).lexically_normal().string());
  return out;
}

}  // namespace

// The entries of a key's directory, for one call of open_cache_entry().
class CacheDirectory {
 public:
  CacheDirectory(const CacheKey& key, const Logger& log, const CacheFill& fill)
      : key_(key), log_(log), fill_(fill), options_(hash_of(key.options)) {}

  Result<CacheEntry> open();
  // Removes the entries whose sources have another content now. Called after open() succeeded.
  void remove_outdated() const;

 private:
  struct Found {
    fs::path path;
    CacheManifest manifest;
    bool is_changed = false;  // the manifest, since it was read
    std::string damage{};     // set by use()
  };

  Result<void> read_state();
  std::vector<Found> entries() const;
  bool is_of_key(const CacheManifest& manifest) const;
  std::optional<Found> find_by_state() const;
  Result<std::optional<Found>> find_by_digest();
  std::optional<CacheEntry> use(Found& found) const;
  Result<CacheEntry> open_or_build();
  Result<CacheEntry> build_entry();
  Result<void> check_unchanged();
  Result<void> fill_entry(const fs::path& part);
  bool is_outdated(const CacheManifest& manifest) const;

  const CacheKey& key_;
  const Logger& log_;
  const CacheFill& fill_;
  const std::string options_;
  std::string state_;
  std::string digest_;  // empty: not known yet
};

Result<void> CacheDirectory::read_state() {
  return SourceFiles::list(key_.sources).map([&](const SourceFiles& sources) { state_ = sources.state(); });
}

std::vector<CacheDirectory::Found> CacheDirectory::entries() const {
  std::vector<Found> out;
  visit_directory(key_.directory, [&](const fs::path& path) {
    if (path.extension() == kPart) return;
    if (std::optional<CacheManifest> manifest = read_cache_manifest(path))
      out.push_back({.path = path, .manifest = *std::move(manifest)});
  });
  return out;
}

bool CacheDirectory::is_of_key(const CacheManifest& manifest) const {
  return manifest.kind == key_.kind && manifest.version == key_.version && manifest.options == options_;
}

std::optional<CacheDirectory::Found> CacheDirectory::find_by_state() const {
  for (Found& entry : entries())
    if (is_of_key(entry.manifest) && entry.manifest.has_state(state_)) return std::move(entry);
  return std::nullopt;
}

// Determines the digest. It is known if there is an entry with other options.
Result<std::optional<CacheDirectory::Found>> CacheDirectory::find_by_digest() {
  std::vector<Found> all = entries();
  for (const Found& entry : all)
    if (entry.manifest.has_state(state_)) digest_ = entry.manifest.digest;
  if (digest_.empty()) {
    ASSIGN_OR_RETURN(const SourceFiles sources, SourceFiles::list(key_.sources));
    state_ = sources.state();
    ASSIGN_OR_RETURN(digest_, sources.digest(log_));
  }
  for (Found& entry : all) {
    if (!is_of_key(entry.manifest) || entry.manifest.digest != digest_) continue;
    entry.manifest.add_state(state_);
    entry.is_changed = true;
    return std::optional(std::move(entry));
  }
  return std::nullopt;
}

// Protects the entry from removal, and checks its files. Returns nothing if it is damaged, or being removed.
std::optional<CacheEntry> CacheDirectory::use(Found& found) const {
  const fs::path path = found.path / kCacheLock;
  // Without locks, or in a read-only directory without the file, entries are not removed.
  FileDescriptor lock = open_lock_file(path).value_or(FileDescriptor());
  const bool is_removed =
      lock.open() &&
      (try_lock(lock.get(), LockMode::kShared, path) == LockOutcome::kLockedByOther || !is_same_file(lock, path));
  if (is_removed) {
    found.damage = "it is being removed";
    return std::nullopt;
  }
  const std::vector<CachedFile> before = found.manifest.files;
  if (const std::optional<std::string> damage = find_damage(found.path, found.manifest)) {
    found.damage = *damage;
    return std::nullopt;
  }
  const auto have_equal_times = [](const CachedFile& a, const CachedFile& b) { return a.times == b.times; };
  found.is_changed = found.is_changed || !std::ranges::equal(before, found.manifest.files, have_equal_times);
  return CacheEntry(found.path, found.manifest.content_digest(), std::move(lock));
}

Result<CacheEntry> CacheDirectory::open() {
  RETURN_IF_ERROR(read_state());
  std::optional<Found> found = find_by_state();
  std::optional<CacheEntry> entry = found ? use(*found) : std::nullopt;
  if (entry && !found->is_changed) {
    digest_ = found->manifest.digest;
    return *std::move(entry);
  }
  if (Result<void> writable = make_writable_directory(key_.directory); !writable) {
    if (entry) return *std::move(entry);
    ASSIGN_OR_RETURN(found, find_by_digest());
    if (found) entry = use(*found);
    if (entry) return *std::move(entry);
    if (found) writable.error().message += fmt::format(" ({}: {})", found->path.filename().string(), found->damage);
    writable.error().message += "; set data.cache to a writable directory";
    return tl::make_unexpected(writable.error());
  }
  entry.reset();
  ASSIGN_OR_RETURN(const DirectoryLock lock, lock_directory(key_.directory, log_));
  remove_partial_directories(key_.directory, lock.is_held);
  return open_or_build();
}

Result<CacheEntry> CacheDirectory::open_or_build() {
  RETURN_IF_ERROR(read_state());  // this process may have waited for long
  std::optional<Found> found = find_by_state();
  if (!found) {
    ASSIGN_OR_RETURN(found, find_by_digest());
  }
  if (found) {
    digest_ = found->manifest.digest;
    if (std::optional<CacheEntry> entry = use(*found)) {
      // If the manifest cannot be written, the next process reads the files again.
      if (found->is_changed) static_cast<void>(write_cache_manifest(found->path, found->manifest));
      return *std::move(entry);
    }
    log_.warn("converted data are damaged and are created again",
              {{"directory", found->path.string()}, {"reason", found->damage}});
    remove_atomically(found->path);
  }
  return build_entry();
}

Result<CacheEntry> CacheDirectory::build_entry() {
  const std::string hash = hash_of(fmt::format("{} {} {}", key_.version, options_, digest_)).substr(0, 16);
  const fs::path path = key_.directory / fmt::format("{}-{}", key_.kind, hash);
  if (std::error_code ignored; fs::exists(path, ignored) && !read_cache_manifest(path)) remove_atomically(path);
  RETURN_IF_ERROR(build(path, [&](const fs::path& part) { return fill_entry(part); }));
  std::optional<CacheManifest> manifest = read_cache_manifest(path);
  if (!manifest)
    return fail(ExitCode::kCantCreate, fmt::format("{}: cannot be read or replaced; remove {}",
                                                   (path / kCacheManifest).string(), path.string()));
  Found found{.path = path, .manifest = *std::move(manifest)};
  if (std::optional<CacheEntry> entry = use(found)) return *std::move(entry);
  return fail(ExitCode::kTempFail,
              fmt::format("{}: {}, although it was just created; start again", path.string(), found.damage));
}

// Fails if the content of the sources has changed since it was read. Other processes may change the state alone: a pod
// with fsGroup sets the group of all files when it starts.
Result<void> CacheDirectory::check_unchanged() {
  const std::string before = state_;
  ASSIGN_OR_RETURN(const SourceFiles sources, SourceFiles::list(key_.sources));
  state_ = sources.state();
  if (state_ == before) return {};
  ASSIGN_OR_RETURN(const std::string digest, sources.digest(log_));
  if (digest == digest_) return {};
  return fail(ExitCode::kTempFail, fmt::format("{}: changed while it was converted; start again when it is complete",
                                               key_.sources.front().string()));
}

Result<void> CacheDirectory::fill_entry(const fs::path& part) {
  RETURN_IF_ERROR(fill_(part));
  RETURN_IF_ERROR(check_unchanged());
  RETURN_IF_ERROR(sync_tree(part));
  ASSIGN_OR_RETURN(std::vector<CachedFile> files, describe_files(part));
  RETURN_IF_ERROR(open_lock_file(part / kCacheLock).map([](const FileDescriptor&) {}));
  return write_cache_manifest(part, {.kind = key_.kind,
                                     .version = key_.version,
                                     .options = options_,
                                     .sources = absolute_paths(key_.sources),
                                     .digest = digest_,
                                     .states = {state_},
                                     .files = std::move(files)});
}

// Whether the sources of an entry have another content now. They may be others than those of the key: the sources of
// another data set of this name, or a part of the same data set.
bool CacheDirectory::is_outdated(const CacheManifest& manifest) const {
  if (manifest.kind == key_.kind && manifest.version < key_.version) return true;
  if (manifest.sources == absolute_paths(key_.sources)) return manifest.digest != digest_;
  const Result<SourceFiles> sources = SourceFiles::list({manifest.sources.begin(), manifest.sources.end()});
  return sources && !manifest.has_state(sources->state());
}

// Skips entries that a process uses. Does nothing without support for locks.
void CacheDirectory::remove_outdated() const {
  for (const Found& entry : entries()) {
    const fs::path path = entry.path / kCacheLock;
    if (!is_outdated(entry.manifest)) continue;
    const Result<FileDescriptor> lock = open_lock_file(path);
    if (!lock || try_lock(lock->get(), LockMode::kExclusive, path) != LockOutcome::kLocked) continue;
    if (remove_atomically(entry.path))
      log_.info("outdated converted data removed", {{"directory", entry.path.string()}});
  }
}

fs::path cache_directory(const fs::path& source, const fs::path& cache) {
  fs::path named = source.lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  return (cache.empty() ? named.parent_path() : cache) / (named.filename().string() + ".oarlock");
}

Result<CacheEntry> open_cache_entry(const CacheKey& key, const Logger& log, const CacheFill& fill) {
  CacheDirectory directory(key, log, fill);
  Result<CacheEntry> entry = directory.open();
  if (entry) directory.remove_outdated();
  return entry;
}

Result<void> build_cache_directory(const fs::path& directory, const Logger& log, const CacheFill& fill) {
  std::error_code ignored;
  if (fs::exists(directory, ignored)) return {};
  const fs::path parent = directory.parent_path();
  RETURN_IF_ERROR(make_writable_directory(parent));
  ASSIGN_OR_RETURN(const DirectoryLock lock, lock_directory(parent, log));
  if (fs::exists(directory, ignored)) return {};  // built by another process in the meantime
  remove_partial_directories(parent, lock.is_held);
  return build(directory, [&](const fs::path& part) { return fill(part).and_then([&] { return sync_tree(part); }); });
}

}  // namespace oarlock
