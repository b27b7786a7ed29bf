#include "trainer/tracking/mlflow_client.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/address.h"
#include "http/client/credentials.h"

namespace oarlock {
namespace {

// What to do about a response with status 401 or 403. `source` names the credentials; empty if there are none.
std::string remedy_of_denial(int status, const std::string& source) {
  if (status == 401 && source.empty())
    return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN, or "
           "tracking.mlflow.token_file";
  if (status == 401) return "the server does not accept the credentials; check " + source;
  return "the user lacks a permission for the experiment or the run" +
         (source.empty() ? "" : "; the user is that of " + source);
}

bool is_true(const std::optional<std::string>& value) { return value == "true" || value == "True" || value == "1"; }

}  // namespace

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

Result<std::unique_ptr<MlflowClient>> MlflowClient::create(const MlflowConfig& config,
                                                           const TrackingVariables& variables, const Clock& clock) {
  const auto choose = [&](const std::string& configured, const char* variable) {
    return configured.empty() ? variables(variable).value_or("") : configured;
  };
  http::TransportOptions options;
  options.server = choose(config.uri, "MLFLOW_TRACKING_URI");
  if (options.server.empty())
    return fail(ExitCode::kConfig, "tracking.mlflow: set 'uri' or MLFLOW_TRACKING_URI to the server's address");
  if (options.server.find('@') != std::string::npos)  // the message must not contain it
    return fail(ExitCode::kConfig,
                "tracking.mlflow.uri: must not contain a user name or password; set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD");
  if (!options.server.starts_with("http://") && !options.server.starts_with("https://"))
    return fail(ExitCode::kConfig, fmt::format("tracking.mlflow.uri: '{}' must begin with http:// or https://",
                                               shortened(http::without_secrets(options.server))));
  options.user_agent = "oarlock-trainer";
  options.ca.file = choose(config.ca_file, "MLFLOW_TRACKING_SERVER_CERT_PATH");
  options.verify = !is_true(variables("MLFLOW_TRACKING_INSECURE_TLS"));
  const std::string user = variables("MLFLOW_TRACKING_USERNAME").value_or("");
  const std::string password = variables("MLFLOW_TRACKING_PASSWORD").value_or("");
  // A variable that was filled from a file may end with a line break.
  const std::string token(trim(variables("MLFLOW_TRACKING_TOKEN").value_or("")));
  std::string credentials;
  if (!config.token_file.empty()) {
    credentials = "tracking.mlflow.token_file";
    options.token = std::make_shared<http::FileToken>(config.token_file, std::make_shared<RealClock>());
  } else if (!user.empty() && !password.empty()) {
    credentials = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD";
    options.token = std::make_shared<http::ConstantToken>(http::base64_encode(user + ":" + password));
    options.token_scheme = "Basic";
  } else if (!token.empty()) {
    credentials = "MLFLOW_TRACKING_TOKEN";
    options.token = std::make_shared<http::ConstantToken>(token);
  }
  ASSIGN_OR_RETURN(const http::ServerAddress address, http::parse_server_address(options.server));
  const auto proxy_variable = [&](const char* lower, const char* upper) {
    return variables(lower).value_or(variables(upper).value_or(""));
  };
  options.proxy = http::choose_proxy(address, {.http_proxy = proxy_variable("http_proxy", "HTTP_PROXY"),
                                               .https_proxy = proxy_variable("https_proxy", "HTTPS_PROXY"),
                                               .no_proxy = proxy_variable("no_proxy", "NO_PROXY")});
  const std::string url = options.server;
  ASSIGN_OR_RETURN(std::unique_ptr<http::Transport> transport, http::create_transport(std::move(options)));
  const std::chrono::milliseconds timeout(static_cast<int64_t>(config.timeout_seconds * 1000));
  return std::unique_ptr<MlflowClient>(
      new MlflowClient(std::move(transport), url, std::move(credentials), timeout, clock));
}

MlflowClient::MlflowClient(std::unique_ptr<http::Transport> transport, std::string url, std::string credentials,
                           std::chrono::milliseconds timeout, const Clock& clock)
    : transport_(std::move(transport)),
      url_(std::move(url)),
      server_(http::without_secrets(url_)),
      credentials_(std::move(credentials)),
      timeout_(timeout),
      clock_(clock) {}

MlflowResult<nlohmann::json> MlflowClient::call(http::Request request, std::string_view member) {
  if (may_send_ && !may_send_())
    return mlflow_failure(MlflowErrorKind::kUnavailable, "MLflow: a later process of the run reports to the server");
  const http::TransportResult<http::Response> response = transport_->send(request, timeout_, stop_.get_token());
  if (!response) {
    has_uncertain_requests_ = true;
    std::string message = response.error().message;
    if (message.starts_with(url_)) message.replace(0, url_.size(), server_);
    return mlflow_failure(MlflowErrorKind::kUnavailable, "MLflow: " + message);
  }
  nlohmann::json body = parse_untrusted_json(response->body, response->body.size());
  if (response->ok()) {
    if (response->body.empty()) return nlohmann::json();
    if (body.is_object() && (body.empty() || body.contains(member))) return body;
    has_uncertain_requests_ = true;
    return mlflow_failure(
        MlflowErrorKind::kUnavailable,
        fmt::format("MLflow: {}: the answer is not MLflow's; is there a login or maintenance page in front of it?",
                    server_));
  }
  if (response->retry_after) not_before_ = clock_.steady() + *response->retry_after;
  if (response->status >= 500) has_uncertain_requests_ = true;
  const std::string code = text_at(body, "error_code");
  const std::string text = text_at(body, "message");
  std::string message =
      fmt::format("MLflow: {}: {} {}: HTTP status {}{}{}", server_, request.method,
                  request.target.substr(0, request.target.find('?')), response->status,
                  code.empty() ? "" : ", " + shortened(code), text.empty() ? "" : ": " + shortened(text, 200));
  if (response->status == 401 || response->status == 403)
    message += ": " + remedy_of_denial(response->status, credentials_);
  if (response->status >= 300 && response->status < 400)
    message += ": redirections are not followed; is the address complete, or is there a login page in front of it?";
  return mlflow_failure(classify_mlflow_response(response->status, code), std::move(message));
}

MlflowResult<nlohmann::json> MlflowClient::post(const char* method, const nlohmann::json& body,
                                                std::string_view member) {
  return post_text(method, dump_json(body), member);
}

MlflowResult<nlohmann::json> MlflowClient::post_text(const char* method, std::string body, std::string_view member) {
  return call({.method = "POST",
               .target = fmt::format("/api/2.0/mlflow/{}", method),
               .body = std::move(body),
               .content_type = "application/json"},
              member);
}

MlflowResult<nlohmann::json> MlflowClient::get(const char* method, const std::string& key, const std::string& value,
                                               std::string_view member) {
  http::Request request;
  request.target = fmt::format("/api/2.0/mlflow/{}?{}={}", method, key, http::percent_encode(value));
  return call(std::move(request), member);
}

}  // namespace oarlock
