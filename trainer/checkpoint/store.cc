#include "trainer/checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "common/files.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/links.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
// What a writer leaves when it dies: folders being written, replaced and removed.
constexpr std::string_view kWritingPrefix = ".writing-";
constexpr std::string_view kReplacedPrefix = ".replaced-";
constexpr std::string_view kRemovedPrefix = ".removed-";
constexpr std::string_view kLinkPrefix = ".link-";
constexpr std::string_view kFencePrefix = "fence.json.tmp-";  // write_file_atomically's

struct StepFolder {
  int64_t step = 0;
  fs::path path;
};

std::string folder_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || folder_name(step) != name) return std::nullopt;
  return step;
}

// The step folders, newest first. A root that does not exist has none.
Result<std::vector<StepFolder>> step_folders(const fs::path& root) {
  std::vector<StepFolder> folders;
  std::error_code error;
  fs::directory_iterator entries(root, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (const auto step = step_of(entries->path().filename().string())) folders.push_back({*step, entries->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail_errno(error.value(), fmt::format("{}: the checkpoints cannot be listed", root.string()));
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return folders;
}

Result<void> create_folder(const fs::path& path) {
  std::error_code error;
  if (fs::create_directory(path, error)) return {};
  const int number = error ? error.value() : EEXIST;
  const bool full = number == ENOSPC || number == EDQUOT;
  return fail(
      full ? ExitCode::kIoErr : ExitCode::kCantCreate,
      fmt::format("{}: the folder cannot be created: {}", path.string(), std::generic_category().message(number)));
}

// Gives a whole folder its name. An older folder of that name goes to `replaced`.
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
  // A file system without exchange: for an instant neither is there, and remove_leftovers puts the old one back.
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

// Removing takes many calls; the first takes the folder out of every reader's sight.
void remove_checkpoint(const fs::path& folder) {
  const fs::path removed = folder.parent_path() / (std::string(kRemovedPrefix) + folder.filename().string());
  remove_quietly(removed);
  remove_quietly(::rename(folder.c_str(), removed.c_str()) == 0 ? removed : folder);
}

}  // namespace

Result<CheckpointSearch> find_latest_checkpoint(const fs::path& root) {
  const auto folders = step_folders(root);
  if (!folders) return tl::make_unexpected(folders.error());
  CheckpointSearch search;
  for (const StepFolder& folder : *folders) {
    const auto step = verify_checkpoint(folder.path);
    if (step && *step == folder.step) {
      search.folder = folder.path;
      search.step = folder.step;
      break;
    }
    search.skipped.push_back(
        {folder.path, step ? fmt::format("{}: it holds step {}", folder.path.string(), *step) : step.error().message});
  }
  return search;
}

CheckpointStore::CheckpointStore(const StoreOptions& options, const Logger& logger)
    : options_(options), logger_(logger) {}

Result<std::unique_ptr<CheckpointStore>> CheckpointStore::open(const StoreOptions& options, const Logger& logger) {
  std::unique_ptr<CheckpointStore> store(new CheckpointStore(options, logger));
  if (auto taken = store->take_fence(); !taken) return tl::make_unexpected(taken.error());
  store->remove_leftovers();
  return store;
}

Result<void> CheckpointStore::take_fence() {
  if (auto writable = make_writable_folder(options_.root); !writable) return writable;
  const FenceLock lock(options_.root);
  if (!lock.held() && !std::exchange(lock_warned_, true)) {
    logger_.warn("the checkpoint folder cannot be locked: only its fence file keeps other writers out",
                 {{"folder", options_.root.string()}});
  }
  auto claimed = claim_fence(options_.root, options_.owner);
  if (!claimed && claimed.error().code == ExitCode::kNoPermission)
    return fail(ExitCode::kCantCreate, claimed.error().message);
  return claimed;
}

Result<void> CheckpointStore::check_fence() const { return oarlock::check_fence(options_.root, options_.owner); }

Result<SavedCheckpoint> CheckpointStore::save(Checkpoint checkpoint, std::optional<int64_t> best_step) {
  if (auto taken = take_fence(); !taken) return tl::make_unexpected(taken.error());
  checkpoint.state.owner = options_.owner;
  const std::string name = folder_name(checkpoint.state.step);
  const fs::path written =
      options_.root / fmt::format("{}{}-{}-{}", kWritingPrefix, name, options_.owner.attempt, ::getpid());
  const fs::path replaced = options_.root / (std::string(kReplacedPrefix) + name);
  SavedCheckpoint saved{.folder = options_.root / name, .bytes = 0};

  remove_quietly(written);
  if (auto created = create_folder(written); !created) return tl::make_unexpected(created.error());
  const auto bytes = write_checkpoint(checkpoint, written);
  if (!bytes) {
    remove_quietly(written);
    // A newer attempt removes what older ones were writing: then that is the cause, and no fault of ours.
    if (auto admitted = check_fence(); !admitted) return tl::make_unexpected(admitted.error());
    return tl::make_unexpected(bytes.error());
  }
  saved.bytes = *bytes;
  {
    const FenceLock lock(options_.root);
    auto admitted = check_fence();
    if (admitted) admitted = publish(written, saved.folder, replaced);
    if (!admitted) {
      remove_quietly(written);
      return tl::make_unexpected(admitted.error());
    }
    if (auto synced = sync_folder(options_.root); !synced) return tl::make_unexpected(synced.error());
  }
  remove_quietly(replaced);
  std::error_code ignored;
  set_links(checkpoint.state.step, best_step);
  prune(checkpoint.state.step, best_step);
  if (const auto best = link_target(options_.root, kBestLink); best && !fs::exists(options_.root / *best))
    fs::remove(options_.root / kBestLink, ignored);
  return saved;
}

// The checkpoint is saved, whatever becomes of its names.
void CheckpointStore::set_links(int64_t step, std::optional<int64_t> best_step) {
  Result<void> set = set_link(options_.root, kLastLink, folder_name(step));
  if (set && best_step && fs::exists(options_.root / folder_name(*best_step)))
    set = set_link(options_.root, kBestLink, folder_name(*best_step));
  if (!set && !std::exchange(links_warned_, true)) logger_.warn(set.error().message);
}

void CheckpointStore::remove_leftovers() const {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entries(options_.root, error); !error && entries != fs::directory_iterator();
       entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (name.starts_with(kReplacedPrefix)) {
      const fs::path target = options_.root / name.substr(kReplacedPrefix.size());
      if (!fs::exists(target) && ::rename(entries->path().c_str(), target.c_str()) == 0) continue;
    }
    for (const std::string_view prefix : {kWritingPrefix, kReplacedPrefix, kRemovedPrefix, kLinkPrefix, kFencePrefix}) {
      if (name.starts_with(prefix)) leftovers.push_back(entries->path());
    }
  }
  for (const fs::path& path : leftovers) {
    logger_.info("removed what a crashed writer had left", {{"path", path.string()}});
    remove_quietly(path);
  }
}

void CheckpointStore::prune(int64_t newest_step, std::optional<int64_t> best_step) const {
  if (options_.keep <= 0) return;
  const auto folders = step_folders(options_.root);
  if (!folders) return;
  int kept = 0;
  for (const StepFolder& folder : *folders) {
    // Steps beyond the one just saved were found damaged when the run went back behind them: neither kept nor counted.
    if (folder.step > newest_step) continue;
    const bool complete = fs::exists(folder.path / kManifestFile);
    if (complete && kept < options_.keep) {
      ++kept;
    } else if (folder.step != best_step) {
      remove_checkpoint(folder.path);
    }
  }
}

}  // namespace oarlock
