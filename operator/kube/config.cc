#include "operator/kube/config.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/files.h"
#include "common/yaml/reader.h"
#include "operator/kube/base64.h"
#include "operator/kube/proxy.h"

namespace oarlock::kube {
namespace {

using yaml::Node;

struct KubeconfigFile {
  std::string path;
  Node root;
};

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string text_at(const Node& node, std::string_view key) {
  const auto value = node.find(key);
  return value && value->kind() == Node::Kind::kScalar ? value->text() : "";
}

// The value of the first entry with this name in the list `section` ("clusters": [{name, cluster: {...}}]).
struct Named {
  const KubeconfigFile* file;
  Node value;
};
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

// The pair KEY-data (base64) and KEY (a file, relative to the kubeconfig's folder); the data wins, as in client-go.
Result<Pem> pem_at(const Named& at, const std::string& key) {
  if (const std::string data = text_at(at.value, key + "-data"); !data.empty()) {
    auto text = base64_decode(data);
    if (!text)
      return fail(ExitCode::kConfig, fmt::format("{}: {}-data is {}", at.file->path, key, text.error().message));
    return Pem{.text = std::move(*text), .file = ""};
  }
  const std::string file = text_at(at.value, key);
  if (file.empty()) return Pem{};
  return Pem{.text = "", .file = (std::filesystem::path(at.file->path).parent_path() / file).string()};
}

tl::unexpected<Error> unsupported(const Named& at, const std::string& key, std::string_view remedy) {
  return fail(ExitCode::kConfig, fmt::format("{}: '{}' is not supported yet: {}", at.file->path, key, remedy));
}

Result<void> read_cluster(const Named& at, ClusterConfig& config) {
  config.server = text_at(at.value, "server");
  if (config.server.empty())
    return fail(ExitCode::kConfig, fmt::format("{}: the cluster has no 'server'", at.file->path));
  config.proxy = text_at(at.value, "proxy-url");
  if (!config.proxy.empty()) {
    if (const auto proxy = parse_proxy_url(config.proxy); !proxy)
      return fail(ExitCode::kConfig, fmt::format("{}: proxy-url: {}", at.file->path, proxy.error().message));
  }
  const std::string insecure = text_at(at.value, "insecure-skip-tls-verify");
  config.verify = insecure != "true";
  config.tls_server_name = text_at(at.value, "tls-server-name");
  auto ca = pem_at(at, "certificate-authority");
  if (!ca) return tl::make_unexpected(ca.error());
  config.ca = std::move(*ca);
  return {};
}

// What a plugin with provideClusterInfo is told: client-go's clientauthentication.Cluster.
Result<std::string> cluster_info(const ClusterConfig& config) {
  nlohmann::json info = {{"server", config.server}};
  if (!config.verify) info["insecure-skip-tls-verify"] = true;
  if (!config.tls_server_name.empty()) info["tls-server-name"] = config.tls_server_name;
  if (!config.proxy.empty()) info["proxy-url"] = config.proxy;
  if (!config.ca.empty()) {
    const Result<std::string> text = config.ca.file.empty() ? config.ca.text : read_file(config.ca.file);
    if (!text) return text;
    info["certificate-authority-data"] = base64_encode(*text);
  }
  return info.dump();
}

Result<void> read_exec(const Named& at, const Node& exec, ClusterConfig& config) {
  const auto wrong = [&](const std::string& why) {
    return fail(ExitCode::kConfig, fmt::format("{}: user.exec: {}", at.file->path, why));
  };
  ExecConfig out;
  out.command = text_at(exec, "command");
  if (out.command.empty()) return wrong("there is no 'command'");
  if (out.command.find('/') != std::string::npos)
    out.command = (std::filesystem::path(at.file->path).parent_path() / out.command).string();
  out.api_version = text_at(exec, "apiVersion");
  if (out.api_version != "client.authentication.k8s.io/v1" &&
      out.api_version != "client.authentication.k8s.io/v1beta1") {
    return wrong(
        fmt::format("apiVersion '{}' is not known: it should be client.authentication.k8s.io/v1", out.api_version));
  }
  if (text_at(exec, "interactiveMode") == "Always")
    return wrong(fmt::format("'{}' wants a terminal (interactiveMode: Always), and here is none", out.command));
  if (const auto list = exec.find("args"); list && list->kind() == Node::Kind::kSequence) {
    for (const Node& one : list->items()) out.arguments.push_back(one.text());
  }
  if (const auto list = exec.find("env"); list && list->kind() == Node::Kind::kSequence) {
    for (const Node& one : list->items()) out.environment.emplace_back(text_at(one, "name"), text_at(one, "value"));
  }
  out.install_hint = trimmed(text_at(exec, "installHint"));
  if (text_at(exec, "provideClusterInfo") == "true") {
    Result<std::string> info = cluster_info(config);
    if (!info) return tl::make_unexpected(info.error());
    out.cluster = std::move(*info);
  }
  config.exec = std::move(out);
  return {};
}

Result<void> read_user(const Named& at, ClusterConfig& config) {
  if (at.value.find("auth-provider"))
    return unsupported(at, "auth-provider", "use user.exec, a client certificate or a token");
  if (!text_at(at.value, "username").empty())
    return unsupported(at, "username", "API servers take no passwords since 1.19");
  for (const char* impersonation : {"as", "as-uid", "as-groups"}) {
    if (at.value.find(impersonation)) return unsupported(at, impersonation, "use the user's own credentials");
  }
  auto certificate = pem_at(at, "client-certificate");
  if (!certificate) return tl::make_unexpected(certificate.error());
  auto key = pem_at(at, "client-key");
  if (!key) return tl::make_unexpected(key.error());
  config.client_certificate = std::move(*certificate);
  config.client_key = std::move(*key);
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

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::string {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  };
}

Result<ClusterConfig> load_kubeconfig(const std::string& paths) {
  const std::vector<std::string> names = split_paths(paths);
  std::vector<KubeconfigFile> files;
  for (const std::string& path : names) {
    // Of several files, one that does not exist is left out, as kubectl does.
    std::error_code ignored;
    if (names.size() > 1 && !std::filesystem::exists(path, ignored)) continue;
    auto documents = yaml::load_all(path);
    if (!documents) return tl::make_unexpected(documents.error());
    if (documents->empty() || documents->front().kind() != Node::Kind::kMap) {
      return fail(
          ExitCode::kConfig,
          fmt::format("{}: this is not a kubeconfig: it should be a map with clusters, contexts and users", path));
    }
    files.push_back({path, documents->front()});
  }
  if (files.empty()) return fail(ExitCode::kNoInput, fmt::format("{}: none of these kubeconfig files exists", paths));

  std::string context_name;
  for (const KubeconfigFile& file : files) {
    if (context_name.empty()) context_name = text_at(file.root, "current-context");
  }
  if (context_name.empty()) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: no current-context: choose one with 'kubectl config use-context NAME'", paths));
  }
  const auto missing = [&](const char* what, const std::string& name) {
    return fail(ExitCode::kConfig, fmt::format("{}: there is no {} named '{}'", paths, what, name));
  };
  const auto context = find_named(files, "contexts", "context", context_name);
  if (!context) return missing("context", context_name);

