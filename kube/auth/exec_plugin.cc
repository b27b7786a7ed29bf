#include "kube/auth/exec_plugin.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/tls_context.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;
using http::Milliseconds;

constexpr size_t kMaxOutputBytes = 1u << 20;
constexpr http::Milliseconds kRunLimit{60000};
// A child of the command may hold its output open after its end. What the command itself has written can be read
// immediately then.
constexpr http::Milliseconds kOutputGrace{500};
// A credential is replaced when a quarter of its lifetime is left, but not earlier than this before it expires.
constexpr std::chrono::minutes kEarliestRefresh{5};
constexpr std::chrono::seconds kRetryInterval{10};

tl::unexpected<Error> failed(const ExecConfig& config, const std::string& why) {
  return fail(ExitCode::kConfig, fmt::format("the credential plugin '{}' {}", config.command, why));
}

// Returns the value of KUBERNETES_EXEC_INFO.
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

// Starts the command. Returns 0 or an errno.
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
  sigset_t none;  // the threads of this process block SIGTERM; the plugin must not
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int group = config.shares_terminal ? 0 : POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | group));
  const int error = ::posix_spawnp(&pid, config.command.c_str(), &actions, &attributes, pointers_to(arguments).data(),
                                   pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

enum class PluginRun { kEnded, kTimedOut, kTooMuchOutput, kStopped };

// Whether the process has ended. It stays a zombie, so that no other process gets its id.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

// Reads until the process has ended and so has its output, for at most kOutputGrace after the end of the process.
// Returns kStopped if `cancelled` becomes readable.
PluginRun read_until_end(pid_t pid, int fd, int cancelled, std::chrono::steady_clock::time_point end,
                         std::string& out) {
  constexpr int kInterval = 5;  // milliseconds, between checks of the process
  constexpr int kIntervalWhileOpen = 50;
  bool is_open = true;  // the output
  bool is_running = true;
  for (;;) {
    if (is_running && has_ended(pid)) {
      is_running = false;
      end = std::min(end, std::chrono::steady_clock::now() + kOutputGrace);
    }
    if (!is_running && !is_open) return PluginRun::kEnded;
    if (std::chrono::steady_clock::now() >= end) return is_running ? PluginRun::kTimedOut : PluginRun::kEnded;
    pollfd ready[] = {{cancelled, POLLIN, 0}, {is_open ? fd : -1, POLLIN, 0}};
    if (::poll(ready, 2, is_open ? kIntervalWhileOpen : kInterval) <= 0) continue;  // also EINTR
    if (ready[0].revents != 0) return PluginRun::kStopped;
    char buffer[4096];
    const ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) is_open = false;
    if (size > 0) out.append(buffer, static_cast<size_t>(size));
    if (out.size() > kMaxOutputBytes) return PluginRun::kTooMuchOutput;
  }
}

// Removes the process. Unless the run is complete and the exit code is 0, it is killed first, with its group if it has
// its own; processes of that group that this process inherits, as the init process of a container does, are removed,
// too. Returns the status of waitpid(2).
int reap(pid_t pid, bool has_group, bool is_complete) {
  siginfo_t info{};
  const bool has_succeeded = is_complete &&
                             ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                             info.si_pid == pid && info.si_code == CLD_EXITED && info.si_status == 0;
  if (!has_succeeded) ::kill(has_group ? -pid : pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  while (has_group && !has_succeeded && (::waitpid(-pid, nullptr, 0) > 0 || errno == EINTR)) {
  }
  return status;
}

}  // namespace

Result<ExecCredential> read_credential(const ExecConfig& config, const std::string& output) {
  const Json body = parse_untrusted_json(output);
  if (text_at(body, "kind") != "ExecCredential") return failed(config, "did not print an ExecCredential");
  if (const std::string version = text_at(body, "apiVersion"); version != config.api_version) {
    return failed(config, fmt::format("printed apiVersion '{}', but the kubeconfig requires '{}'", shortened(version),
                                      config.api_version));
  }
  const Json& status = member(body, "status");
  ExecCredential out;
  out.token = text_at(status, "token");
  out.certificate = {.certificate = text_at(status, "clientCertificateData"), .key = text_at(status, "clientKeyData")};
  if (out.token.empty() && out.certificate.certificate.empty() && out.certificate.key.empty())
    return failed(config, "returned neither a token nor a client certificate");
  const http::Pem certificate{.text = out.certificate.certificate, .file = ""};
  if (const auto good = http::check_key_pair(certificate, {.text = out.certificate.key, .file = ""}); !good)
    return failed(config, fmt::format("returned an invalid client certificate: {}", good.error().message));
  if (const std::string expires = text_at(status, "expirationTimestamp"); !expires.empty()) {
    SystemTime time;
    if (!from_rfc3339(expires, time))
      return failed(config, fmt::format("returned the invalid expirationTimestamp '{}'", shortened(expires)));
    out.expires = time;
  }
  return out;
}

