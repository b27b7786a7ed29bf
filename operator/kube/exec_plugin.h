// Credential plugins of a kubeconfig (user.exec): a command that prints an ExecCredential with a token, a client
// certificate, or both, as cloud providers' logins do. client.authentication.k8s.io/v1 and v1beta1.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
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

// Runs the command and waits for its end, at most `limit`. Its stderr is ours. The error names the command.
Result<ExecCredential> run_plugin(const ExecConfig& config, std::chrono::milliseconds limit);

// Runs the command when there is no credential, when it has expired and when the server has refused it.
class ExecPlugin final : public TokenSource, public CertificateSource {
 public:
  ExecPlugin(ExecConfig config, std::shared_ptr<const Clock> clock)
      : config_(std::move(config)), clock_(std::move(clock)) {}
  Result<std::string> token() override;
  Result<ClientCertificate> certificate() override;
  void drop() override;

 private:
  Result<ExecCredential> credential();

  const ExecConfig config_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::optional<ExecCredential> credential_;
};

}  // namespace oarlock::kube
