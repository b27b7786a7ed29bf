#include "trainer/tracking/mlflow_error.h"

namespace oarlock {

MlflowErrorKind classify_mlflow_response(int status, std::string_view error_code) {
  if (status == 401 || status == 403) return MlflowErrorKind::kDenied;
  if (status == 413) return MlflowErrorKind::kTooLarge;
  // The store of a server that fails may report anything.
  if (status < 400 || status >= 500) return MlflowErrorKind::kUnavailable;
  if (error_code == "RESOURCE_DOES_NOT_EXIST") return MlflowErrorKind::kMissing;
  if (error_code == "RESOURCE_ALREADY_EXISTS") return MlflowErrorKind::kAlreadyExists;
  if (error_code == "INVALID_PARAMETER_VALUE" || error_code == "BAD_REQUEST" || error_code == "MALFORMED_REQUEST" ||
      error_code == "INVALID_STATE")
    return MlflowErrorKind::kRejected;
  return MlflowErrorKind::kUnavailable;
}

Error repeatable_error(const MlflowError& error) {
  const bool is_denied = error.kind == MlflowErrorKind::kDenied;
  return {.code = is_denied ? ExitCode::kNoPermission : ExitCode::kUnavailable, .message = error.message};
}

}  // namespace oarlock
