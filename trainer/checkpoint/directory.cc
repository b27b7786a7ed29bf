#include "trainer/checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/number.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr size_t kMaxNameLength = 255;
constexpr char kHighWaterFile[] = "reached";
constexpr size_t kHighWaterBytes = 21;

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = parse_integer<int64_t>(std::string_view(name).substr(kStepPrefix.size()));
  return step && checkpoint_directory_name(*step) == name ? step : std::nullopt;
}

// Probes checkpoints from the newest step downwards. probe(directory) returns the step of a valid checkpoint.
Result<CheckpointSearch> search_newest(const fs::path& root,
                                       const std::function<Result<int64_t>(const fs::path&)>& probe) {
  ASSIGN_OR_RETURN(const std::vector<StepDirectory> directories, list_checkpoints(root));
  CheckpointSearch search;
  for (const StepDirectory& directory : directories) {
    const auto step = probe(directory.path);
    if (step && *step == directory.step) {
      search.directory = directory.path;
      search.step = directory.step;
      break;
    }
    if (!step && step.error().code == ExitCode::kNoInput) continue;  // another writer has just removed it
    if (!step && step.error().code != ExitCode::kDataErr) return tl::make_unexpected(step.error());
    search.skipped.push_back(
        {directory.path,
         step ? fmt::format("{}: it contains step {}", directory.path.string(), *step) : step.error().message});
  }
  return search;
}

bool lacks_symbolic_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

// Returns -1 if the file cannot be opened. Without O_NONBLOCK, open(2) of a named pipe waits for a reader.
int open_high_water(const fs::path& root) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC;
  const fs::path path = root / kHighWaterFile;
  int fd = ::open(path.c_str(), kFlags | O_NONBLOCK, 0644);
  if (fd < 0 && errno == EWOULDBLOCK) fd = ::open(path.c_str(), kFlags, 0644);  // waits for the end of a lease
  struct stat status{};
  if (fd < 0 || (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode))) return fd;
  ::close(fd);
  return -1;
}

// Returns 0 if there is no mark.
Result<int64_t> read_mark(const fs::path& root) {
  const auto text = read_regular_file(root / kHighWaterFile, kHighWaterBytes);
  if (!text && text.error().code != ExitCode::kNoInput && text.error().code != ExitCode::kDataErr)
    return tl::make_unexpected(text.error());
  if (!text || text->size() != kHighWaterBytes) return 0;
  const auto step = parse_integer<int64_t>(std::string_view(*text).substr(0, kHighWaterBytes - 1)).value_or(0);
  return std::max<int64_t>(step, 0);
}

}  // namespace

std::string checkpoint_directory_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

Result<std::vector<StepDirectory>> list_checkpoints(const fs::path& root) {
  std::vector<StepDirectory> directories;
  const std::error_code error = visit_directory(root, [&directories](const fs::path& path) {
    if (const auto step = step_of(path.filename().string())) directories.push_back({*step, path});
  });
  if (error && error != std::errc::no_such_file_or_directory) {
    return tl::make_unexpected(as_checkpoint_error(
        fail_errno(error.value(), fmt::format("{}: the checkpoints cannot be listed", root.string())).value(), root));
  }
  std::sort(directories.begin(), directories.end(),
            [](const StepDirectory& a, const StepDirectory& b) { return a.step > b.step; });
  return directories;
}

Result<CheckpointSearch> find_latest_checkpoint(const fs::path& root) { return search_newest(root, verify_checkpoint); }

Result<LatestCheckpoint> read_latest_checkpoint(const fs::path& root) {
  LatestCheckpoint latest;
  const auto probe = [&](const fs::path& directory) -> Result<int64_t> {
    latest.checkpoint.reset();  // frees its memory first
    ASSIGN_OR_RETURN(latest.checkpoint, read_checkpoint(directory));
    return latest.checkpoint->state.step;
  };
  ASSIGN_OR_RETURN(latest.search, search_newest(root, probe));
  if (!latest.search.directory) latest.checkpoint.reset();
  return latest;
}

Result<LatestState> read_latest_state(const fs::path& root) {
  LatestState latest;
  const auto probe = [&](const fs::path& directory) -> Result<int64_t> {
    ASSIGN_OR_RETURN(latest.state, read_checkpoint_state(directory));
    return latest.state->step;
  };
  ASSIGN_OR_RETURN(latest.search, search_newest(root, probe));
  if (!latest.search.directory) latest.state.reset();
  return latest;
}

Result<void> set_link(const fs::path& root, const std::string& name, const std::string& target,
                      const std::function<Result<void>()>& may_write) {
  if (link_target(root, name) == target) return {};
  const fs::path link = root / name;
  const auto failed = [&](int error) {
    return fail_errno(error, fmt::format("{}: the link to {} cannot be set", link.string(), target));
  };
  const fs::path temporary = root / fmt::format(".link-{}-{}-{}", name, ::getpid(), random_hex(4));
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    if (!lacks_symbolic_links(errno)) return failed(errno);
    RETURN_IF_ERROR(write_file_atomically(temporary, target + "\n"));
  }
  Result<void> set = may_write();
  if (set && ::rename(temporary.c_str(), link.c_str()) != 0) set = failed(errno);
  if (!set) ::unlink(temporary.c_str());
  return set;
}

std::optional<std::string> link_target(const fs::path& root, const std::string& name) {
  std::error_code error;
  const fs::path target = fs::read_symlink(root / name, error);
  if (!error) return target.string();
  if (!fs::is_regular_file(root / name, error) || fs::file_size(root / name, error) > kMaxNameLength + 1)
    return std::nullopt;
  auto content = read_regular_file(root / name, kMaxNameLength + 1);
  if (!content || !content->ends_with('\n')) return std::nullopt;
  content->pop_back();
  const bool is_name = content->starts_with(kStepPrefix) && std::all_of(content->begin(), content->end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                       });
  return is_name ? std::optional(*content) : std::nullopt;
}

HighWater::HighWater(const fs::path& root) : root_(root), fd_(open_high_water(root)) {
  const Result<int64_t> mark = read_mark(root);
  step_ = mark.value_or(0);
  if (mark || fd_ < 0) return;
  ::close(std::exchange(fd_, -1));  // it may be higher
}

HighWater::~HighWater() {
  if (fd_ >= 0) ::close(fd_);
}

void HighWater::raise(int64_t step) {
  if (fd_ < 0 || step <= step_) return;
  // Reads the path and not the descriptor, because NFS shows the writes of another node after an open(2).
  const Result<int64_t> mark = read_mark(root_);
  if (!mark) return;  // it may be higher
  step_ = std::max(step, *mark);
  if (*mark >= step) return;
  const std::string text =
      fmt::format("{:020}\n", step);  // a constant length, so that each write replaces the last one
  [[maybe_unused]] const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
}

int64_t read_high_water(const fs::path& root) { return read_mark(root).value_or(0); }

}  // namespace oarlock
