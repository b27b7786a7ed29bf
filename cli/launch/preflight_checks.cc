#include "cli/launch/preflight_checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/doctor/child.h"
#include "cli/launch/topology.h"
#include "common/files.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTestBytes = size_t{64} << 10;  // that are written to each directory
constexpr int kNoProgram = 127;                  // the exit code if there is no nvidia-smi

// Returns the nearest directory that exists: a program creates its checkpoint directory.
Result<fs::path> existing_directory(const fs::path& given) {
  std::error_code error;
  fs::path path = fs::absolute(given, error);
  while (!error && !fs::exists(path, error) && !error && path != path.parent_path()) path = path.parent_path();
  if (error) return fail_errno(error.value(), path.string());  // another one than that it does not exist
  return path;
}

// `error` is the errno of creating or writing the file, or 0.
Result<void> write_and_read(const fs::path& file, bool is_synced, int& error) {
  const std::string content(kTestBytes, static_cast<char>('a' + random_number() % 26));
  {
    const FileDescriptor created(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    error = created.open() ? write_all(created.get(), content) : errno;
    if (error == 0 && is_synced && ::fsync(created.get()) != 0) error = errno;
    if (error != 0)
      return fail_errno(error, fmt::format("{}: cannot be {}", file.string(), created.open() ? "written" : "created"));
  }
  ASSIGN_OR_RETURN(const std::string read, read_file(file));
  if (read != content)
    return fail(ExitCode::kIoErr, fmt::format("{}: what was read is not what was written", file.string()));
  return {};
}

// Checks that a directory can be used. The message is empty if it can.
CheckFailure check_directory(const fs::path& directory, const std::string& file_name, const std::string& check) {
  const fs::path file = directory / file_name;
  ::unlink(file.c_str());  // of a launcher that was killed
  const bool is_storage = check == kStorageCheck;
  int write_error = 0;
  const Result<void> used = write_and_read(file, is_storage, write_error);
  std::error_code error;
  fs::remove(file, error);
  const bool is_full = write_error == ENOSPC || write_error == EDQUOT;
  if (!used) return {is_storage && is_full ? kStorageSpaceCheck : check, used.error().message};
  return {check, error ? fmt::format("{}: cannot be deleted: {}", file.string(), error.message()) : ""};
}

CheckFailure check_storage(const NodeChecks& checks) {
  const Result<fs::path> directory = existing_directory(checks.storage);
  if (!directory) return {kStorageCheck, directory.error().message};
  return check_directory(*directory, checks.file_name, kStorageCheck);
}

CheckFailure check_shared_memory(const NodeChecks& checks) {
  struct statvfs space{};
  const std::string path = checks.shared_memory.string();
  if (::statvfs(path.c_str(), &space) != 0)
    return {kSharedMemoryCheck, fmt::format("{}: {}", path, std::generic_category().message(errno))};
  const int64_t size = static_cast<int64_t>(space.f_blocks) * static_cast<int64_t>(space.f_frsize);
  if (size < checks.min_shared_memory) {
    return {kSharedMemoryCheck, fmt::format("{} has {}, less than {}", path, size_text(static_cast<double>(size)),
                                            size_text(static_cast<double>(checks.min_shared_memory)))};
  }
  return check_directory(checks.shared_memory, checks.file_name, kSharedMemoryCheck);
}

int count_lines(const std::string& text, std::string_view beginning) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (trim(line, " ").starts_with(beginning)) ++count;
  }
  return count;
}

// The program nvidia-smi lists the GPUs that answer, each followed by its MIG devices; one that has failed is missing,
// or an error replaces the list. Images without the program have the device files only. CUDA_VISIBLE_DEVICES limits the
// ranks, and neither of the two.
std::string check_devices(const NodeChecks& checks) {
  int exit_code = 0;
  const std::string listed = doctor::program_output({"nvidia-smi", "-L"}, checks.device_limit, exit_code);
  if (exit_code < 0) return fmt::format("nvidia-smi did not answer within {} s", checks.device_limit.count() / 1000);
  if (exit_code != 0 && exit_code != kNoProgram)
    return fmt::format("nvidia-smi ended with exit code {}: {}", exit_code, shortened(listed, 300));
  const bool has_program = exit_code == 0;
  const int mig_devices = has_program ? count_lines(listed, "MIG ") : 0;  // several have one device file
  const int visible = count_processors({}, checks.device_directory).gpus;
  if (mig_devices == 0 && visible < checks.devices)
    return fmt::format("{} of {} are visible", visible, counted(checks.devices, "GPU"));
  const int answering = has_program ? std::max(mig_devices, count_lines(listed, "GPU ")) : visible;
  if (answering >= checks.devices) return "";
  return fmt::format("{} of {} answer: {}", answering, counted(checks.devices, "GPU"), shortened(listed, 300));
}

}  // namespace

std::vector<CheckFailure> check_node(const NodeChecks& checks) {
  std::vector<CheckFailure> failures;
  const auto add = [&](CheckFailure failure) {
    if (!failure.message.empty()) failures.push_back(std::move(failure));
  };
  const auto add_limited = [&](const char* check, CheckFailure (*function)(const NodeChecks&)) {
    const auto in_child = [&] {
      const CheckFailure failure = function(checks);
      return failure.check + '\n' + failure.message;
    };
    const std::optional<std::string> result = doctor::run_with_limit(in_child, checks.limit);
    if (!result) return add({check, fmt::format("no response within {} s", checks.limit.count() / 1000)});
    const size_t end = std::min(result->find('\n'), result->size());
    add({result->substr(0, end), result->substr(std::min(end + 1, result->size()))});
  };
  if (checks.devices > 0) add({kDevicesCheck, check_devices(checks)});  // limits its child itself
  if (!checks.storage.empty()) add_limited(kStorageCheck, check_storage);
  add_limited(kSharedMemoryCheck, check_shared_memory);
  return failures;
}

}  // namespace oarlock::launch
