#include "trainer/checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <string_view>
#include <utility>

#include "common/files.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/links.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
// What a writer leaves when it dies: folders being written, replaced and removed.
constexpr std::string_view kWritingPrefix = ".writing-";
constexpr std::string_view kReplacedPrefix = ".replaced-";
constexpr std::string_view kRemovedPrefix = ".removed-";
constexpr std::string_view kLinkPrefix = ".link-";
constexpr std::string_view kDamagedPrefix = "damaged-";
constexpr int kMostSetAside = 1000;                           // of one step
constexpr std::string_view kFencePrefix = "fence.json.tmp-";  // write_file_atomically's

struct StepFolder {
  int64_t step = 0;
  fs::path path;
};

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || checkpoint_folder_name(step) != name) return std::nullopt;
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
    return tl::make_unexpected(as_checkpoint_error(
        fail_errno(error.value(), fmt::format("{}: the checkpoints cannot be listed", root.string())).value(), root));
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

// Looks at the checkpoints from the newest down. probe(folder) gives the step of a valid one.
Result<CheckpointSearch> search_newest(const fs::path& root,
                                       const std::function<Result<int64_t>(const fs::path&)>& probe) {
  const auto folders = step_folders(root);
  if (!folders) return tl::make_unexpected(folders.error());
  CheckpointSearch search;
  for (const StepFolder& folder : *folders) {
    const auto step = probe(folder.path);
    if (step && *step == folder.step) {
      search.folder = folder.path;
      search.step = folder.step;
      break;
    }
    if (!step && step.error().code == ExitCode::kNoInput) continue;  // another writer has just removed it
    if (!step && step.error().code != ExitCode::kDataErr) return tl::make_unexpected(step.error());
    search.skipped.push_back(
        {folder.path, step ? fmt::format("{}: it holds step {}", folder.path.string(), *step) : step.error().message});
  }
  return search;
}

// A root on a file server or a disk that fails at present is not one that cannot be written to: kTempFail.
Result<void> check_root(const fs::path& root) {
  const auto fence = read_file(root / kFenceFile);
  if (fence) return {};
  Error error = as_checkpoint_error(fence.error(), root);
  if (error.code == ExitCode::kTempFail) return tl::make_unexpected(std::move(error));
  return {};  // the root is new, or taking the fence reports what is wrong
}

// False where it cannot be told.
bool is_missing(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
}

// Removing takes many calls; the first takes the folder out of every reader's sight.
void remove_checkpoint(const fs::path& folder) {
  const fs::path removed = folder.parent_path() / (std::string(kRemovedPrefix) + folder.filename().string());
  remove_quietly(removed);
  remove_quietly(::rename(folder.c_str(), removed.c_str()) == 0 ? removed : folder);
}

}  // namespace

std::string checkpoint_folder_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

Result<CheckpointSearch> find_latest_checkpoint(const fs::path& root) { return search_newest(root, verify_checkpoint); }

Result<LatestCheckpoint> read_latest_checkpoint(const fs::path& root) {
  LatestCheckpoint latest;
  auto search = search_newest(root, [&](const fs::path& folder) -> Result<int64_t> {
    latest.checkpoint.reset();  // its memory
    auto read = read_checkpoint(folder);
    if (!read) return tl::make_unexpected(read.error());
    latest.checkpoint = std::move(*read);
    return latest.checkpoint->state.step;
  });
  if (!search) return tl::make_unexpected(search.error());
  latest.search = std::move(*search);
  if (!latest.search.folder) latest.checkpoint.reset();
  return latest;
}

CheckpointStore::CheckpointStore(const StoreOptions& options, const Logger& logger)
    : options_(options), logger_(logger) {}

Result<std::unique_ptr<CheckpointStore>> CheckpointStore::open(const StoreOptions& options, const Logger& logger) {
  std::unique_ptr<CheckpointStore> store(new CheckpointStore(options, logger));
  if (auto readable = check_root(options.root); !readable) return tl::make_unexpected(readable.error());
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
  const std::string name = checkpoint_folder_name(checkpoint.state.step);
  const fs::path written =
      options_.root / fmt::format("{}{}-{}-{}", kWritingPrefix, name, options_.owner.attempt, ::getpid());
  const fs::path replaced = options_.root / (std::string(kReplacedPrefix) + name);
  SavedCheckpoint saved{.folder = options_.root / name, .bytes = 0};

  if (auto free = make_way(saved.folder); !free) return tl::make_unexpected(free.error());
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
  written_.insert(saved.folder);
  remove_quietly(replaced);
  set_links(checkpoint.state.step, best_step);
  prune(checkpoint.state.step, best_step);
  std::error_code ignored;
  if (const auto best = link_target(options_.root, kBestLink); best && is_missing(options_.root / *best))
    fs::remove(options_.root / kBestLink, ignored);
  return saved;
}

