#include "trainer/process/termination.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "common/files.h"
#include "common/mapped_files.h"
#include "common/terminal.h"

namespace oarlock {
namespace {

constexpr int kStopSignals[] = {SIGTERM, SIGINT};
// A terminal that is closed, and what batch systems send before the end of a time limit. A program that starts this one
// may have chosen to ignore them, as nohup does.
constexpr int kWarningSignals[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

std::atomic<StopFlag*> handler_flag{nullptr};
static_assert(std::atomic<StopFlag*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void handle(int signal_number) { handler_flag.load(std::memory_order_relaxed)->raise(signal_number); }

}  // namespace

void raise_on_termination_signals(StopFlag& flag) {
  handler_flag = &flag;
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kStopSignals) sigaction(signal, &action, nullptr);
  for (const int signal : kWarningSignals) {
    struct sigaction present{};
    sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

// ---- Termination message and terminate handler --------------------------------------------------------------------

namespace {

// std::terminate takes a plain function, so that its state must be reachable without an argument.
struct TerminateHandlerState {
  TerminateHandlerOptions options;
  ExceptionHandler handler;
};
TerminateHandlerState& terminate_handler_state() {
  static TerminateHandlerState instance;
  return instance;
}

std::string describe_exception(const std::exception_ptr& exception) {
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

[[noreturn]] void end_process(const std::exception_ptr& current) {
  const auto& [options, handler] = terminate_handler_state();
  const ProcessExit outcome =
      current && handler
          ? handler(current)
          : ProcessExit{ExitCode::kSoftware,
                        {options.rank, -1, -1, exit_reason(ExitCode::kSoftware), describe_exception(current)}};
  const std::string prefix = options.line_prefix.empty() ? "" : fmt::format("[{}] ", options.line_prefix);
  print_error(fmt::format("{}ERROR {}\n", prefix, outcome.message.message));
  if (options.path) (void)write_termination_message(*options.path, outcome.message);
  std::fflush(nullptr);
  std::_Exit(to_int(outcome.code));
}

[[noreturn]] void on_terminate() { end_process(std::current_exception()); }

// An access to a mapped file that the kernel cannot read. The thread is in none of the functions that this one calls,
// because the pages of files are only read as data. Any other SIGBUS ends the process as it does without a handler.
void on_bus_error(int signal_number, siginfo_t* info, void* /*context*/) {
  static std::atomic_flag is_ending;
  const bool is_of_kernel = info->si_code > 0;  // otherwise a process has sent the signal
  if (const std::optional<Error> fault = is_of_kernel ? mapped_file_fault(info->si_addr) : std::nullopt) {
    while (is_ending.test_and_set()) ::pause();  // several threads may read the file
    end_process(std::make_exception_ptr(ErrorException(*fault)));
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);  // is delivered when this function returns
}

}  // namespace

void install_terminate_handler(TerminateHandlerOptions options, ExceptionHandler handler) {
  terminate_handler_state() = {std::move(options), std::move(handler)};
  std::set_terminate(on_terminate);
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

std::optional<std::string> termination_log_path(const std::optional<std::string>& from_environment) {
  if (from_environment) return from_environment;
  if (::access(kDefaultTerminationLog, F_OK) == 0) return kDefaultTerminationLog;
  return std::nullopt;
}

Result<void> write_termination_message(const std::string& path, const TerminationMessage& message) {
  return write_in_place(path, to_json(message)).map_error([](Error error) {
    error.message += " (the termination message)";
    return error;
  });
}

std::string exit_reason(ExitCode code) {
  switch (code) {
    case ExitCode::kOk:
      return kReasonCompleted;
    case ExitCode::kFailure:
      return "Failed";
    case ExitCode::kUsage:
      return kReasonUsageInvalid;
    case ExitCode::kDataErr:
      return kReasonDataInvalid;
    case ExitCode::kNoInput:
      return kReasonInputMissing;
    case ExitCode::kNoHost:
      return kReasonHostUnknown;
    case ExitCode::kUnavailable:
      return "Unavailable";
    case ExitCode::kSoftware:
      return "InternalError";
    case ExitCode::kOsErr:
      return "OutOfResources";
    case ExitCode::kCheckpoint:
      return kReasonCheckpointUnreadable;
    case ExitCode::kCantCreate:
      return "CannotCreate";
    case ExitCode::kIoErr:
      return "IoError";
    case ExitCode::kTempFail:
      return "TemporaryFailure";
    case ExitCode::kPeerLost:
      return kReasonPeerLost;
    case ExitCode::kDeviceFailed:
      return kReasonDeviceFailed;
    case ExitCode::kNoPermission:
      return kReasonPermissionDenied;
    case ExitCode::kConfig:
      return kReasonConfigInvalid;
  }
  return "Failed";
}

}  // namespace oarlock
