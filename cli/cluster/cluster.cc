#include "cli/cluster/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/cluster/output.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "operator/core/text.h"

namespace oarlock::cli {
namespace {

using Json = nlohmann::json;

constexpr int kPageSize = 200;      // objects
constexpr int kSmallPageSize = 10;  // objects, if a page exceeds the limits of a response
constexpr int kMaxJsonDepth = 200;  // of a response
// Values of a response, each of which takes about 100 bytes once it is parsed. 200 jobs have some 20,000 of them.
constexpr size_t kMaxJsonValues = 1'000'000;
constexpr size_t kMaxMessage = 600;  // bytes of a message of the API server
constexpr char kInstallRemedy[] =
    "install Oarlock's operator (docs/install.md), or choose another cluster with --context";

// The files in which distributions keep the trusted certificate authorities; the order is that of Go's crypto/x509.
constexpr const char* kAuthorityFiles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                           "/etc/pki/tls/certs/ca-bundle.crt",
                                           "/etc/ssl/ca-bundle.pem",
                                           "/etc/pki/tls/cacert.pem",
                                           "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                           "/etc/ssl/cert.pem"};

// The OpenSSL of a portable program searches only the directories of the distribution on which it was built.
void find_system_authorities() {
  if (std::getenv("SSL_CERT_FILE") != nullptr || std::getenv("SSL_CERT_DIR") != nullptr) return;
  std::error_code ignored;
  for (const char* file : kAuthorityFiles) {
    if (!std::filesystem::exists(file, ignored)) continue;
    ::setenv("SSL_CERT_FILE", file, 0);
    return;
  }
}

std::string place_of(const kube::ClusterConfig& config) {
  return config.source.empty() ? config.server : fmt::format("{} ({})", config.server, config.source);
}

std::string message_of(const kube::ApiError& error) { return control::sanitize_line(error.message, kMaxMessage); }

// The API server reports an unknown resource without the name of an object.
bool is_unknown_resource(const kube::ApiError& error) {
  return error.kind == kube::ApiErrorKind::kNotFound &&
         error.message.find("could not find the requested resource") != std::string::npos;
}

Error transport_error(const kube::ApiError& error, const kube::ClusterConfig& config) {
  const std::string what = fmt::format("{}: {}", config.source, message_of(error));
  switch (error.transport.value_or(http::TransportErrorKind::kBroken)) {
    case http::TransportErrorKind::kConnect:
      return {ExitCode::kUnavailable,
              what + "; check that the cluster runs and that this machine reaches it, or choose another --context"};
    case http::TransportErrorKind::kTls:
      return {ExitCode::kUnavailable,
              what + "; check certificate-authority and server in the kubeconfig, and the clocks of both machines"};
    case http::TransportErrorKind::kDeadline:
    case http::TransportErrorKind::kIdle:
      return {ExitCode::kUnavailable, what + "; try again, or raise --request-timeout"};
    case http::TransportErrorKind::kRefused:
      if (error.message.find("larger than allowed") != std::string::npos) return {ExitCode::kDataErr, what};
      return {ExitCode::kNoPermission, what + "; check the credentials in the kubeconfig"};
    case http::TransportErrorKind::kBroken:
    case http::TransportErrorKind::kCancelled:
      break;
  }
  return {ExitCode::kUnavailable, what + "; try again"};
}

// Returns an upper bound of the number of values in JSON text, without parsing it.
size_t count_values(std::string_view json) {
  size_t count = 1;
  bool is_in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') {
      is_in_string = !is_in_string;
    } else if (is_in_string) {
      if (c == '\\') ++i;
    } else if (c == ',' || c == '{' || c == '[') {
      ++count;
    }
  }
  return count;
}

class BoundedSink final : public http::ByteSink {
 public:
  explicit BoundedSink(size_t limit) : limit_(limit) {}
  bool write(std::string_view bytes) override {
    if (bytes.size() > limit_ - text_.size()) return false;
    text_ += bytes;
    return true;
  }
  std::string take() { return std::move(text_); }

 private:
  const size_t limit_;
  std::string text_;
};

}  // namespace

