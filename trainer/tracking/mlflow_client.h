// Requests to the REST API of an MLflow tracking server.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "common/clock.h"
#include "common/error.h"
#include "http/client/transport.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/settings.h"

namespace oarlock {

// Why a request failed. A failure is final only if MLflow rejects a request with a single metric, parameter, tag,
// status or artifact although the run exists and is active; that item is then dropped. Every other failure is temporary
// or can be repaired, so that the events remain in the journal.
enum class MlflowErrorKind {
  kUnavailable,    // The server, the network or a proxy failed, or the response is not one of MLflow.
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

// Returns the error with which the tracker repeats the event later. The sink decides whether to drop an event.
Error repeatable_error(const MlflowError& error);

// Thread-compatible, except that cancel() may be called by any thread. A request is sent once; the caller repeats it.
class MlflowClient {
 public:
  // Resolves the address, credentials, certificates and proxy. Does not connect. Fails with kConfig and a message
  // without credentials. The clock must outlive the client.
  static Result<std::unique_ptr<MlflowClient>> create(const MlflowConfig& config, const TrackingVariables& variables,
                                                      const Clock& clock);

  // Requests fail with kUnavailable, and are not sent, while `may_send` returns false.
  void set_guard(std::function<bool()> may_send) { may_send_ = std::move(may_send); }

  // Returns the body of the response; null if it is empty. `member` is the required member of a body that is not an
  // empty object; "" if MLflow always sends an empty object. Any other body, such as {"error": "session expired"} from
  // a proxy with status 200, is a failure.
  MlflowResult<nlohmann::json> call(http::Request request, std::string_view member);

  // Calls a method of the API, such as "runs/log-batch". post_text() takes a serialized body.
  MlflowResult<nlohmann::json> post(const char* method, const nlohmann::json& body, std::string_view member);
  MlflowResult<nlohmann::json> post_text(const char* method, std::string body, std::string_view member);
  MlflowResult<nlohmann::json> get(const char* method, const std::string& key, const std::string& value,
                                   std::string_view member);

  // Whether the server has requested a pause that has not ended.
  bool is_paused() const { return clock_.steady() < not_before_; }

  // Whether a request has failed that the server may have carried out, since forget_uncertain_requests().
  bool has_uncertain_requests() const { return has_uncertain_requests_; }
  void forget_uncertain_requests() { has_uncertain_requests_ = false; }

  // Ends the current request and all later ones with a failure.
  void cancel() { stop_.request_stop(); }

  // The address for messages: without credentials, and without its path, which may contain credentials.
  const std::string& server() const { return server_; }

 private:
  MlflowClient(std::unique_ptr<http::Transport> transport, std::string url, std::string credentials,
               std::chrono::milliseconds timeout, const Clock& clock);

  const std::unique_ptr<http::Transport> transport_;
  const std::string url_;                    // of the server
  const std::string server_;                 // the same for messages
  const std::string credentials_;            // the variables or the key that they are from; empty: none
  const std::chrono::milliseconds timeout_;  // of one request
  const Clock& clock_;
  std::function<bool()> may_send_;
  std::stop_source stop_;
  SteadyTime not_before_{};
  bool has_uncertain_requests_ = false;
};

}  // namespace oarlock
