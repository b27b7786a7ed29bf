#include "cli/run/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/file_lock.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/number.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace oarlock::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kLockFile[] = "lock";
constexpr size_t kMaxStateBytes = size_t{1} << 20;
constexpr int kMaxAttempts = 1'000'000'000;

Result<FileDescriptor> lock(const fs::path& directory, const std::string& job) {
  const fs::path path = directory / kLockFile;
  ASSIGN_OR_RETURN(FileDescriptor file, open_lock_file(path));
  ASSIGN_OR_RETURN(const LockOutcome outcome, try_lock(file.get(), LockMode::kExclusive, path));
  switch (outcome) {
    case LockOutcome::kLocked:
      return file;
    case LockOutcome::kLockedByOther:
      return fail(ExitCode::kUnavailable,
                  fmt::format("a run of '{}' is in progress in {}; wait for it, stop it, or choose another --workdir",
                              job, directory.string()));
    case LockOutcome::kUnsupported:
      break;
  }
  // Two runs at the same time would use the same attempt number, and overwrite each other's checkpoints.
  return fail(ExitCode::kUnavailable,
              fmt::format("{}: the file system does not support locks (flock), which keep two runs of '{}' apart; "
                          "choose a --workdir on another file system, or mount this one with locks",
                          path.string(), job));
}

// Whether the directory contains more than the lock. Checkpoints without run.json are those of an earlier run, too.
bool has_earlier_run(const fs::path& directory) {
  bool found = false;
  visit_directory(directory, [&found](const fs::path& path) { found = found || path.filename() != kLockFile; });
  return found;
}

fs::path unused_name(const fs::path& directory, SystemTime now) {
  std::string time = to_rfc3339(now);
  std::erase(time, ':');
  fs::path target = directory.string() + "." + time;
  std::error_code ignored;  // the renaming reports it
  for (int i = 2; fs::exists(target, ignored); ++i) target = fmt::format("{}.{}-{}", directory.string(), time, i);
  return target;
}

}  // namespace

Result<RunDirectory> RunDirectory::open(const fs::path& workdir, const std::string& job, bool fresh,
                                        const Clock& clock) {
  RunDirectory run;
  std::error_code error;
  const fs::path absolute = fs::absolute(workdir, error);
  if (error) return fail(ExitCode::kCantCreate, fmt::format("{}: {}", workdir.string(), error.message()));
  run.path_ = (absolute / job).lexically_normal();
  const auto make_and_lock = [&]() -> Result<void> {
    RETURN_IF_ERROR(make_writable_directory(run.path_));
    ASSIGN_OR_RETURN(run.lock_, lock(run.path_, job));
    return {};
  };
  RETURN_IF_ERROR(make_and_lock());
  if (fresh && has_earlier_run(run.path_)) {
    run.moved_to_ = unused_name(run.path_, clock.now());
    fs::rename(run.path_, *run.moved_to_,
               error);  // the lock moves along, and is held until the new directory is locked
    if (error)
      return fail(ExitCode::kCantCreate, fmt::format("{} cannot be moved to {}: {}", run.path_.string(),
                                                     run.moved_to_->string(), error.message()));
    RETURN_IF_ERROR(make_and_lock());
  }

  const fs::path state = run.path_ / "run.json";
  if (fs::symlink_status(state, error).type() != fs::file_type::not_found) {
    const Result<std::string> text = read_regular_file(state, kMaxStateBytes);
    if (!text && text.error().code != ExitCode::kDataErr) return tl::make_unexpected(text.error());
    const Json json = Json::parse(text.value_or(""), nullptr, false);
    const int attempts = integer_at(json, "attempts", -1);
    if (!json.is_object() || !json.contains("uid") || !json["uid"].is_string() || attempts < 0 ||
        attempts > kMaxAttempts) {
      return fail(ExitCode::kDataErr, fmt::format("{}: damaged; start over with --fresh, which renames {}",
                                                  state.string(), run.path_.string()));
    }
    run.uid_ = json["uid"];
    run.attempts_ = attempts;
    return run;
  }
  run.uid_ = random_uuid();
  return run;
}

Result<int> RunDirectory::begin_attempt() {
  const Json json = {{"uid", uid_}, {"attempts", attempts_ + 1}};
  RETURN_IF_ERROR(write_file_atomically(path_ / "run.json", json.dump() + "\n"));
  return attempts_++;
}

// ---- Commands that continue a run --------------------------------------------------------------------------------

namespace {

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "_@%+=:,./-";
  const bool is_plain = !word.empty() && std::ranges::all_of(word, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

struct Length {
  std::string unit;  // "epochs" or "steps"
  int64_t count = 0;
};

// Returns the length that a setting such as "epochs=3" gives.
std::optional<Length> length_in(const std::string& setting) {
  for (const char* unit : {"epochs", "steps"}) {
    const std::string prefix = fmt::format("{}=", unit);
    if (!setting.starts_with(prefix)) continue;
    const auto count = parse_integer<decltype(Length::count)>(std::string_view(setting).substr(prefix.size()));
    if (count) return Length{.unit = unit, .count = *count};
  }
  return std::nullopt;
}

std::optional<Length> length_of(const std::string& trainer) {
  const auto json = nlohmann::json::parse(trainer, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  for (const char* unit : {"steps", "epochs"}) {
    const auto it = json.find(unit);
    if (it != json.end() && it->is_number_integer()) return Length{.unit = unit, .count = it->get<int64_t>()};
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> RunDirectory::newest_checkpoint() const {
  constexpr std::string_view kPrefix = "step-";
  std::optional<int64_t> newest;
  visit_directory(checkpoints(), [&](const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix)) return;
    if (const auto step = parse_integer<int64_t>(std::string_view(name).substr(kPrefix.size())))
      newest = std::max(newest, std::optional(*step));
  });
  return newest;
}

std::string command_line(const RunCommand& command) {
  std::string out = "oarlock run " + quoted(command.file);
  const auto add = [&out](const char* option, const std::string& value) {
    out += fmt::format(" {} {}", option, quoted(value));
  };
  if (!command.name.empty()) add("--name", command.name);
  if (!command.workdir.empty()) add("--workdir", command.workdir);
  if (command.nodes) add("--nodes", std::to_string(*command.nodes));
  if (command.nproc) add("--nproc", std::to_string(*command.nproc));
  for (const std::string& setting : command.settings) out += " " + quoted(setting);
  return out;
}

std::optional<std::string> longer_command(const RunCommand& command, const std::string& trainer) {
  constexpr int64_t kMaxCount = int64_t{1} << 40;
  std::optional<Length> length = length_of(trainer);
  RunCommand longer = command;
  longer.settings.clear();
  for (const std::string& setting : command.settings) {
    if (const std::optional<Length> given = length_in(setting)) {
      length = given;
    } else {
      longer.settings.push_back(setting);
    }
  }
  if (!length || length->count < 1 || length->count > kMaxCount) return std::nullopt;
  longer.settings.push_back(fmt::format("{}={}", length->unit, 2 * length->count));
  return command_line(longer);
}

}  // namespace oarlock::run
