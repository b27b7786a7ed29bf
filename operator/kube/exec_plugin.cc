#include "operator/kube/exec_plugin.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "common/file_descriptor.h"
#include "operator/kube/json_access.h"
#include "operator/kube/tls_context.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kMostOutput = 1u << 20;
constexpr Milliseconds kRunLimit{60000};

tl::unexpected<Error> failed(const ExecConfig& config, const std::string& why) {
  return fail(ExitCode::kConfig, fmt::format("the credential plugin '{}' {}", config.command, why));
}

// What the plugin is told, in KUBERNETES_EXEC_INFO.
std::string exec_info(const ExecConfig& config) {
  Json info = {{"kind", "ExecCredential"}, {"apiVersion", config.api_version}, {"spec", {{"interactive", false}}}};
  if (!config.cluster.empty()) info["spec"]["cluster"] = Json::parse(config.cluster);
  return info.dump();
}

std::vector<std::string> environment_of(const ExecConfig& config) {
  std::vector<std::string> out;
  out.reserve(config.environment.size() + 1);
  for (const auto& [name, value] : config.environment) out.push_back(name + "=" + value);
  out.push_back("KUBERNETES_EXEC_INFO=" + exec_info(config));
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view name(*one, std::strcspn(*one, "="));
    bool replaced = name == "KUBERNETES_EXEC_INFO";
    for (const auto& [given, value] : config.environment) replaced = replaced || given == name;
    if (!replaced) out.emplace_back(*one);
  }
  return out;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// 0, or an errno.
int spawn(const ExecConfig& config, int output, pid_t& pid) {
  std::vector<std::string> arguments{config.command};
  arguments.insert(arguments.end(), config.arguments.begin(), config.arguments.end());
  std::vector<std::string> environment = environment_of(config);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;  // our threads block SIGTERM; the plugin should not
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawnp(&pid, config.command.c_str(), &actions, &attributes, pointers_to(arguments).data(),
                                   pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Until the end of the output; false: not within the limit, or too much of it.
bool read_all(int fd, Milliseconds limit, std::string& out) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) return false;
    char buffer[4096];
    const ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size == 0) return true;
    if (size < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (size > 0) out.append(buffer, static_cast<size_t>(size));
    if (out.size() > kMostOutput) return false;
  }
}

Result<ExecCredential> read_credential(const ExecConfig& config, const std::string& output) {
  const Json body = Json::parse(output, nullptr, false);
  if (text_at(body, "kind") != "ExecCredential") return failed(config, "did not print an ExecCredential");
  if (const std::string version = text_at(body, "apiVersion"); version != config.api_version) {
    return failed(config, fmt::format("answered with apiVersion '{}' where the kubeconfig says '{}'", version,
                                      config.api_version));
  }
  const Json& status = member(body, "status");
  ExecCredential out;
  out.token = text_at(status, "token");
  out.certificate = {.certificate = text_at(status, "clientCertificateData"), .key = text_at(status, "clientKeyData")};
  if (out.token.empty() && out.certificate.certificate.empty() && out.certificate.key.empty())
    return failed(config, "gave neither a token nor a client certificate");
  const Pem certificate{.text = out.certificate.certificate, .file = ""};
  if (const auto good = check_key_pair(certificate, {.text = out.certificate.key, .file = ""}); !good)
    return failed(config, fmt::format("gave a client certificate that cannot be used: {}", good.error().message));
  if (const std::string expires = text_at(status, "expirationTimestamp"); !expires.empty()) {
    SystemTime time;
    if (!from_rfc3339(expires, time))
      return failed(config, fmt::format("gave the expirationTimestamp '{}', which is no time", expires));
    out.expires = time;
  }
  return out;
}

}  // namespace

Result<ExecCredential> run_plugin(const ExecConfig& config, Milliseconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  pid_t pid = -1;
  if (const int error = spawn(config, writer.get(), pid); error != 0) {
    return failed(config, fmt::format("cannot be started: {}{}{}", std::strerror(error),
                                      config.install_hint.empty() ? "" : "; ", config.install_hint));
  }
  writer.close();
  std::string output;
  const bool whole = read_all(reader.get(), limit, output);
  if (!whole) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!whole) return failed(config, fmt::format("did not end within {} s", limit.count() / 1000));
  if (WIFSIGNALED(status)) return failed(config, fmt::format("was ended by signal {}", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    return failed(config, fmt::format("failed with exit code {}: see what it printed above", WEXITSTATUS(status)));
  return read_credential(config, output);
}

Result<ExecCredential> ExecPlugin::credential() {
  const std::lock_guard lock(mutex_);
  const bool expired = credential_ && credential_->expires && clock_->now() >= *credential_->expires;
  if (!credential_ || expired) {
    Result<ExecCredential> fresh = run_plugin(config_, kRunLimit);
    if (!fresh) return fresh;
    credential_ = std::move(*fresh);
  }
  return *credential_;
}

Result<std::string> ExecPlugin::token() {
  return credential().map([](const ExecCredential& one) { return one.token; });
}

Result<ClientCertificate> ExecPlugin::certificate() {
  return credential().map([](const ExecCredential& one) { return one.certificate; });
}

void ExecPlugin::drop() {
  const std::lock_guard lock(mutex_);
  credential_.reset();
}

}  // namespace oarlock::kube
