// Credential plugins of a kubeconfig (user.exec): a command that prints an ExecCredential with a token, a client
// certificate, or both, as cloud providers' logins do. client.authentication.k8s.io/v1 and v1beta1.
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
#include "operator/kube/token.h"

namespace oarlock::kube {

struct ExecConfig {
  std::string command;  // with a '/': a path, else looked for in $PATH
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // on top of ours
  std::string api_version;
  std::string install_hint;  // shown where the command is not there
  std::string cluster;       // JSON of spec.cluster; empty: the plugin does not ask for it

  bool operator==(const ExecConfig&) const = default;
};

struct ExecCredential {
  std::string token;                  // empty: a certificate alone
  ClientCertificate certificate;      // empty: a token alone
  std::optional<SystemTime> expires;  // empty: good until the server refuses it
};

// Runs the command and waits for its end, at most `limit` and not beyond a stop. Its stderr is ours. The error names
// the command.
Result<ExecCredential> run_plugin(const ExecConfig& config, std::chrono::milliseconds limit,
                                  const std::stop_token& stop = {});

// Runs the command, on a thread of its own, when there is no credential, when it has expired or will soon, and when the
// server has refused it. A credential that is still good is used meanwhile, so that a slow plugin delays no request: a
// leader that waited for it could not renew its lease.
class ExecPlugin final : public TokenSource, public CertificateSource {
 public:
  ExecPlugin(ExecConfig config, std::shared_ptr<const Clock> clock)
      : config_(std::move(config)), clock_(std::move(clock)) {}
  ~ExecPlugin() override;  // kills a command that runs
  ExecPlugin(const ExecPlugin&) = delete;
  ExecPlugin& operator=(const ExecPlugin&) = delete;

  // Where the server has refused a credential that has not expired, it waits for another one for kRefusedWait at most
  // and then lets the old one be used: what was refused by mistake is accepted the next time.
  Result<void> prepare(std::chrono::milliseconds limit) override;
  // Both wait where there is no credential, or an expired one.
  Result<std::string> token() override;
  Result<ClientCertificate> certificate() override;
  void drop() override;

  static constexpr std::chrono::milliseconds kRefusedWait{2000};

 private:
  using Lock = std::unique_lock<std::mutex>;
  bool is_usable() const;
  bool should_refresh() const;
  void start_refresh();
  Result<void> wait_for_refresh(Lock& lock, std::chrono::milliseconds limit);
  Result<ExecCredential> credential();
  void refresh(const std::stop_token& stop);

  const ExecConfig config_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ExecCredential> credential_;
  SystemTime fetched_at_{};
  std::optional<Error> failure_;  // of the last run
  SteadyTime retry_at_{};         // after a failed run, while the credential is still good
  bool is_refused_ = false;
  bool is_running_ = false;
  std::jthread runner_;
};

}  // namespace oarlock::kube