  ClusterConfig config;
  config.source = fmt::format("{}, context {}", context->file->path, context_name);
  config.name_space = text_at(context->value, "namespace");
  const std::string cluster_name = text_at(context->value, "cluster");
  const auto cluster = find_named(files, "clusters", "cluster", cluster_name);
  if (!cluster) return missing("cluster", cluster_name);
  const std::string user_name = text_at(context->value, "user");
  const auto user = find_named(files, "users", "user", user_name);
  if (!user && !user_name.empty()) return missing("user", user_name);

  return read_cluster(*cluster, config)
      .and_then([&]() -> Result<void> { return user ? read_user(*user, config) : Result<void>(); })
      .map([&] { return config; });
}

Result<ClusterConfig> in_cluster_config(const Environment& environment, const std::string& service_account_folder) {
  ClusterConfig config;
  config.source = "the pod's service account";
  std::string host = environment("KUBERNETES_SERVICE_HOST");
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  config.server = fmt::format("https://{}:{}", host, port.empty() ? "443" : port);
  config.ca.file = service_account_folder + "/ca.crt";
  config.token_file = service_account_folder + "/token";
  // Both must be there now; later they are read again as they change.
  for (const std::string& file : {config.ca.file, config.token_file}) {
    if (const auto text = read_file(file); !text) {
      return fail(text.error().code,
                  fmt::format("{}; is automountServiceAccountToken off for this pod?", text.error().message));
    }
  }
  if (const auto name = read_file(service_account_folder + "/namespace")) config.name_space = trimmed(*name);
  return config;
}

namespace {

// The value of a variable whose name may be in upper or in lower case, as Go reads it.
std::string either_case(const Environment& environment, const std::string& upper, const std::string& lower) {
  std::string value = environment(upper);
  return value.empty() ? environment(lower) : value;
}

// Sets the proxy from the environment, unless the kubeconfig file has named one.
Result<ClusterConfig> add_proxy(ClusterConfig config, const Environment& environment) {
  if (!config.proxy.empty()) return config;
  const auto server = parse_server_address(config.server);
  if (!server) return config;  // create_transport() reports it
  config.proxy = choose_proxy(*server, {.http_proxy = either_case(environment, "HTTP_PROXY", "http_proxy"),
                                        .https_proxy = either_case(environment, "HTTPS_PROXY", "https_proxy"),
                                        .no_proxy = either_case(environment, "NO_PROXY", "no_proxy")});
  if (config.proxy.empty()) return config;
  if (const auto proxy = parse_proxy_url(config.proxy); !proxy) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: {}", server->tls ? "HTTPS_PROXY" : "HTTP_PROXY", proxy.error().message));
  }
  return config;
}

Result<ClusterConfig> find_cluster(const std::string& kubeconfig_flag, const Environment& environment,
                                   const std::string& service_account_folder) {
  if (!kubeconfig_flag.empty()) return load_kubeconfig(kubeconfig_flag);
  if (const std::string paths = environment("KUBECONFIG"); !paths.empty()) return load_kubeconfig(paths);
  if (!environment("KUBERNETES_SERVICE_HOST").empty()) return in_cluster_config(environment, service_account_folder);
  std::error_code ignored;
  if (const std::string home = environment("HOME");
      !home.empty() && std::filesystem::exists(home + "/.kube/config", ignored)) {
    return load_kubeconfig(home + "/.kube/config");
  }
  return fail(ExitCode::kConfig, "no cluster is known: give --kubeconfig FILE or set KUBECONFIG, or run in a pod");
}

}  // namespace

