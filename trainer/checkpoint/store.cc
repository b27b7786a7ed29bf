#include "trainer/checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/temporary_files.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

// Temporary names, which a crashed writer leaves behind.
constexpr std::string_view kWritingPrefix = ".writing-";
constexpr std::string_view kReplacedPrefix = ".replaced-";
constexpr std::string_view kRemovedPrefix = ".removed-";
constexpr std::string_view kLinkPrefix = ".link-";
// Directories that are kept for the user.
constexpr std::string_view kDamagedPrefix = "damaged-";
constexpr std::string_view kCopiedPrefix = "copied-";
constexpr int kMaxSetAside = 1000;  // directories of one name

Result<void> make_directory(const fs::path& path) {
  std::error_code error;
  if (fs::create_directory(path, error)) return {};
  const int number = error ? error.value() : EEXIST;
  const bool full = number == ENOSPC || number == EDQUOT;
  return fail(
      full ? ExitCode::kIoErr : ExitCode::kCantCreate,
      fmt::format("{}: the directory cannot be created: {}", path.string(), std::generic_category().message(number)));
}

// Renames a complete directory to its final name. An older directory of that name is moved to `replaced`.
Result<void> publish(const fs::path& written, const fs::path& target, const fs::path& replaced) {
  const auto failed = [&](int error) {
    return fail(ExitCode::kIoErr, fmt::format("{}: cannot be renamed to {}: {}", written.string(), target.string(),
                                              std::generic_category().message(error)));
  };
  if (::rename(written.c_str(), target.c_str()) == 0) return {};
  if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) return failed(errno);
  if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    ::rename(written.c_str(), replaced.c_str());
    return {};
  }
  if (errno != EINVAL && errno != ENOSYS) return failed(errno);
  // The file system has no atomic exchange. If the process crashes between the renames, remove_leftovers() restores the
  // old directory.
  if (::rename(target.c_str(), replaced.c_str()) != 0) return failed(errno);
  if (::rename(written.c_str(), target.c_str()) == 0) return {};
  const int error = errno;
  ::rename(replaced.c_str(), target.c_str());
  return failed(error);
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Returns kTempFail if the root cannot be read at present, for example because a file server is unavailable, so that
// this is not reported as a root that cannot be written to.
Result<void> check_root(const fs::path& root) {
  const auto fence = read_regular_file(root / kFenceFile, kMaxFenceBytes);
  if (fence) return {};
  Error error = as_checkpoint_error(fence.error(), root);
  if (error.code == ExitCode::kTempFail) return tl::make_unexpected(std::move(error));
  return {};  // the root is new, or claiming the fence reports the error
}

// A fence that cannot be read during a save is a failed save, and not a lost fence.
Error unread_fence_as_io_error(Error error) {
  if (error.code == ExitCode::kTempFail && !is_fenced_off(error)) error.code = ExitCode::kIoErr;
  return error;
}

// Returns false if the path exists or its state is unknown.
bool is_missing(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
}

// Removing a checkpoint takes many calls, during which readers must not see it, so that it is renamed first. Returns
// the path that is to be removed.
fs::path begin_removal(const fs::path& directory) {
  fs::path removed = directory.parent_path() / (std::string(kRemovedPrefix) + directory.filename().string());
  remove_quietly(removed);
  return ::rename(directory.c_str(), removed.c_str()) == 0 ? removed : directory;
}

// Renames a directory so that its name is free, and returns the new path. The caller holds the lock.
Result<fs::path> move_aside(const fs::path& directory, std::string_view prefix) {
  const fs::path name = directory.parent_path() / (std::string(prefix) + directory.filename().string());
  for (int number = 1; number < kMaxSetAside; ++number) {
    const fs::path target = number == 1 ? name : fs::path(fmt::format("{}-{}", name.string(), number));
    if (!is_missing(target)) continue;
    if (::rename(directory.c_str(), target.c_str()) == 0) return target;
    if (errno != EEXIST && errno != ENOTEMPTY) break;
  }
  return fail(ExitCode::kIoErr, fmt::format("{}: the directory cannot be renamed to {}: {}", directory.string(),
                                            name.string(), std::generic_category().message(errno)));
}

}  // namespace

CheckpointStore::CheckpointStore(const StoreOptions& options, const Logger& logger)
    : options_(options), logger_(logger) {}

Result<std::unique_ptr<CheckpointStore>> CheckpointStore::open(const StoreOptions& options, const Logger& logger) {
  std::unique_ptr<CheckpointStore> store(new CheckpointStore(options, logger));
  RETURN_IF_ERROR(check_root(options.root));
  RETURN_IF_ERROR(store->claim_root());
  store->remove_leftovers();
  return store;
}

std::unique_ptr<CheckpointStore> CheckpointStore::open_unclaimed(const StoreOptions& options, const Logger& logger) {
  return std::unique_ptr<CheckpointStore>(new CheckpointStore(options, logger));
}

CheckpointOwner CheckpointStore::owner() const {
  const std::scoped_lock lock(mutex_);
  return options_.owner;
}

