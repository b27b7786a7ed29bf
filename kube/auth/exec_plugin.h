// Credential plugins (user.exec of a kubeconfig): commands that print an ExecCredential with a token, a client
// certificate, or both. client.authentication.k8s.io/v1 and v1beta1.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "http/client/credentials.h"

namespace oarlock::kube {

struct ExecConfig {
  std::string command;  // a path if it contains '/', otherwise searched for in $PATH
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // in addition to the environment of this process
  std::string api_version;
  std::string install_hint;  // shown if the command cannot be started
  std::string cluster;       // JSON of spec.cluster; empty if the plugin does not request it
  // The command stays in the process group of this process, whose terminal it can then use: it receives Ctrl-C, and can
  // read a password. Otherwise it has its own process group.
  bool shares_terminal = false;

  bool operator==(const ExecConfig&) const = default;
};

struct ExecCredential {
  std::string token;                    // empty if there is only a certificate
  http::ClientCertificate certificate;  // empty if there is only a token
  std::optional<SystemTime> expires;    // nullopt: valid until the server rejects it
};

// Runs the command and waits for its end and for the end of its output. Kills it, and its process group unless it
// shares that of this process, after `limit`, when a stop is requested, and after any other failure; does not start the
// command if a stop has already been requested. After exit code 0, its output is used even if a child, such as a
// daemon, continues to hold it open; such a child is not killed. The command shares the stderr of this process. The
// message of an error names the command.
Result<ExecCredential> run_plugin(const ExecConfig& config, std::chrono::milliseconds limit,
                                  const std::stop_token& stop = {});

// Parses the output of a plugin. Fails with kConfig if it is not a usable ExecCredential; the message names the
// command.
Result<ExecCredential> read_credential(const ExecConfig& config, const std::string& output);

// Keeps a plugin's credential up to date. It runs the command on a dedicated thread if there is no credential, if the
// credential has expired or will soon, or if the server has rejected it. Until the command has ended, a credential that
// has not expired stays in use, so that a slow plugin delays no request: otherwise a leader could not renew its lease.
// Thread-safe.
class ExecPlugin final : public http::TokenSource, public http::CertificateSource {
 public:
  // A stop kills a running command and prevents further ones. A credential that is still valid remains usable for the
  // last requests of the process; calls without a valid credential fail.
  ExecPlugin(ExecConfig config, std::shared_ptr<const Clock> clock, std::stop_token stop = {})
      : config_(std::move(config)), clock_(std::move(clock)), stop_(std::move(stop)) {}
  // Kills a running command.
  ~ExecPlugin() override;
  ExecPlugin(const ExecPlugin&) = delete;
  ExecPlugin& operator=(const ExecPlugin&) = delete;

  // If the server has rejected a credential that has not expired, prepare() waits for a new one for at most
  // kRejectedWait, and then falls back to the old one, because the rejection may have been temporary.
  Result<void> prepare(std::chrono::milliseconds limit, const std::stop_token& cancel) override;
  Result<std::string> token() override;
  Result<http::ClientCertificate> certificate() override;
  void invalidate() override;

  static constexpr std::chrono::milliseconds kRejectedWait{2000};

 private:
  using Lock = std::unique_lock<std::mutex>;
  bool is_usable() const;
  bool should_refresh() const;
  void start_refresh();
  Result<void> wait_for_refresh(Lock& lock, std::chrono::milliseconds limit, const std::stop_token& cancel);
  Result<ExecCredential> credential();  // the credential that prepare() obtained
  void refresh(const std::stop_token& stop);

  const ExecConfig config_;
  const std::shared_ptr<const Clock> clock_;
  const std::stop_token stop_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<ExecCredential> credential_;
  SystemTime fetched_at_{};
  std::optional<Error> failure_;  // of the last run
  SteadyTime retry_at_{};         // after a failed run while the credential is still valid
  bool is_rejected_ = false;
  bool is_running_ = false;
  std::jthread runner_;
};

}  // namespace oarlock::kube