Result<ClusterConfig> find_cluster_config(const std::string& kubeconfig_flag, const Environment& environment,
                                          const std::string& service_account_folder) {
  return find_cluster(kubeconfig_flag, environment, service_account_folder).and_then([&](ClusterConfig config) {
    return add_proxy(std::move(config), environment);
  });
}

TransportOptions transport_options(const ClusterConfig& config, const std::string& user_agent,
                                   std::shared_ptr<const Clock> clock) {
  TransportOptions options;
  options.server = config.server;
  options.ca = config.ca;
  options.verify = config.verify;
  options.tls_server_name = config.tls_server_name;
  options.client_certificate = config.client_certificate;
  options.client_key = config.client_key;
  options.proxy = config.proxy;
  options.user_agent = user_agent;
  // As in client-go, the file wins: the token beside it may be old.
  if (!config.token_file.empty()) {
    options.token = std::make_shared<FileToken>(config.token_file, std::move(clock));
  } else if (config.exec) {
    const auto plugin = std::make_shared<ExecPlugin>(*config.exec, std::move(clock));
    options.token = plugin;
    options.certificate = plugin;
  } else if (!config.token.empty()) {
    options.token = std::make_shared<ConstantToken>(config.token);
  }
  return options;
}

}  // namespace oarlock::kube