// A checkpoint of the step that is to be saved is there already: only one that this object wrote, or that is valid, may
// be replaced.
Result<void> CheckpointStore::make_way(const fs::path& folder) {
  if (written_.contains(folder) || is_missing(folder)) return {};
  const auto step = verify_checkpoint(folder);
  if (step) return {};
  switch (step.error().code) {
    case ExitCode::kNoInput:
      return {};
    case ExitCode::kDataErr: {
      const auto aside = set_aside(folder);
      if (!aside) return tl::make_unexpected(aside.error());
      logger_.warn("a damaged checkpoint is in the way of a save and was set aside",
                   {{"folder", aside->string()}, {"reason", step.error().message}});
      return {};
    }
    case ExitCode::kTempFail:  // which would be taken for a fence
      return fail(ExitCode::kIoErr, fmt::format("{}: not replaced: {}", folder.string(), step.error().message));
    default:
      return fail(step.error().code, fmt::format("{}: not replaced: {}", folder.string(), step.error().message));
  }
}

Result<fs::path> CheckpointStore::set_aside(const fs::path& folder) const {
  const FenceLock lock(options_.root);
  if (auto admitted = check_fence(); !admitted) return tl::make_unexpected(admitted.error());
  const fs::path name = options_.root / (std::string(kDamagedPrefix) + folder.filename().string());
  for (int number = 1; number < kMostSetAside; ++number) {
    const fs::path target = number == 1 ? name : fs::path(fmt::format("{}-{}", name.string(), number));
    if (!is_missing(target)) continue;
    if (::rename(folder.c_str(), target.c_str()) == 0) {
      for (const char* link : {kBestLink, kLastLink}) {  // they must not point to what this run saves under the name
        std::error_code ignored;
        if (link_target(options_.root, link) == folder.filename().string()) fs::remove(options_.root / link, ignored);
      }
      return sync_folder(options_.root).map([&] { return target; });
    }
    if (errno != EEXIST && errno != ENOTEMPTY) break;
  }
  return fail(ExitCode::kIoErr, fmt::format("{}: the damaged checkpoint cannot be renamed to {}: {}", folder.string(),
                                            name.string(), std::generic_category().message(errno)));
}

// The checkpoint is saved, whatever becomes of its names. They are durable before a checkpoint that an older name
// points to is removed.
void CheckpointStore::set_links(int64_t step, std::optional<int64_t> best_step) {
  Result<void> set = set_link(options_.root, kLastLink, checkpoint_folder_name(step));
  if (set && best_step && !is_missing(options_.root / checkpoint_folder_name(*best_step)))
    set = set_link(options_.root, kBestLink, checkpoint_folder_name(*best_step));
  if (set) set = sync_folder(options_.root);
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
      if (is_missing(target)) {
        ::rename(entries->path().c_str(), target.c_str());
        continue;
      }
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

void CheckpointStore::prune(int64_t newest_step, std::optional<int64_t> best_step) {
  if (options_.keep <= 0) return;
  const auto folders = step_folders(options_.root);
  if (!folders) return;
  int kept = 0;
  for (const StepFolder& folder : *folders) {
    // Steps beyond the one just saved belong to another run: neither kept nor counted.
    if (folder.step > newest_step || !may_remove(folder.path)) continue;
    if (kept < options_.keep) {
      ++kept;
    } else if (folder.step != best_step) {
      remove_checkpoint(folder.path);
      written_.erase(folder.path);
    }
  }
}

// Whether it is a checkpoint of a format that this program knows. Others stay, and do not count.
bool CheckpointStore::may_remove(const fs::path& folder) {
  if (written_.contains(folder)) return true;
  const auto manifest = read_manifest(folder);
  if (!manifest && left_alone_.insert(folder).second) {
    logger_.warn("an old checkpoint cannot be read and is left alone; remove it yourself if it is of no use",
                 {{"folder", folder.string()}, {"reason", manifest.error().message}});
  }
  return manifest.has_value();
}

}  // namespace oarlock
