// Why a request to MLflow failed, and whether the failure concerns the content of the request.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "common/error.h"

namespace oarlock {

// A failure is final for at most one metric, parameter, tag, status or artifact, which is then dropped: only if MLflow
// rejects a request that contains nothing else although the run exists and is active. Every other failure is a
// condition that ends or that somebody can end, so that the events wait in the journal.
enum class MlflowErrorKind {
  kUnavailable,    // The server, the network or a proxy does not work, or a page that is not MLflow's was received.
  kDenied,         // The credentials are missing or expired, or lack a permission.
  kAlreadyExists,  // Another client has created the same object.
  kMissing,        // The run or the experiment does not exist: it was deleted permanently, or the store was reset.
  kDeleted,        // The run or the experiment was deleted, and can be restored.
  kRejected,       // MLflow rejects the content of the request, or the run is deleted. The run's state decides.
  kTooLarge,       // MLflow or a proxy rejects the size of the request.
};

struct MlflowError {
  MlflowErrorKind kind = MlflowErrorKind::kUnavailable;
  std::string message;  // one line for users, without credentials

  // Whether the content of the request may be the cause, so that a request with a part of it may succeed.
  bool may_concern_content() const { return kind == MlflowErrorKind::kRejected || kind == MlflowErrorKind::kTooLarge; }

  // Whether the run cannot be written to, so that it must be looked up before the next request.
  bool concerns_run() const { return kind == MlflowErrorKind::kMissing || kind == MlflowErrorKind::kDeleted; }
};

template <typename T>
using MlflowResult = tl::expected<T, MlflowError>;

inline tl::unexpected<MlflowError> mlflow_failure(MlflowErrorKind kind, std::string message) {
  return tl::make_unexpected(MlflowError{kind, std::move(message)});
}

// Returns the kind of a response with this HTTP status, which is not 2xx, and MLflow's error_code; the code is empty if
// a proxy sent the response. Never returns kDeleted, because MLflow reports a deleted run as kRejected.
MlflowErrorKind classify_mlflow_response(int status, std::string_view error_code);

// Returns the error for the tracker, which repeats the event later. Whether an event is dropped is decided by the sink.
Error repeatable_error(const MlflowError& error);

}  // namespace oarlock
