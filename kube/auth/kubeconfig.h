// Cluster address and credentials, from a kubeconfig file or from the service account of the pod.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "http/client/transport.h"
#include "kube/auth/exec_plugin.h"

namespace oarlock::kube {

// The identity under which the API server handles the requests of a client that may impersonate it.
struct Impersonation {
  std::string user;  // empty: no impersonation
  std::string uid;
  std::vector<std::string> groups;
  std::vector<std::pair<std::string, std::string>> extra;  // a key occurs once for each of its values

  bool operator==(const Impersonation&) const = default;
};

struct ClusterConfig {
  std::string source;  // origin of the configuration for messages: "~/.kube/config, context kind"
  std::string server;
  http::Pem ca;
  bool verify = true;
  std::string tls_server_name;
  std::string proxy;  // URL of an HTTP proxy; empty: none
  http::Pem client_certificate;
  http::Pem client_key;
  std::string token;               // constant token; empty: none
  std::string token_file;          // file that is read again periodically; empty: none
  std::optional<ExecConfig> exec;  // credential plugin
  Impersonation impersonation;
  std::string namespace_name;  // namespace of the context or of the pod; may be empty

  bool operator==(const ClusterConfig&) const = default;
};

// Reads an environment variable; returns "" if it is not set. Tests inject their own.
using Environment = std::function<std::string(const std::string& name)>;
Environment process_environment();

inline constexpr char kServiceAccountDirectory[] = "/var/run/secrets/kubernetes.io/serviceaccount";

// Finds the cluster in this order: `kubeconfig_flag` (--kubeconfig), $KUBECONFIG, the pod's service account, and
// ~/.kube/config. The proxy is the kubeconfig's `proxy-url`; otherwise the one that HTTPS_PROXY or HTTP_PROXY and
// NO_PROXY select for the server, also in a pod. Fails with kNoInput if a file is missing, and with kConfig if none of
// the sources exists or its content is invalid.
Result<ClusterConfig> find_cluster_config(const std::string& kubeconfig_flag, const Environment& environment,
                                          const std::string& service_account_directory = kServiceAccountDirectory);

// Finds the cluster for a command of a user, as kubectl does: `kubeconfig_flag`, $KUBECONFIG, ~/.kube/config, and the
// pod's service account. `context` selects a context of the kubeconfig; empty: its current-context. A credential plugin
// shares the terminal of the command. Otherwise like find_cluster_config(), which a service in a pod calls.
Result<ClusterConfig> find_user_cluster_config(const std::string& kubeconfig_flag, const std::string& context,
                                               const Environment& environment,
                                               const std::string& service_account_directory = kServiceAccountDirectory);

// Loads a context of one file, or of several with ':' between their paths, as in $KUBECONFIG. If several files define a
// name, the first definition applies. `context` is empty for the current-context.
Result<ClusterConfig> load_kubeconfig(const std::string& paths, const std::string& context = "");

// Returns the namespace of the pod in which this process runs; empty if it runs elsewhere, or has no service account.
std::string pod_namespace(const std::string& service_account_directory = kServiceAccountDirectory);

// Loads the service account of the pod.
Result<ClusterConfig> in_cluster_config(const Environment& environment, const std::string& service_account_directory);

// Converts the configuration to the options of a transport, including the sources of its credentials. A stop ends a
// running credential plugin (see ExecPlugin).
http::TransportOptions transport_options(const ClusterConfig& config, const std::string& user_agent,
                                         std::shared_ptr<const Clock> clock, const std::stop_token& stop = {});

}  // namespace oarlock::kube
