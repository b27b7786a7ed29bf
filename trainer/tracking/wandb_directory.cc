#include "trainer/tracking/wandb_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <system_error>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/tracking/record_file.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {
namespace {

constexpr char kPrefix[] = "offline-run-";
// How much memory the files of images and texts take that cannot be written.
constexpr size_t kMaxWaitingBytes = size_t{4} << 20;

// The start of an attempt, by the name of its directory; 0 if the name has none.
std::time_t start_of(const std::filesystem::path& directory) {
  const std::string name = directory.filename().string();
  std::tm time = {};
  const char* const end = ::strptime(name.c_str() + sizeof kPrefix - 1, "%Y%m%d_%H%M%S", &time);
  return end != nullptr && *end == '-' ? ::timegm(&time) : 0;
}

// Whether this is the directory of an attempt of the run.
bool is_directory_of(const std::filesystem::path& path, const std::string& run_id) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) && name.ends_with("-" + run_id);
}

}  // namespace

std::filesystem::path WandbDirectory::log_in(const std::filesystem::path& directory) const {
  return directory / fmt::format("run-{}.wandb", run_id_);
}

Result<void> WandbDirectory::fence_earlier_process(const std::string& run_id) const {
  std::filesystem::path newest;
  visit_directory(parent_, [&](const std::filesystem::path& path) {
    if (is_directory_of(path, run_id)) newest = std::max(newest, path);
  });
  if (newest.empty()) return {};
  const std::filesystem::path log = newest / fmt::format("run-{}.wandb", run_id);
  std::error_code error;
  std::filesystem::remove(log.string() + kWandbNewLogSuffix, error);
  return replace_by_copy(log, kMaxFencedBytes);
}

void WandbDirectory::begin(const std::string& run_id, SystemTime start,
                           const std::function<void(WandbContents&)>& read) {
  path_.clear();
  run_id_ = run_id;
  start_ = start;
  newest_ = 0;
  visit_directory(parent_, [&](const std::filesystem::path& path) {
    if (is_directory_of(path, run_id_)) read_earlier_attempt(path, read);
  });
}

void WandbDirectory::read_earlier_attempt(const std::filesystem::path& directory,
                                          const std::function<void(WandbContents&)>& read) {
  newest_ = std::max(newest_, start_of(directory));
  const std::filesystem::path log = log_in(directory);
  // Of a process that was killed, or is stopped, before it had written the first records.
  std::error_code ignored;
  if (may_write_()) std::filesystem::remove(log.string() + kWandbNewLogSuffix, ignored);
  Result<SequentialFile> file = SequentialFile::open(log);
  if (!file) return;
  WandbContents contents;
  const std::optional<WandbLogEnd> end =
      read_wandb_contents([&file](size_t size) { return file->read(size); }, contents);
  if (end && end->is_cut) repair_log(log, *end);
  if (contents.run_id == run_id_) read(contents);
}

// Removes the incomplete record at the end of the log of a process that was killed while it wrote: `wandb sync` neither
// completes the upload of such a directory nor begins that of the directories after it. A log without a record is
// removed.
void WandbDirectory::repair_log(const std::filesystem::path& log, const WandbLogEnd& end) const {
  if (!may_write_()) return;
  const auto cut = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const FileDescriptor file, open_regular_file(log, O_WRONLY));
    if (::ftruncate(file.get(), static_cast<off_t>(end.offset)) != 0 || ::fsync(file.get()) != 0)
      return fail_errno(errno, fmt::format("{}: cannot be cut", log.string()));
    return {};
  };
  if (end.records == 0) {
    std::error_code error;
    std::filesystem::remove(log, error);
    std::filesystem::remove(log.parent_path() / "files", error);  // if it is empty
    std::filesystem::remove(log.parent_path(), error);
  } else if (const Result<void> done = cut(); !done) {
    logger_.warn("W&B: the directory of an earlier attempt ends with an incomplete record, so that `wandb sync` fails",
                 {{"reason", done.error().message}});
  }
}

Result<void> WandbDirectory::make() {
  if (exists()) return {};
  RETURN_IF_ERROR(make_writable_directory(parent_));
  for (int attempt = 0;; ++attempt) {
    // The directories are uploaded in the order of their names, and the clocks of two machines may differ.
    const std::time_t seconds = std::max(std::chrono::system_clock::to_time_t(start_), newest_ + 1) + attempt;
    path_ = parent_ / fmt::format("{}{:%Y%m%d_%H%M%S}-{}", kPrefix, fmt::gmtime(seconds), run_id_);
    std::error_code error;
    is_synced_ = false;
    if (std::filesystem::create_directory(path_, error)) break;
    if (error || attempt == 1000) {
      const std::filesystem::path directory = std::exchange(path_, {});
      return fail(ExitCode::kCantCreate, fmt::format("{}: cannot create the directory: {}", directory.string(),
                                                     error ? error.message() : "it exists"));
    }
  }
  Result<void> made = make_writable_directory(path_ / "files");
  if (!made) remove_if_empty();
  return made;
}

// One with media is used again.
void WandbDirectory::remove_if_empty() {
  if (!exists()) return;
  std::error_code error;
  std::filesystem::remove(path_ / "files", error);
  if (std::filesystem::remove(path_, error)) path_.clear();
}

void WandbDirectory::leave_after_failure() {
  if (!exists()) return;
  std::error_code error;
  if (!std::filesystem::exists(log(), error)) return remove_if_empty();
  newest_ = start_of(path_);
  path_.clear();
}

bool WandbDirectory::has_attempt(const std::string& name) const {
  std::error_code error;
  return !name.empty() && std::filesystem::exists(parent_ / name, error);
}

Result<void> WandbDirectory::sync() {
  if (!is_synced_ && exists()) RETURN_IF_ERROR(sync_directory(parent_));
  is_synced_ = true;
  return {};
}

bool WandbMedia::add(std::string path, std::string content) {
  File file{std::move(path), std::move(content)};
  size_t waiting = file.content.size();
  for (const File& other : waiting_) waiting += other.content.size();
  if (flush() && write(file)) return true;
  if (waiting > kMaxWaitingBytes) {
    if (!std::exchange(has_dropped_, true))
      logger_.warn("W&B: images and texts are dropped, because too many wait for space on the disk",
                   {{"limit_bytes", kMaxWaitingBytes}});
    return false;
  }
  waiting_.push_back(std::move(file));
  return true;
}

Result<void> WandbMedia::write(const File& file) {
  if (!may_write_()) return {};
  RETURN_IF_ERROR(directory_.make());
  const std::filesystem::path path = directory_.path() / "files" / file.path;
  RETURN_IF_ERROR(make_writable_directory(path.parent_path()));
  return write_file_atomically(path, file.content);
}

Result<void> WandbMedia::flush() {
  while (!waiting_.empty()) {
    RETURN_IF_ERROR(write(waiting_.front()));
    waiting_.pop_front();
  }
  return {};
}

void WandbMedia::drop_waiting() {
  if (!waiting_.empty())
    logger_.warn("W&B: images and texts that waited for space on the disk are lost", {{"files", waiting_.size()}});
  waiting_.clear();
}

}  // namespace oarlock
