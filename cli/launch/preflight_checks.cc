#include "cli/launch/preflight_checks.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <system_error>

#include "cli/doctor/child.h"
#include "cli/launch/topology.h"
#include "common/files.h"
#include "common/random.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTestBytes = size_t{4} << 20;  // that are written to each directory
constexpr int kNoProgram = 127;                 // the exit code if there is no nvidia-smi

// Returns the nearest directory that exists: a program creates its checkpoint directory.
fs::path existing_directory(fs::path path) {
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  return path;
}

Result<void> write_and_read(const fs::path& file, bool is_synced) {
  const std::string content(kTestBytes, static_cast<char>('a' + random_number() % 26));
  {
    Result<FileDescriptor> created = create_new_file(file, 0600);
    if (!created) return tl::make_unexpected(created.error());
    int error = write_all(created->get(), content);
    if (error == 0 && is_synced && ::fsync(created->get()) != 0) error = errno;
    if (error != 0) return fail_errno(error, fmt::format("{}: cannot be written", file.string()));
  }
  const Result<std::string> read = read_file(file);
  if (!read) return tl::make_unexpected(read.error());
  if (*read != content)
    return fail(ExitCode::kIoErr, fmt::format("{}: what was read is not what was written", file.string()));
  return {};
}

// Returns why a directory cannot be used; empty if it can.
std::string check_directory(const fs::path& directory, bool is_synced) {
  const fs::path file = directory / fmt::format(".oarlock-preflight-{:016x}", random_number());
  const Result<void> used = write_and_read(file, is_synced);
  std::error_code error;
  fs::remove(file, error);
  if (!used) return used.error().message;
  return error ? fmt::format("{}: cannot be deleted: {}", file.string(), error.message()) : "";
}

std::string check_shared_memory(const NodeChecks& checks) {
  struct statvfs space{};
  const std::string path = checks.shared_memory.string();
  if (::statvfs(path.c_str(), &space) != 0) return fmt::format("{}: {}", path, std::generic_category().message(errno));
  const int64_t size = static_cast<int64_t>(space.f_blocks) * static_cast<int64_t>(space.f_frsize);
  if (size < checks.min_shared_memory) {
    return fmt::format("{} has {}, less than {}", path, size_text(static_cast<double>(size)),
                       size_text(static_cast<double>(checks.min_shared_memory)));
  }
  return check_directory(checks.shared_memory, /*is_synced=*/false);
}

// The program nvidia-smi lists the GPUs that answer; one that has failed is missing, or an error replaces the list.
// Images without the program have the device files only.
std::string check_devices(const NodeChecks& checks, const Environment& environment) {
  const int visible = count_processors(environment, checks.device_directory).gpus;
  if (visible < checks.devices) return fmt::format("{} of {} are visible", visible, counted(checks.devices, "GPU"));
  int exit_code = 0;
  const std::string listed = doctor::program_output({"nvidia-smi", "-L"}, checks.limit, exit_code);
  if (exit_code == kNoProgram) return "";
  if (exit_code < 0) return fmt::format("nvidia-smi did not answer within {} s", checks.limit.count() / 1000);
  if (exit_code != 0) return fmt::format("nvidia-smi ended with exit code {}: {}", exit_code, shortened(listed, 300));
  int answering = 0;
  for (size_t begin = 0; begin < listed.size(); begin = listed.find('\n', begin) + 1) {
    if (listed.compare(begin, 4, "GPU ") == 0) ++answering;
    if (listed.find('\n', begin) == std::string::npos) break;
  }
  if (answering >= checks.devices) return "";
  return fmt::format("{} of {} answer: {}", answering, counted(checks.devices, "GPU"), shortened(listed, 300));
}

}  // namespace

std::vector<CheckFailure> check_node(const NodeChecks& checks, const Environment& environment) {
  std::vector<CheckFailure> failures;
  const auto add = [&](const char* check, const std::string& message) {
    if (!message.empty()) failures.push_back({check, message});
  };
  const auto add_limited = [&](const char* check, const std::function<std::string()>& function) {
    const std::optional<std::string> message = doctor::run_with_limit(function, checks.limit);
    add(check, message.value_or(fmt::format("no response within {} s", checks.limit.count() / 1000)));
  };
  if (checks.devices > 0) add(kDevicesCheck, check_devices(checks, environment));  // limits its child itself
  if (!checks.storage.empty()) {
    add_limited(kStorageCheck, [&] { return check_directory(existing_directory(checks.storage), /*is_synced=*/true); });
  }
  add_limited(kSharedMemoryCheck, [&] { return check_shared_memory(checks); });
  return failures;
}

}  // namespace oarlock::launch
