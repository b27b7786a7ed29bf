#include "common/error.h"

#include <cerrno>
#include <system_error>

#include "common/text.h"

namespace oarlock {
namespace {

ExitCode exit_code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:  // open(2) of a socket, or of a device that does not exist
      return ExitCode::kNoInput;
    case EACCES:
    case EPERM:
    case EROFS:
      return ExitCode::kNoPermission;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:
      return ExitCode::kIoErr;
    case EADDRINUSE:
      return ExitCode::kUnavailable;
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
      return ExitCode::kOsErr;
    default:
      return ExitCode::kFailure;
  }
}

}  // namespace

tl::unexpected<Error> fail_errno(int error_number, const std::string& what) {
  return fail(exit_code_of(error_number), printable(what) + ": " + std::generic_category().message(error_number));
}

}  // namespace oarlock