void CheckpointStore::set_group(int64_t generation, const std::string& group) {
  const std::scoped_lock lock(mutex_);
  options_.owner.generation = generation;
  options_.owner.group = group;
}

Result<void> CheckpointStore::claim() const {
  const FenceLock lock(options_.root);
  return claim_fence(options_.root, owner());
}

Result<void> CheckpointStore::check_fence() const { return oarlock::check_fence(options_.root, owner()); }

Result<SavedCheckpoint> CheckpointStore::save(Checkpoint checkpoint, std::optional<int64_t> best_step) {
  RETURN_IF_ERROR(claim_root().map_error(unread_fence_as_io_error));
  const CheckpointOwner owner = this->owner();
  checkpoint.state.owner = owner;
  const int64_t step = checkpoint.state.step;
  const std::string name = checkpoint_directory_name(step);
  // Processes on two nodes may have the same number.
  const fs::path written =
      options_.root / fmt::format("{}{}-{}-{}-{}", kWritingPrefix, name, owner.attempt, owner.generation, ::getpid());
  const fs::path replaced = options_.root / (std::string(kReplacedPrefix) + name);
  SavedCheckpoint saved{.directory = options_.root / name, .bytes = 0, .links = {}};

  RETURN_IF_ERROR(clear_target(saved.directory));
  remove_quietly(written);
  RETURN_IF_ERROR(make_directory(written).map_error(as_save_error));
  const auto bytes = write_checkpoint(checkpoint, written);
  if (!bytes) {
    remove_quietly(written);
    // A newer writer removes the temporary directories of older ones. If there is one, report it instead.
    if (const Result<void> fence = check_fence(); !fence && is_fenced_off(fence.error()))
      return tl::make_unexpected(fence.error());
    return tl::make_unexpected(as_save_error(bytes.error()));
  }
  saved.bytes = *bytes;
  std::vector<fs::path> removed;
  {
    const FenceLock lock(options_.root);
    RETURN_IF_ERROR(publish_if_admitted(written, saved.directory, replaced));
    written_.insert(saved.directory);
    saved.links = set_links(step, best_step);
    removed = prune(step, best_step);
  }
  removed.push_back(written);  // the older checkpoint, if it could not be renamed
  removed.push_back(replaced);
  for (const fs::path& path : removed) remove_quietly(path);
  if (!saved.links && is_fenced_off(saved.links.error())) return tl::make_unexpected(saved.links.error());
  return saved;
}

Result<fs::path> CheckpointStore::set_aside(const fs::path& directory) const {
  const FenceLock lock(options_.root);
  RETURN_IF_ERROR(check_fence());
  ASSIGN_OR_RETURN(const fs::path aside, move_aside(directory, kDamagedPrefix).map_error(as_save_error));
  for (const char* link : {kBestLink, kLastLink}) {  // must not point to a later checkpoint of the same name
    std::error_code ignored;
    if (link_target(options_.root, link) == directory.filename().string()) fs::remove(options_.root / link, ignored);
  }
  return sync_directory(options_.root).map([&] { return aside; }).map_error(as_save_error);
}

// Creates the root and claims its fence, under the lock.
Result<void> CheckpointStore::claim_root() {
  RETURN_IF_ERROR(make_writable_directory(options_.root).map_error(as_save_error));
  const FenceLock lock(options_.root);
  if (!lock.held() && !std::exchange(lock_warned_, true)) {
    logger_.warn("the checkpoint directory cannot be locked: only its fence file keeps other writers out",
                 {{"directory", options_.root.string()}});
  }
  return claim_fence(options_.root, owner());
}

// Prepares the name of the step to be saved. An existing checkpoint of this name may be replaced only if this object
// wrote it or it is valid.
Result<void> CheckpointStore::clear_target(const fs::path& directory) {
  if (written_.contains(directory) || is_missing(directory)) return {};
  const auto step = verify_checkpoint(directory);
  if (step) return {};
  switch (step.error().code) {
    case ExitCode::kNoInput:
      return {};
    case ExitCode::kDataErr: {
      ASSIGN_OR_RETURN(const fs::path aside, set_aside(directory));
      logger_.warn("a damaged checkpoint with the step of a save was set aside",
                   {{"directory", aside.string()}, {"reason", step.error().message}});
      return {};
    }
    case ExitCode::kTempFail:  // the caller would take it for a lost fence
      return fail(ExitCode::kIoErr, fmt::format("{}: not replaced: {}", directory.string(), step.error().message));
    default:
      return fail(step.error().code, fmt::format("{}: not replaced: {}", directory.string(), step.error().message));
  }
}

// Called immediately before a name of the root is changed.
Result<void> CheckpointStore::may_write() const { return check_fence().map_error(unread_fence_as_io_error); }

// Renames a complete directory to its final name, if the fence still belongs to the owner. The caller holds the lock.
Result<void> CheckpointStore::publish_if_admitted(const fs::path& written, const fs::path& target,
                                                  const fs::path& replaced) const {
  auto published = may_write().and_then([&] { return publish(written, target, replaced).map_error(as_save_error); });
  if (!published) {
    remove_quietly(written);
    return published;
  }
  return sync_directory(options_.root).map_error(as_save_error);
}

