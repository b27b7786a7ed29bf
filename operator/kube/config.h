// Which API server, and who we are to it: a kubeconfig file, or the service account of the pod.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "operator/kube/exec_plugin.h"
#include "operator/kube/transport_options.h"

namespace oarlock::kube {

struct ClusterConfig {
  std::string source;  // where it came from, for messages: "~/.kube/config, context kind" or "in-cluster"
  std::string server;
  Pem ca;
  bool verify = true;
  std::string tls_server_name;
  std::string proxy;  // URL of an HTTP proxy; empty: none
  Pem client_certificate;
  Pem client_key;
  std::string token;               // constant; empty: none
  std::string token_file;          // read again and again; empty: none
  std::optional<ExecConfig> exec;  // a command that gives a token or a client certificate
  std::string name_space;          // the context's, or the pod's; empty: not said

  bool operator==(const ClusterConfig&) const = default;
};

// Environment variables, passed in. Absent and empty are the same.
using Environment = std::function<std::string(const std::string& name)>;
Environment process_environment();

inline constexpr char kServiceAccountFolder[] = "/var/run/secrets/kubernetes.io/serviceaccount";

// --kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config. Fails with kNoInput where a file
// is missing, kConfig where there is none of these or what they say cannot work. The proxy is the kubeconfig file's
// `proxy-url`, or else the one that HTTPS_PROXY or HTTP_PROXY and NO_PROXY name for the server, also in a pod.
Result<ClusterConfig> find_cluster_config(const std::string& kubeconfig_flag, const Environment& environment,
                                          const std::string& service_account_folder = kServiceAccountFolder);

// `paths`: one file, or several with ':' between them, as $KUBECONFIG may hold: the first that defines a name wins.
Result<ClusterConfig> load_kubeconfig(const std::string& paths);

Result<ClusterConfig> in_cluster_config(const Environment& environment, const std::string& service_account_folder);

TransportOptions transport_options(const ClusterConfig& config, const std::string& user_agent,
                                   std::shared_ptr<const Clock> clock);

}  // namespace oarlock::kube