void add_cluster_options(CLI::App& app, ClusterFlags& flags, bool all_namespaces) {
  constexpr char kGroupName[] = "cluster";
  app.add_option("-n,--namespace", flags.namespace_name, "namespace (default: that of the context)")
      ->type_name("NAMESPACE")
      ->group(kGroupName);
  if (all_namespaces) app.add_flag("-A,--all-namespaces", flags.all_namespaces, "all namespaces")->group(kGroupName);
  app.add_option("--context", flags.context, "context of the kubeconfig (default: its current-context)")
      ->type_name("NAME")
      ->group(kGroupName);
  app.add_option("--kubeconfig", flags.kubeconfig, "kubeconfig file (default: $KUBECONFIG, or ~/.kube/config)")
      ->type_name("FILE")
      ->group(kGroupName);
  app.add_option("--as", flags.as, "user to impersonate")->type_name("USER")->group(kGroupName);
  app.add_option("--as-group", flags.as_groups, "group to impersonate; may be given several times")
      ->type_name("GROUP")
      ->allow_extra_args(false)
      ->group(kGroupName);
  app.add_option("--as-uid", flags.as_uid, "UID to impersonate")->type_name("UID")->group(kGroupName);
  app.add_option_function<std::string>(
         "--request-timeout",
         [&flags](const std::string& text) {
           const auto duration = parse_duration(text);
           if (!duration)
             throw CLI::ValidationError("--request-timeout",
                                        fmt::format("'{}' is not a duration such as 30s or 2m", printable(text)));
           constexpr std::chrono::milliseconds kUnlimited = std::chrono::hours(24 * 365);
           flags.request_timeout = duration->count() == 0 ? kUnlimited : std::min(*duration, kUnlimited);
         },
         "timeout of one request; a list may take ten times as long; 0: unlimited (default: 30s)")
      ->type_name("DURATION")
      ->group(kGroupName);
}

std::string Subject::to_string() const {
  std::string what = resource.to_string();
  if (!subresource.empty()) what = resource.plural + "/" + subresource;
  std::string out = fmt::format("{} {}", verb, what);
  if (!key.name.empty()) out += fmt::format(" '{}'", shortened(key.name));
  if (!key.namespace_name.empty()) out += fmt::format(" in namespace {}", shortened(key.namespace_name));
  return out;
}

Error to_user_error(const kube::ApiError& error, const Subject& subject, const kube::ClusterConfig& config) {
  using Kind = kube::ApiErrorKind;
  const auto with = [&](ExitCode code, std::string_view remedy) {
    return Error{code, fmt::format("cannot {}: {}; {}", subject.to_string(), message_of(error), remedy)};
  };
  switch (error.kind) {
    case Kind::kTransport:
      return transport_error(error, config);
    case Kind::kUnauthorized:
      return {ExitCode::kNoPermission,
              fmt::format("{} does not accept the credentials (status 401): log in again, or choose another --context",
                          place_of(config))};
    case Kind::kForbidden:
      return with(ExitCode::kNoPermission,
                  fmt::format("this needs a role with the verb {} for {}{}", subject.verb, subject.resource.to_string(),
                              subject.subresource.empty() ? "" : "/" + subject.subresource));
    case Kind::kNotFound:
      if (is_unknown_resource(error) && subject.resource == training_jobs()) {
        return {ExitCode::kUnavailable,
                fmt::format("{} does not serve {} ({}): {}", place_of(config), kPlural, kApiVersion, kInstallRemedy)};
      }
      return {ExitCode::kNoInput, fmt::format("cannot {}: {}", subject.to_string(), message_of(error))};
    case Kind::kAlreadyExists:
      return {ExitCode::kCantCreate, fmt::format("cannot {}: it already exists", subject.to_string())};
    case Kind::kInvalid:
      return {ExitCode::kConfig, fmt::format("cannot {}: {}", subject.to_string(), message_of(error))};
    case Kind::kConflict:
      return with(ExitCode::kTempFail, "the object was changed concurrently; try again");
    case Kind::kTooManyRequests:
    case Kind::kServer:
    case Kind::kExpired:
      return with(ExitCode::kTempFail, "the API server is overloaded or starting; try again");
    case Kind::kOther:
      break;
  }
  return {ExitCode::kFailure, fmt::format("cannot {}: {}", subject.to_string(), message_of(error))};
}

Result<Json> parse_response(const std::string& text) {
  if (json_depth(text) > kMaxJsonDepth)
    return fail(ExitCode::kDataErr,
                fmt::format("the response of the API server is nested deeper than {} levels", kMaxJsonDepth));
  if (count_values(text) > kMaxJsonValues)
    return fail(ExitCode::kDataErr,
                fmt::format("the response of the API server has more than {}", counted(kMaxJsonValues, "value")));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ExitCode::kDataErr, "the response of the API server is not a JSON object");
  return json;
}

