#include "kube/auth/kubeconfig.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/address.h"
#include "http/client/credentials.h"
#include "yaml/reader.h"

namespace oarlock::kube {
namespace {

using yaml::Node;

struct KubeconfigFile {
  std::string path;
  Node root;
};

std::string text_at(const Node& node, std::string_view key) {
  const auto value = node.find(key);
  return value && value->kind() == Node::Kind::kScalar ? value->text() : "";
}

// An entry of a named list, and the file that contains it.
struct Named {
  const KubeconfigFile* file;
  Node value;
};

// Finds the first entry with this name in the list `section`: "clusters": [{name, cluster: {...}}].
std::optional<Named> find_named(const std::vector<KubeconfigFile>& files, std::string_view section,
                                std::string_view member, const std::string& name) {
  for (const KubeconfigFile& file : files) {
    const auto list = file.root.find(section);
    if (!list || list->kind() != Node::Kind::kSequence) continue;
    for (const Node& item : list->items()) {
      if (text_at(item, "name") != name) continue;
      if (auto value = item.find(member)) return Named{&file, *value};
    }
  }
  return std::nullopt;
}

// Lists the names in a section for a message, truncated if there are many.
std::vector<std::string> names_in(const std::vector<KubeconfigFile>& files, std::string_view section) {
  constexpr size_t kMaxShown = 20;
  std::vector<std::string> names;
  for (const KubeconfigFile& file : files) {
    const auto list = file.root.find(section);
    if (!list || list->kind() != Node::Kind::kSequence) continue;
    for (const Node& item : list->items()) {
      if (names.size() > kMaxShown) return names;
      names.push_back(names.size() == kMaxShown ? "..." : shortened(text_at(item, "name")));
    }
  }
  return names;
}

// Reads KEY-data (base64) or KEY (a path, relative to the directory of the kubeconfig). As in client-go, KEY-data takes
// precedence.
Result<http::Pem> pem_at(const Named& at, const std::string& key) {
  if (const std::string data = text_at(at.value, key + "-data"); !data.empty()) {
    auto text = http::base64_decode(data);
    if (!text)
      return fail(ExitCode::kConfig, fmt::format("{}: {}-data is {}", at.file->path, key, text.error().message));
    return http::Pem{.text = std::move(*text), .file = ""};
  }
  const std::string file = text_at(at.value, key);
  if (file.empty()) return http::Pem{};
  return http::Pem{.text = "", .file = (std::filesystem::path(at.file->path).parent_path() / file).string()};
}

tl::unexpected<Error> unsupported(const Named& at, const std::string& key, std::string_view remedy) {
  return fail(ExitCode::kConfig, fmt::format("{}: '{}' is not supported: {}", at.file->path, key, remedy));
}

Result<void> read_cluster(const Named& at, ClusterConfig& config) {
  config.server = text_at(at.value, "server");
  if (config.server.empty())
    return fail(ExitCode::kConfig, fmt::format("{}: the cluster has no 'server'", at.file->path));
  config.proxy = text_at(at.value, "proxy-url");
  if (!config.proxy.empty()) {
    if (const auto proxy = http::parse_proxy_url(config.proxy); !proxy)
      return fail(ExitCode::kConfig, fmt::format("{}: proxy-url: {}", at.file->path, proxy.error().message));
  }
  const std::string insecure = text_at(at.value, "insecure-skip-tls-verify");
  config.verify = insecure != "true";
  config.tls_server_name = text_at(at.value, "tls-server-name");
  ASSIGN_OR_RETURN(config.ca, pem_at(at, "certificate-authority"));
  return {};
}

// Returns the cluster information for a plugin with provideClusterInfo: client-go's clientauthentication.Cluster.
Result<std::string> cluster_info(const ClusterConfig& config) {
  nlohmann::json info = {{"server", config.server}};
  if (!config.verify) info["insecure-skip-tls-verify"] = true;
  if (!config.tls_server_name.empty()) info["tls-server-name"] = config.tls_server_name;
  if (!config.proxy.empty()) info["proxy-url"] = config.proxy;
  if (!config.ca.empty()) {
    ASSIGN_OR_RETURN(const std::string text, config.ca.file.empty()
                                                 ? config.ca.text
                                                 : read_regular_file(config.ca.file, http::kMaxCredentialFileBytes));
    info["certificate-authority-data"] = http::base64_encode(text);
  }
  return info.dump();
}

Result<void> read_exec(const Named& at, const Node& exec, ClusterConfig& config) {
  const auto invalid = [&](const std::string& why) {
    return fail(ExitCode::kConfig, fmt::format("{}: user.exec: {}", at.file->path, why));
  };
  ExecConfig out;
  out.command = text_at(exec, "command");
  if (out.command.empty()) return invalid("no 'command'");
  if (out.command.find('/') != std::string::npos)
    out.command = (std::filesystem::path(at.file->path).parent_path() / out.command).string();
  out.api_version = text_at(exec, "apiVersion");
  if (out.api_version != "client.authentication.k8s.io/v1" &&
      out.api_version != "client.authentication.k8s.io/v1beta1") {
    return invalid(
        fmt::format("unknown apiVersion '{}': it should be client.authentication.k8s.io/v1", out.api_version));
  }
  if (text_at(exec, "interactiveMode") == "Always")
    return invalid(
        fmt::format("'{}' requires a terminal (interactiveMode: Always), which is not available", out.command));
  if (const auto list = exec.find("args"); list && list->kind() == Node::Kind::kSequence) {
    for (const Node& one : list->items()) out.arguments.push_back(one.text());
  }
  if (const auto list = exec.find("env"); list && list->kind() == Node::Kind::kSequence) {
    for (const Node& one : list->items()) out.environment.emplace_back(text_at(one, "name"), text_at(one, "value"));
  }
  out.install_hint = trim(text_at(exec, "installHint"));
  if (text_at(exec, "provideClusterInfo") == "true") {
    ASSIGN_OR_RETURN(out.cluster, cluster_info(config));
  }
  config.exec = std::move(out);
  return {};
}

Result<void> read_impersonation(const Named& at, Impersonation& out) {
  out.user = text_at(at.value, "as");
  out.uid = text_at(at.value, "as-uid");
  if (const auto groups = at.value.find("as-groups"); groups && groups->kind() == Node::Kind::kSequence) {
    for (const Node& group : groups->items()) out.groups.push_back(group.text());
  }
  if (const auto extra = at.value.find("as-user-extra"); extra && extra->kind() == Node::Kind::kMap) {
    for (const auto& [key, mark, values, is_key_quoted] : extra->entries()) {
      if (values.kind() != Node::Kind::kSequence) continue;
      for (const Node& value : values.items()) out.extra.emplace_back(key, value.text());
    }
  }
  const bool is_incomplete = out.user.empty() && !(out.uid.empty() && out.groups.empty() && out.extra.empty());
  if (is_incomplete)
    return fail(
        ExitCode::kConfig,
        fmt::format("{}: as-uid, as-groups and as-user-extra need the user to impersonate in 'as'", at.file->path));
  return {};
}

Result<void> read_user(const Named& at, ClusterConfig& config) {
  if (at.value.find("auth-provider"))
    return unsupported(at, "auth-provider", "use user.exec, a client certificate or a token");
  if (!text_at(at.value, "username").empty())
    return unsupported(at, "username", "API servers do not support basic authentication since 1.19");
  RETURN_IF_ERROR(read_impersonation(at, config.impersonation));
  ASSIGN_OR_RETURN(config.client_certificate, pem_at(at, "client-certificate"));
  ASSIGN_OR_RETURN(config.client_key, pem_at(at, "client-key"));
  config.token = text_at(at.value, "token");
  if (const std::string file = text_at(at.value, "tokenFile"); !file.empty()) {
    config.token_file = (std::filesystem::path(at.file->path).parent_path() / file).string();
  }
  if (const auto exec = at.value.find("exec")) return read_exec(at, *exec, config);
  return {};
}

std::vector<std::string> split_paths(const std::string& paths) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= paths.size();) {
    const size_t end = std::min(paths.find(':', begin), paths.size());
    if (end > begin) out.push_back(paths.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

Result<std::vector<KubeconfigFile>> load_files(const std::string& paths) {
  const std::vector<std::string> names = split_paths(paths);
  std::vector<KubeconfigFile> files;
  for (const std::string& path : names) {
    // As in kubectl, a missing file is ignored if there are several.
    std::error_code ignored;
    if (names.size() > 1 && !std::filesystem::exists(path, ignored)) continue;
    ASSIGN_OR_RETURN(const auto documents, yaml::load_all(path));
    if (documents.empty() || documents.front().kind() != Node::Kind::kMap) {
      return fail(ExitCode::kConfig,
                  fmt::format("{}: not a kubeconfig: it should be a map with clusters, contexts and users", path));
    }
    files.push_back({path, documents.front()});
  }
  if (files.empty()) return fail(ExitCode::kNoInput, fmt::format("{}: none of these kubeconfig files exists", paths));
  return files;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::string {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  };
}

Result<ClusterConfig> load_kubeconfig(const std::string& paths, const std::string& context) {
  ASSIGN_OR_RETURN(const std::vector<KubeconfigFile> files, load_files(paths));
  std::string context_name = context;
  for (const KubeconfigFile& file : files) {
    if (context_name.empty()) context_name = text_at(file.root, "current-context");
  }
  if (context_name.empty()) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: no current-context: choose one with 'kubectl config use-context NAME'", paths));
  }
  const auto missing = [&](const char* kind, const std::string& name) {
    return fail(ExitCode::kConfig, fmt::format("{}: no {} named '{}'", paths, kind, name));
  };
  const auto chosen = find_named(files, "contexts", "context", context_name);
  if (!chosen) {
    const std::vector<std::string> names = names_in(files, "contexts");
    return fail(ExitCode::kConfig, fmt::format("{}: no context named '{}'{}{}", paths, shortened(context_name),
                                               names.empty() ? "" : "; the contexts are: ", fmt::join(names, ", ")));
  }

  ClusterConfig config;
  config.source = fmt::format("{}, context {}", chosen->file->path, context_name);
  config.namespace_name = text_at(chosen->value, "namespace");
  const std::string cluster_name = text_at(chosen->value, "cluster");
  const auto cluster = find_named(files, "clusters", "cluster", cluster_name);
  if (!cluster) return missing("cluster", cluster_name);
  const std::string user_name = text_at(chosen->value, "user");
  const auto user = find_named(files, "users", "user", user_name);
  if (!user && !user_name.empty()) return missing("user", user_name);

  RETURN_IF_ERROR(read_cluster(*cluster, config));
  if (user) RETURN_IF_ERROR(read_user(*user, config));
  return config;
}

std::string pod_namespace(const std::string& service_account_directory) {
  const auto name = read_regular_file(service_account_directory + "/namespace", http::kMaxCredentialFileBytes);
  return name ? std::string(trim(*name)) : "";
}

Result<ClusterConfig> in_cluster_config(const Environment& environment, const std::string& service_account_directory) {
  ClusterConfig config;
  config.source = "the pod's service account";
  std::string host = environment("KUBERNETES_SERVICE_HOST");
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  config.server = fmt::format("https://{}:{}", host, port.empty() ? "443" : port);
  config.ca.file = service_account_directory + "/ca.crt";
  config.token_file = service_account_directory + "/token";
  // Both must exist now. They are read again later, because the kubelet replaces them.
  for (const std::string& file : {config.ca.file, config.token_file}) {
    if (const auto text = read_regular_file(file, http::kMaxCredentialFileBytes); !text) {
      return fail(text.error().code,
                  fmt::format("{}; is automountServiceAccountToken off for this pod?", text.error().message));
    }
  }
  config.namespace_name = pod_namespace(service_account_directory);
  return config;
}

namespace {

// Reads a variable whose name may be in upper or in lower case, as Go does.
std::string either_case(const Environment& environment, const std::string& upper, const std::string& lower) {
  std::string value = environment(upper);
  return value.empty() ? environment(lower) : value;
}

// Sets the proxy from the environment unless the kubeconfig has one.
Result<ClusterConfig> add_proxy(ClusterConfig config, const Environment& environment) {
  if (!config.proxy.empty()) return config;
  const auto server = http::parse_server_address(config.server);
  if (!server) return config;  // create_transport() reports it
  config.proxy = http::choose_proxy(*server, {.http_proxy = either_case(environment, "HTTP_PROXY", "http_proxy"),
                                              .https_proxy = either_case(environment, "HTTPS_PROXY", "https_proxy"),
                                              .no_proxy = either_case(environment, "NO_PROXY", "no_proxy")});
  if (config.proxy.empty()) return config;
  if (const auto proxy = http::parse_proxy_url(config.proxy); !proxy) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: {}", server->tls ? "HTTPS_PROXY" : "HTTP_PROXY", proxy.error().message));
  }
  return config;
}

tl::unexpected<Error> no_cluster() {
  return fail(ExitCode::kConfig, "no cluster is configured: pass --kubeconfig FILE, set KUBECONFIG, or run in a pod");
}

Result<ClusterConfig> find_cluster(const std::string& kubeconfig_flag, const Environment& environment,
                                   const std::string& service_account_directory) {
  if (!kubeconfig_flag.empty()) return load_kubeconfig(kubeconfig_flag);
  if (const std::string paths = environment("KUBECONFIG"); !paths.empty()) return load_kubeconfig(paths);
  if (!environment("KUBERNETES_SERVICE_HOST").empty()) return in_cluster_config(environment, service_account_directory);
  std::error_code ignored;
  if (const std::string home = environment("HOME");
      !home.empty() && std::filesystem::exists(home + "/.kube/config", ignored)) {
    return load_kubeconfig(home + "/.kube/config");
  }
  return no_cluster();
}

Result<ClusterConfig> find_user_cluster(const std::string& kubeconfig_flag, const std::string& context,
                                        const Environment& environment, const std::string& service_account_directory) {
  if (!kubeconfig_flag.empty()) return load_kubeconfig(kubeconfig_flag, context);
  if (const std::string paths = environment("KUBECONFIG"); !paths.empty()) return load_kubeconfig(paths, context);
  const std::string home = environment("HOME");
  std::error_code ignored;
  if (!home.empty() && std::filesystem::exists(home + "/.kube/config", ignored))
    return load_kubeconfig(home + "/.kube/config", context);
  if (!context.empty()) {
    return fail(ExitCode::kConfig, fmt::format("there is no kubeconfig that could have the context '{}': pass "
                                               "--kubeconfig FILE, or set KUBECONFIG",
                                               shortened(context)));
  }
  if (!environment("KUBERNETES_SERVICE_HOST").empty()) return in_cluster_config(environment, service_account_directory);
  return no_cluster();
}

}  // namespace

Result<ClusterConfig> find_cluster_config(const std::string& kubeconfig_flag, const Environment& environment,
                                          const std::string& service_account_directory) {
  ASSIGN_OR_RETURN(ClusterConfig config, find_cluster(kubeconfig_flag, environment, service_account_directory));
  return add_proxy(std::move(config), environment);
}

Result<ClusterConfig> find_user_cluster_config(const std::string& kubeconfig_flag, const std::string& context,
                                               const Environment& environment,
                                               const std::string& service_account_directory) {
  ASSIGN_OR_RETURN(ClusterConfig config,
                   find_user_cluster(kubeconfig_flag, context, environment, service_account_directory));
  if (config.exec) config.exec->shares_terminal = true;
  return add_proxy(std::move(config), environment);
}

namespace {

// The characters of the names of header fields (RFC 9110) that percent_encode() would encode. client-go encodes the
// keys of as-user-extra in the same way: "example.com/team" has a '/'.
constexpr std::string_view kFieldNamePunctuation = "!#$&'*+^`|";

void add_impersonation(const Impersonation& who, http::TransportOptions& options) {
  if (who.user.empty()) return;
  options.headers.emplace_back("Impersonate-User", who.user);
  if (!who.uid.empty()) options.headers.emplace_back("Impersonate-Uid", who.uid);
  for (const std::string& group : who.groups) options.headers.emplace_back("Impersonate-Group", group);
  for (const auto& [key, value] : who.extra)
    options.headers.emplace_back("Impersonate-Extra-" + http::percent_encode(key, kFieldNamePunctuation), value);
}

}  // namespace

http::TransportOptions transport_options(const ClusterConfig& config, const std::string& user_agent,
                                         std::shared_ptr<const Clock> clock, const std::stop_token& stop) {
  http::TransportOptions options;
  options.server = config.server;
  options.ca = config.ca;
  options.verify = config.verify;
  options.tls_server_name = config.tls_server_name;
  options.client_certificate = config.client_certificate;
  options.client_key = config.client_key;
  options.proxy = config.proxy;
  options.user_agent = user_agent;
  add_impersonation(config.impersonation, options);
  // As in client-go, the file takes precedence, because the token next to it may be outdated.
  if (!config.token_file.empty()) {
    options.token = std::make_shared<http::FileToken>(config.token_file, std::move(clock));
  } else if (config.exec) {
    const auto plugin = std::make_shared<ExecPlugin>(*config.exec, std::move(clock), stop);
    options.token = plugin;
    options.certificate = plugin;
  } else if (!config.token.empty()) {
    options.token = std::make_shared<http::ConstantToken>(config.token);
  }
  return options;
}

}  // namespace oarlock::kube