// A tool that follows links, such as "cp -rL" or an object store, copies a checkpoint into the place of a link. Another
// directory remains: set_link() reports it.
Result<void> CheckpointStore::make_way_for_link(const fs::path& link) const {
  std::error_code ignored;
  if (fs::symlink_status(link, ignored).type() != fs::file_type::directory || !read_manifest(link)) return {};
  RETURN_IF_ERROR(may_write());
  ASSIGN_OR_RETURN(const fs::path aside, move_aside(link, kCopiedPrefix));
  logger_.warn("a copy of a checkpoint in the place of a link was set aside; remove it when it is no longer needed",
               {{"directory", aside.string()}});
  return {};
}

// Points the links to the checkpoints of these steps. The links are durable before a checkpoint that an old link points
// to is removed. The caller holds the lock.
Result<void> CheckpointStore::set_links(int64_t step, std::optional<int64_t> best_step) const {
  const auto set = [&](const char* link, int64_t to) -> Result<void> {
    RETURN_IF_ERROR(make_way_for_link(options_.root / link));
    return set_link(options_.root, link, checkpoint_directory_name(to), [this] { return may_write(); });
  };
  Result<void> done = set(kLastLink, step);
  if (best_step && !is_missing(options_.root / checkpoint_directory_name(*best_step))) {
    const Result<void> best = set(kBestLink, *best_step);
    if (done) done = best;
  }
  if (done) done = sync_directory(options_.root);
  return done.map_error([](Error error) { return is_fenced_off(error) ? error : as_save_error(std::move(error)); });
}

Result<void> CheckpointStore::repair_links(int64_t step, std::optional<int64_t> best_step) const {
  const auto is_set = [&](const char* link, int64_t to) {
    return link_target(options_.root, link) == checkpoint_directory_name(to);
  };
  const bool has_best = best_step && !is_missing(options_.root / checkpoint_directory_name(*best_step));
  if (is_set(kLastLink, step) && (!has_best || is_set(kBestLink, *best_step))) return {};
  const FenceLock lock(options_.root);
  return set_links(step, best_step);
}

void CheckpointStore::remove_leftovers() const {
  std::vector<fs::path> leftovers;
  static_cast<void>(visit_directory(options_.root, [&](const fs::path& path) {
    const std::string name = path.filename().string();
    for (const std::string_view prefix : {kWritingPrefix, kReplacedPrefix, kRemovedPrefix, kLinkPrefix}) {
      if (name.starts_with(prefix)) leftovers.push_back(path);
    }
  }));
  const auto add = [&leftovers](std::vector<fs::path> paths) {
    leftovers.insert(leftovers.end(), paths.begin(), paths.end());
  };
  add(temporary_files(options_.root));
  for (const fs::path& file : options_.other_files) {
    const fs::path path = options_.root / file;
    if (path.parent_path() != options_.root) add(temporary_files(path.parent_path(), path.filename().string()));
  }
  for (const fs::path& path : leftovers) {
    if (!may_write()) return;
    const std::string name = path.filename().string();
    if (name.starts_with(kReplacedPrefix)) {
      const fs::path target = options_.root / name.substr(kReplacedPrefix.size());
      if (is_missing(target)) {
        ::rename(path.c_str(), target.c_str());
        continue;
      }
    }
    logger_.info("removed a temporary file of a crashed writer", {{"path", path.string()}});
    remove_quietly(path);
  }
}

// Returns the paths that are to be removed, which needs no lock. Stops when another writer has claimed the fence. The
// caller holds the lock.
std::vector<fs::path> CheckpointStore::prune(int64_t newest_step, std::optional<int64_t> best_step) {
  std::vector<fs::path> removed;
  if (options_.keep > 0) {
    int kept = 0;
    for (const StepDirectory& directory : list_checkpoints(options_.root).value_or(std::vector<StepDirectory>{})) {
      // Later steps than the one just saved belong to another run. They are kept, but not counted.
      if (directory.step > newest_step || !may_remove(directory.path)) continue;
      if (kept < options_.keep) {
        ++kept;
      } else if (directory.step != best_step) {
        if (!may_write()) return removed;
        removed.push_back(begin_removal(directory.path));
        written_.erase(directory.path);
      }
    }
  }
  for (const char* link : {kBestLink, kLastLink}) {
    std::error_code ignored;
    const auto target = link_target(options_.root, link);
    if (target && is_missing(options_.root / *target) && may_write()) fs::remove(options_.root / link, ignored);
  }
  return removed;
}

// Returns whether the directory is a checkpoint of a known format. Other directories are kept, and not counted.
bool CheckpointStore::may_remove(const fs::path& directory) {
  if (written_.contains(directory)) return true;
  const auto manifest = read_manifest(directory);
  if (!manifest && unreadable_.insert(directory).second) {
    logger_.warn("an old checkpoint cannot be read and was not removed; remove it if it is no longer needed",
                 {{"directory", directory.string()}, {"reason", manifest.error().message}});
  }
  return manifest.has_value();
}

}  // namespace oarlock
