#include "trainer/checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <string_view>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr size_t kMaxNameLength = 255;
constexpr char kHighWaterFile[] = "reached";

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || checkpoint_folder_name(step) != name) return std::nullopt;
  return step;
}

// Probes checkpoints from the newest step downwards. probe(folder) returns the step of a valid checkpoint.
Result<CheckpointSearch> search_newest(const fs::path& root,
                                       const std::function<Result<int64_t>(const fs::path&)>& probe) {
  ASSIGN_OR_RETURN(const std::vector<StepFolder> folders, list_checkpoints(root));
  CheckpointSearch search;
  for (const StepFolder& folder : folders) {
    const auto step = probe(folder.path);
    if (step && *step == folder.step) {
      search.folder = folder.path;
      search.step = folder.step;
      break;
    }
    if (!step && step.error().code == ExitCode::kNoInput) continue;  // another writer has just removed it
    if (!step && step.error().code != ExitCode::kDataErr) return tl::make_unexpected(step.error());
    search.skipped.push_back({folder.path, step ? fmt::format("{}: it contains step {}", folder.path.string(), *step)
                                                : step.error().message});
  }
  return search;
}

bool lacks_symbolic_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

}  // namespace

std::string checkpoint_folder_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

Result<std::vector<StepFolder>> list_checkpoints(const fs::path& root) {
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

Result<CheckpointSearch> find_latest_checkpoint(const fs::path& root) { return search_newest(root, verify_checkpoint); }

Result<LatestCheckpoint> read_latest_checkpoint(const fs::path& root) {
  LatestCheckpoint latest;
  const auto probe = [&](const fs::path& folder) -> Result<int64_t> {
    latest.checkpoint.reset();  // frees its memory first
    ASSIGN_OR_RETURN(latest.checkpoint, read_checkpoint(folder));
    return latest.checkpoint->state.step;
  };
  ASSIGN_OR_RETURN(latest.search, search_newest(root, probe));
  if (!latest.search.folder) latest.checkpoint.reset();
  return latest;
}

Result<void> set_link(const fs::path& root, const std::string& name, const std::string& target) {
  if (link_target(root, name) == target) return {};
  const fs::path temporary = root / fmt::format(".link-{}-{}", name, ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    const int error = errno;
    if (!lacks_symbolic_links(error))
      return fail_errno(error, fmt::format("{}: the link to {} cannot be created", (root / name).string(), target));
    RETURN_IF_ERROR(write_file_atomically(temporary, target + "\n"));
  }
  if (::rename(temporary.c_str(), (root / name).c_str()) == 0) return {};
  const int error = errno;
  ::unlink(temporary.c_str());
  return fail_errno(error, fmt::format("{}: the link to {} cannot be set", (root / name).string(), target));
}

std::optional<std::string> link_target(const fs::path& root, const std::string& name) {
  std::error_code error;
  const fs::path target = fs::read_symlink(root / name, error);
  if (!error) return target.string();
  if (!fs::is_regular_file(root / name, error) || fs::file_size(root / name, error) > kMaxNameLength + 1)
    return std::nullopt;
  auto content = read_file(root / name);
  if (!content || !content->ends_with('\n')) return std::nullopt;
  content->pop_back();
  const bool is_name = content->starts_with(kStepPrefix) && std::all_of(content->begin(), content->end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                       });
  return is_name ? std::optional(*content) : std::nullopt;
}

HighWater::HighWater(const fs::path& root)
    : fd_(::open((root / kHighWaterFile).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)),
      step_(read_high_water(root)) {}

HighWater::~HighWater() {
  if (fd_ >= 0) ::close(fd_);
}

void HighWater::raise(int64_t step) {
  if (fd_ < 0 || step <= step_) return;
  step_ = step;
  const std::string text =
      fmt::format("{:020}\n", step);  // a constant length, so that each write replaces the last one
  [[maybe_unused]] const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
}

int64_t read_high_water(const fs::path& root) {
  const auto text = read_file(root / kHighWaterFile);
  int64_t step = 0;
  if (!text || text->size() != 21) return 0;
  const auto parsed = std::from_chars(text->data(), text->data() + 20, step);
  return parsed.ec == std::errc{} && parsed.ptr == text->data() + 20 && step > 0 ? step : 0;
}

}  // namespace oarlock
