// Requests to the REST API of an MLflow tracking server.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "common/http/client/transport.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/mlflow_error.h"
#include "trainer/tracking/variables.h"

namespace oarlock {

// Thread-compatible, except that cancel() may be called by any thread. A request is sent once; the caller repeats it.
class MlflowClient {
 public:
  // Resolves the address, credentials, certificates and proxy. Does not connect. Fails with kConfig and a message
  // without credentials. The clock must outlive the client.
  static Result<std::unique_ptr<MlflowClient>> create(const MlflowConfig& config, const TrackingVariables& variables,
                                                      const Clock& clock);

  // Returns the body of the response, which is null if it is empty. `member` is the member that MLflow's answers have
  // unless they are empty objects; "" if they always are. Anything else, such as {"error": "session expired"} of a
  // proxy with status 200, is a failure.
  MlflowResult<nlohmann::json> call(kube::Request request, std::string_view member);

  // Calls a method of the API, such as "runs/log-batch". post_text() takes a body that is serialized.
  MlflowResult<nlohmann::json> post(const char* method, const nlohmann::json& body, std::string_view member);
  MlflowResult<nlohmann::json> post_text(const char* method, std::string body, std::string_view member);
  MlflowResult<nlohmann::json> get(const char* method, const std::string& key, const std::string& value,
                                   std::string_view member);

  // Whether the server has requested a pause that has not ended.
  bool is_paused() const { return clock_.steady() < not_before_; }

  // Whether a request may have succeeded although it failed here, since the last call of the other method.
  bool has_uncertain_requests() const { return has_uncertain_requests_; }
  void forget_uncertain_requests() { has_uncertain_requests_ = false; }

  // Ends the current request and all later ones with a failure.
  void cancel() { stop_.request_stop(); }

  // The address, for messages: without credentials, and without its path, which may be one.
  const std::string& server() const { return server_; }

 private:
  MlflowClient(std::unique_ptr<kube::Transport> transport, std::string url, std::chrono::milliseconds timeout,
               const Clock& clock);

  const std::unique_ptr<kube::Transport> transport_;
  const std::string url_;                    // of the server
  const std::string server_;                 // the same for messages
  const std::chrono::milliseconds timeout_;  // of one request
  const Clock& clock_;
  std::stop_source stop_;
  SteadyTime not_before_{};
  bool has_uncertain_requests_ = false;
};

}  // namespace oarlock
