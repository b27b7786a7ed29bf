// Expected failures as values. Exceptions stop at main() or at the task boundary and become an Error there.
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace oarlock {

// Process exit codes: sysexits(3), with two meanings of our own. docs/exit-codes.md explains each to users.
// 64..78 are permanent (a retry would fail again) except kTempFail and kPeerLost. 128+n is death by signal n.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,        // a failure that no other code describes; retried
  kUsage = 64,         // the command line is wrong
  kDataErr = 65,       // an input file is damaged or not what it should be
  kNoInput = 66,       // an input file does not exist or cannot be read
  kNoHost = 68,        // a host name does not exist
  kUnavailable = 69,   // something needed is not there: a service, a device, a port
  kSoftware = 70,      // a bug in Oarlock
  kOsErr = 71,         // the system refused: fork, memory
  kCheckpoint = 72,    // a checkpoint exists that this run can neither read nor may replace
  kCantCreate = 73,    // an output file or folder cannot be made
  kIoErr = 74,         // reading or writing failed: disk full
  kTempFail = 75,      // interrupted with everything saved, or a condition that a retry may cure
  kPeerLost = 76,      // another rank was lost: collateral, never blamed
  kNoPermission = 77,  // not allowed
  kConfig = 78,        // the configuration or the environment contract is wrong
};

constexpr int to_int(ExitCode code) { return static_cast<int>(code); }

// One failure that a person will read: `message` names the place, the value and the remedy in one line.
struct Error {
  ExitCode code = ExitCode::kFailure;
  std::string message;

  bool operator==(const Error&) const = default;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ExitCode code, std::string message) {
  return tl::make_unexpected(Error{code, std::move(message)});
}

// fail() for a system call: appends strerror(error_number). Maps ENOSPC, EACCES, ENOENT ... to their exit code.
tl::unexpected<Error> fail_errno(int error_number, const std::string& what);

}  // namespace oarlock
