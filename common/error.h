// Error handling. Expected failures are values of type Result<T>. Exceptions are caught at main() or at the task
// boundary, and converted to an Error there.
#pragma once

#include <stdexcept>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace oarlock {

// Process exit codes: those of sysexits(3), with two additional meanings (76 and 79). docs/exit-codes.md describes them
// for users. Codes 64 to 78 are permanent, since a retry would fail again, except kTempFail and kPeerLost. 128+n means
// death by signal n.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,        // a failure that no other code describes; retried
  kUsage = 64,         // invalid command line
  kDataErr = 65,       // an input file is damaged or has the wrong content
  kNoInput = 66,       // an input file does not exist or cannot be read
  kNoHost = 68,        // a host name does not exist
  kUnavailable = 69,   // a required service, device or port is not available
  kSoftware = 70,      // a bug in Oarlock
  kOsErr = 71,         // a system call failed: fork, out of memory
  kCheckpoint = 72,    // a checkpoint exists that this run can neither read nor may replace
  kCantCreate = 73,    // an output file or directory cannot be created
  kIoErr = 74,         // an input or output error, such as a full disk
  kTempFail = 75,      // interrupted after saving a checkpoint, or a condition that a retry may resolve
  kPeerLost = 76,      // another rank was lost: a collateral failure, never the cause
  kNoPermission = 77,  // permission denied
  kConfig = 78,        // invalid configuration or environment
  kDeviceFailed = 79,  // the device of this rank, its driver or its network interface failed; retried, and is a cause
};

constexpr int to_int(ExitCode code) { return static_cast<int>(code); }

// One failure. `message` is one line for users that names the place, the value and the remedy.
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

// Like fail(), for a failed system call: appends strerror(error_number) to `what`, and derives the exit code from
// error_number (ENOSPC, EACCES, ENOENT ...).
tl::unexpected<Error> fail_errno(int error_number, const std::string& what);

// Carries an Error through code that can only throw, such as a backward pass or a task's step. The function that
// catches exceptions at the boundary returns error().
class ErrorException : public std::runtime_error {
 public:
  explicit ErrorException(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

}  // namespace oarlock