// ---- Cluster -------------------------------------------------------------------------------------------------------

Result<Cluster> Cluster::connect(const ClusterFlags& flags) {
  ASSIGN_OR_RETURN(kube::ClusterConfig config,
                   kube::find_user_cluster_config(flags.kubeconfig, flags.context, kube::process_environment()));
  if (!flags.as.empty()) {
    config.impersonation = {.user = flags.as, .uid = flags.as_uid, .groups = flags.as_groups, .extra = {}};
  } else if (!flags.as_groups.empty() || !flags.as_uid.empty()) {
    return fail(ExitCode::kUsage, "--as-group and --as-uid need the user to impersonate: add --as USER");
  }
  find_system_authorities();
  auto transport = http::create_transport(
      kube::transport_options(config, "oarlock/" OARLOCK_VERSION, std::make_shared<RealClock>()));
  if (!transport) {
    return fail(transport.error().code, fmt::format("{}: {}", config.source, transport.error().message));
  }
  return Cluster(std::move(config), std::move(*transport), flags);
}

Cluster::Cluster(kube::ClusterConfig config, std::shared_ptr<http::Transport> transport, const ClusterFlags& flags,
                 std::shared_ptr<const Clock> clock)
    : config_(std::move(config)),
      transport_(std::move(transport)),
      clock_(std::move(clock)),
      timeout_(flags.request_timeout) {
  if (flags.all_namespaces) return;
  name_space_ = !flags.namespace_name.empty() ? flags.namespace_name : config_.namespace_name;
  if (name_space_.empty()) name_space_ = "default";
}

kube::ApiResult<std::string> Cluster::call(const http::Request& request, std::chrono::milliseconds timeout) const {
  http::TransportResult<http::Response> response = transport_->send(request, timeout, {});
  if (!response) return tl::make_unexpected(kube::to_api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(kube::to_api_error(*response));
  return std::move(response->body);
}

kube::ApiResult<Json> Cluster::try_get(const kube::Resource& resource, const kube::ObjectKey& key) const {
  ASSIGN_OR_RETURN(const std::string text, call(kube::get_request(resource, key), timeout_));
  Result<Json> json = parse_response(text);
  if (!json) return tl::make_unexpected(kube::to_api_error(0, "", json.error().message));
  return std::move(*json);
}

Result<Json> Cluster::get(const kube::Resource& resource, const kube::ObjectKey& key) const {
  return try_get(resource, key).map_error([&](const kube::ApiError& error) {
    return to_user_error(error, {.verb = "get", .resource = resource, .key = key, .subresource = ""}, config_);
  });
}

Result<Json> Cluster::send(const http::Request& request, const Subject& subject) const {
  const kube::ApiResult<std::string> text = call(request, timeout_);
  if (!text) return tl::make_unexpected(to_user_error(text.error(), subject, config_));
  return parse_response(*text);
}

namespace {

tl::unexpected<Error> malformed_list(const Subject& subject, std::string_view reason) {
  return fail(ExitCode::kDataErr,
              fmt::format("cannot {}: the response of the API server is malformed: {}", subject.to_string(), reason));
}

std::string_view remedy_for_large_list(const kube::Resource& resource) {
  return resource == training_jobs() ? ", or select fewer jobs with -n or -l" : "";
}

}  // namespace

Result<void> Cluster::list(const kube::Resource& resource, const kube::Selection& selection,
                           const Visitor& visit) const {
  const Subject subject{.verb = "list",
                        .resource = resource,
                        .key = {.namespace_name = selection.namespace_name, .name = ""},
                        .subresource = ""};
  kube::ListOptions options{.resource_version = "", .limit = kPageSize, .continue_token = ""};
  kube::ListProgress progress;
  size_t received = 0;
  const SteadyTime end = clock_->steady() + kListTimeouts * timeout_;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock_->steady());
    if (left.count() <= 0) {
      return fail(ExitCode::kUnavailable,
                  fmt::format("{}: cannot {}: the list did not end within {}, after {}; raise --request-timeout{}",
                              config_.source, subject.to_string(),
                              duration_text(std::chrono::duration_cast<std::chrono::seconds>(kListTimeouts * timeout_)),
                              counted(received, "object"), remedy_for_large_list(resource)));
    }
    const kube::ApiResult<std::string> text =
        call(kube::list_request(resource, selection, options), std::min(timeout_, left));
    if (!text) {
      // Objects of 1 MiB exceed the limit of a response in smaller numbers.
      if (text.error().transport == http::TransportErrorKind::kRefused && options.limit > kSmallPageSize) {
        options.limit = kSmallPageSize;
        continue;
      }
      return tl::make_unexpected(to_user_error(text.error(), subject, config_));
    }
    if (options.limit > kSmallPageSize && count_values(*text) > kMaxJsonValues) {
      options.limit = kSmallPageSize;
      continue;
    }
    ASSIGN_OR_RETURN(Json page, parse_response(*text));
    const std::string item_kind = [&] {
      const std::string kind = text_at(page, "kind");
      return kind.ends_with("List") ? kind.substr(0, kind.size() - 4) : "";
    }();
    Json& items = page["items"];  // null if the list is empty
    if (!items.is_array() && !items.is_null()) return malformed_list(subject, "its items are not an array");
    const size_t objects = items.size();
    received += objects;
    for (Json& item : items) {
      if (!item.is_object() || !member(item, "metadata").is_object())
        return malformed_list(subject, "an item is not an object with metadata");
      // Items of a list of a built-in resource have neither kind nor apiVersion.
      if (!item.contains("kind") && !item_kind.empty()) {
        item["kind"] = item_kind;
        item["apiVersion"] = text_at(page, "apiVersion");
      }
      if (!visit(std::move(item))) return {};
    }
    options.continue_token = text_at(member(page, "metadata"), "continue");
    if (options.continue_token.empty()) return {};
    const std::string problem = progress.add_page(objects, static_cast<size_t>(options.limit));
    if (!problem.empty()) {
      return fail(ExitCode::kUnavailable,
                  fmt::format("{}: cannot {}: {}; check the API server and the proxies in front of it{}",
                              config_.server, subject.to_string(), problem, remedy_for_large_list(resource)));
    }
  }
}