Result<ExecCredential> run_plugin(const ExecConfig& config, http::Milliseconds limit, const std::stop_token& stop) {
  if (stop.stop_requested()) return failed(config, "was not started because this process stops");
  const FileDescriptor stopped(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stopped.open()) return fail_errno(errno, "cannot create an eventfd");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot create a pipe");
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  pid_t pid = -1;
  if (const int error = spawn(config, writer.get(), pid); error != 0) {
    return failed(config, fmt::format("cannot be started: {}{}{}", std::strerror(error),
                                      config.install_hint.empty() ? "" : "; ", config.install_hint));
  }
  writer.close();
  std::string output;
  const std::stop_callback on_stop(stop, [&stopped] { ::eventfd_write(stopped.get(), 1); });
  const auto end = std::chrono::steady_clock::now() + limit;
  const PluginRun run = read_until_end(pid, reader.get(), stopped.get(), end, output);
  const int status = reap(pid, !config.shares_terminal, run == PluginRun::kEnded);
  if (stop.stop_requested()) return failed(config, "was killed because this process stops");
  if (run == PluginRun::kTooMuchOutput) {
    return failed(config, fmt::format("printed more than {}: a credential is much shorter; check the command",
                                      size_text(static_cast<double>(kMaxOutputBytes))));
  }
  if (run != PluginRun::kEnded) return failed(config, fmt::format("did not end within {} s", limit.count() / 1000));
  if (WIFSIGNALED(status)) return failed(config, fmt::format("was terminated by signal {}", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    return failed(config, fmt::format("failed with exit code {}: see its output above", WEXITSTATUS(status)));
  return read_credential(config, output);
}

ExecPlugin::~ExecPlugin() {
  runner_.request_stop();
  if (runner_.joinable()) runner_.join();
}

bool ExecPlugin::is_usable() const {
  return credential_ && !(credential_->expires && clock_->now() >= *credential_->expires);
}

bool ExecPlugin::should_refresh() const {
  if (!is_usable()) return true;
  if (clock_->steady() < retry_at_) return false;
  if (is_rejected_) return true;
  if (!credential_->expires) return false;
  const auto margin = std::min<SystemTime::duration>((*credential_->expires - fetched_at_) / 4, kEarliestRefresh);
  return clock_->now() >= *credential_->expires - margin;
}

// Starts the thread unless it is running. Assigning to runner_ does not block: clearing is_running_ is the last action
// of the previous thread.
void ExecPlugin::start_refresh() {
  if (is_running_) return;
  is_running_ = true;
  runner_ = std::jthread([this](const std::stop_token& stop) { refresh(stop); });
}

void ExecPlugin::refresh(const std::stop_token& stop) {
  std::stop_source either;
  const std::stop_callback on_destruction(stop, [&either] { either.request_stop(); });
  const std::stop_callback on_stop(stop_, [&either] { either.request_stop(); });
  Result<ExecCredential> fresh = run_plugin(config_, kRunLimit, either.get_token());
  const std::lock_guard lock(mutex_);
  if (fresh) {
    credential_ = std::move(*fresh);
    fetched_at_ = clock_->now();
    failure_.reset();
    is_rejected_ = false;
  } else {
    failure_ = fresh.error();
    retry_at_ = clock_->steady() + kRetryInterval;
  }
  is_running_ = false;
  changed_.notify_all();
}

// A credential that was just obtained is used even if it seems to have expired, because the clocks may differ.
Result<void> ExecPlugin::wait_for_refresh(Lock& lock, http::Milliseconds limit, const std::stop_token& cancel) {
  const bool has_ended = changed_.wait_for(lock, cancel, limit, [this] { return !is_running_; });
  if (is_usable() || (has_ended && !failure_)) return {};
  if (!has_ended && cancel.stop_requested()) return failed(config_, "has not ended before the call was cancelled");
  if (!has_ended)
    return failed(config_, fmt::format("has not ended after {} ms and continues in the background", limit.count()));
  return tl::make_unexpected(*failure_);
}

Result<void> ExecPlugin::prepare(http::Milliseconds limit, const std::stop_token& cancel) {
  Lock lock(mutex_);
  if (should_refresh()) start_refresh();
  if (!is_usable()) return wait_for_refresh(lock, limit, cancel);
  if (!is_rejected_) return {};
  return wait_for_refresh(lock, std::min(limit, kRejectedWait), cancel);
}

Result<ExecCredential> ExecPlugin::credential() {
  const std::lock_guard lock(mutex_);
  if (!credential_) return failed(config_, "has not returned a credential yet");
  return *credential_;
}

Result<std::string> ExecPlugin::token() {
  return credential().map([](const ExecCredential& one) { return one.token; });
}

Result<http::ClientCertificate> ExecPlugin::certificate() {
  return credential().map([](const ExecCredential& one) { return one.certificate; });
}

void ExecPlugin::invalidate() {
  const std::lock_guard lock(mutex_);
  is_rejected_ = true;
}

}  // namespace oarlock::kube
