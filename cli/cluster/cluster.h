// The cluster that a command works on: the common options, the connection, and requests whose errors are messages for
// users.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/contract.h"
#include "common/error.h"
#include "http/client/transport.h"
#include "kube/auth/kubeconfig.h"
#include "kube/client/client.h"
#include "kube/client/request.h"

namespace oarlock::cli {

// The options that all commands of this directory share. They have the names and meanings of kubectl's.
struct ClusterFlags {
  std::string kubeconfig;
  std::string context;
  std::string namespace_name;
  bool all_namespaces = false;
  std::string as;
  std::vector<std::string> as_groups;
  std::string as_uid;
  std::chrono::milliseconds request_timeout{30'000};
};

// Adds the options to a subcommand; with `all_namespaces`, -A too. `flags` must outlive the parsing.
void add_cluster_options(CLI::App& app, ClusterFlags& flags, bool all_namespaces = false);

// The operation and the object of a request, for messages: "list trainingjobs.oarlock.dev in namespace team".
struct Subject {
  std::string verb;  // of RBAC: get, list, create, patch, delete
  kube::Resource resource;
  kube::ObjectKey key;      // the name is empty for lists
  std::string subresource;  // "log", "proxy"; empty: none

  std::string to_string() const;
};

inline kube::Resource training_jobs() { return {kGroup, kVersion, kPlural}; }
inline kube::Resource core_events() { return {"", "v1", "events"}; }
inline kube::Resource nodes() { return {"", "v1", "nodes"}; }

// Converts an error of the API server to a message that names the cluster, the object and the remedy. The exit codes
// are in docs/exit-codes.md. Pure.
Error to_user_error(const kube::ApiError& error, const Subject& subject, const kube::ClusterConfig& config);

// Parses a response. Fails with kDataErr if the text is not a JSON object of a reasonable depth and number of values.
Result<nlohmann::json> parse_response(const std::string& text);

// A client of the API server, whose errors are messages for users. Thread-safe.
class Cluster {
 public:
  // Selects the cluster as kubectl does: by the flags, $KUBECONFIG, ~/.kube/config or the service account of the pod.
  // Opens no connection. Fails with kUsage if the flags are invalid, otherwise as find_user_cluster_config() and
  // create_transport() do.
  static Result<Cluster> connect(const ClusterFlags& flags);
  // For tests.
  Cluster(kube::ClusterConfig config, std::shared_ptr<http::Transport> transport, const ClusterFlags& flags,
          std::shared_ptr<const Clock> clock = std::make_shared<RealClock>());

  // The namespace of the command: --namespace, that of the context, or "default". Empty with --all-namespaces.
  const std::string& namespace_name() const { return name_space_; }
  const kube::ClusterConfig& config() const { return config_; }

  Result<nlohmann::json> get(const kube::Resource& resource, const kube::ObjectKey& key) const;
  // As get(), but without conversion of the error.
  kube::ApiResult<nlohmann::json> try_get(const kube::Resource& resource, const kube::ObjectKey& key) const;

  // Calls `visit` for each object of the selection and requests the list in pages, so that it is never in memory as a
  // whole. `visit` returns false to stop. All pages together may take kListTimeouts times the timeout of one request.
  static constexpr int kListTimeouts = 10;
  using Visitor = std::function<bool(nlohmann::json)>;
  Result<void> list(const kube::Resource& resource, const kube::Selection& selection, const Visitor& visit) const;

  // Sends any request, and returns the parsed response.
  Result<nlohmann::json> send(const http::Request& request, const Subject& subject) const;

  // Returns at most `limit` bytes of the response of a GET request; a longer response is an error of kind kTransport.
  kube::ApiResult<std::string> read_limited(const std::string& target, size_t limit,
                                            std::chrono::milliseconds timeout) const;

  http::Transport& transport() const { return *transport_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Reads a TrainingJob of the command's namespace. If it does not exist, the message suggests a similar name, or names
  // the namespaces that have such a job.
  Result<nlohmann::json> training_job(const std::string& name) const;

 private:
  Error not_found(const std::string& name) const;
  kube::ApiResult<std::string> call(const http::Request& request, std::chrono::milliseconds timeout) const;

  kube::ClusterConfig config_;
  std::shared_ptr<http::Transport> transport_;
  std::shared_ptr<const Clock> clock_;
  std::chrono::milliseconds timeout_;
  std::string name_space_;
};

}  // namespace oarlock::cli