kube::ApiResult<std::string> Cluster::read_limited(const std::string& target, size_t limit,
                                                   std::chrono::milliseconds timeout) const {
  BoundedSink sink(limit);
  const http::TransportResult<http::Response> response =
      transport_->stream({.method = "GET", .target = target, .body = "", .content_type = ""}, sink,
                         {.idle = timeout, .total = timeout}, {});
  if (!response) return tl::make_unexpected(kube::to_api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(kube::to_api_error(*response));
  return sink.take();
}

Result<Json> Cluster::training_job(const std::string& name) const {
  const kube::ApiResult<Json> job = try_get(training_jobs(), {.namespace_name = name_space_, .name = name});
  if (job) return *job;
  if (job.error().kind == kube::ApiErrorKind::kNotFound && !is_unknown_resource(job.error()))
    return tl::make_unexpected(not_found(name));
  return tl::make_unexpected(to_user_error(job.error(),
                                           {.verb = "get",
                                            .resource = training_jobs(),
                                            .key = {.namespace_name = name_space_, .name = name},
                                            .subresource = ""},
                                           config_));
}

Error Cluster::not_found(const std::string& name) const {
  constexpr size_t kMaxNames = 1000;
  std::string message = fmt::format("{} '{}' does not exist in namespace {}", kKind, shortened(name), name_space_);
  std::vector<std::string> names;
  const Result<void> listed =
      list(training_jobs(), {.namespace_name = name_space_, .label_selector = "", .field_selector = ""},
           [&](const Json& job) {
             names.push_back(text_at(member(job, "metadata"), "name"));
             return names.size() < kMaxNames;
           });
  if (!listed) return {ExitCode::kNoInput, message};
  if (const std::string nearest = suggest(name, names); !nearest.empty())
    return {ExitCode::kNoInput, fmt::format("{}; did you mean '{}'?", message, printable(nearest))};
  std::vector<std::string> places;
  (void)list(training_jobs(), {.namespace_name = "", .label_selector = "", .field_selector = "metadata.name=" + name},
             [&](const Json& job) {
               places.push_back(printable(text_at(member(job, "metadata"), "namespace")));
               return places.size() < 5;
             });
  if (!places.empty())
    return {ExitCode::kNoInput,
            fmt::format("{}; there is one in namespace {}: add -n", message, fmt::join(places, ", "))};
  return {ExitCode::kNoInput,
          message + (names.empty() ? "; it has no TrainingJobs" : "; list them with: oarlock list -n " + name_space_)};
}

}  // namespace oarlock::cli
