#include "trainer/process/termination.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "common/device_failed.h"
#include "common/standard_streams.h"

namespace oarlock {
namespace {

// std::terminate takes a plain function, so what it needs must be found without an argument.
struct LastResort {
  LastWordPlace place;
  ExplainException explain;
};
LastResort& last_resort() {
  static LastResort instance;
  return instance;
}

std::string text_of(const std::exception_ptr& exception) {
  if (!exception) return "std::terminate was called";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return fmt::format("unexpected exception: {}", what.substr(0, what.find('\n')));
  } catch (...) {
    return "unexpected exception of an unknown type";
  }
}

[[noreturn]] void on_terminate() {
  const auto& [place, explain] = last_resort();
  const std::exception_ptr current = std::current_exception();
  const LastWord last =
      current && explain
          ? explain(current)
          : LastWord{ExitCode::kSoftware, {place.rank, 0, -1, reason_of(ExitCode::kSoftware), text_of(current)}};
  const std::string prefix = place.line_prefix.empty() ? "" : fmt::format("[{}] ", place.line_prefix);
  print_error(fmt::format("{}ERROR {}\n", prefix, last.message.message));
  if (place.path) (void)write_termination_message(*place.path, last.message);
  std::fflush(nullptr);
  std::_Exit(to_int(last.code));
}

}  // namespace

void exit_on_terminate(LastWordPlace place, ExplainException explain) {
  last_resort() = {std::move(place), std::move(explain)};
  std::set_terminate(on_terminate);
}

std::optional<std::string> termination_log_path(const std::optional<std::string>& from_environment) {
  if (from_environment) return from_environment;
  if (::access(kDefaultTerminationLog, F_OK) == 0) return kDefaultTerminationLog;
  return std::nullopt;
}

Result<void> write_termination_message(const std::string& path, const TerminationMessage& message) {
  const std::string text = to_json(message);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return fail_errno(errno, fmt::format("{}: the termination message cannot be written", path));
  const ssize_t put = ::write(file, text.data(), text.size());  // at most 4096 bytes: one write
  const int error = put == static_cast<ssize_t>(text.size()) ? 0 : (put < 0 ? errno : EIO);
  ::close(file);
  if (error != 0) return fail_errno(error, fmt::format("{}: the termination message cannot be written", path));
  return {};
}

std::string reason_of(ExitCode code) {
  if (code == kDeviceFailed) return "DeviceFailed";
  switch (code) {
    case ExitCode::kOk:
      return "Completed";
    case ExitCode::kFailure:
      return "Failed";
    case ExitCode::kUsage:
      return "UsageInvalid";
    case ExitCode::kDataErr:
      return "DataInvalid";
    case ExitCode::kNoInput:
      return "InputMissing";
    case ExitCode::kNoHost:
      return "HostUnknown";
    case ExitCode::kUnavailable:
      return "Unavailable";
    case ExitCode::kSoftware:
      return "InternalError";
    case ExitCode::kOsErr:
      return "OutOfResources";
    case ExitCode::kCheckpoint:
      return "CheckpointUnreadable";
    case ExitCode::kCantCreate:
      return "CannotCreate";
    case ExitCode::kIoErr:
      return "IoError";
    case ExitCode::kTempFail:
      return "TemporaryFailure";
    case ExitCode::kPeerLost:
      return "PeerLost";
    case ExitCode::kNoPermission:
      return "PermissionDenied";
    case ExitCode::kConfig:
      return "ConfigInvalid";
  }
  return "Failed";
}

}  // namespace oarlock
