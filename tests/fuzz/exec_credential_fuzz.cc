// The output of a credential plugin, an ExecCredential. One that is accepted has a token or a certificate with its key,
// and is accepted with the same content when it is written again. The keys of the corpus belong to no one; their
// headers are escaped for the tools that search repositories for secrets.
#include <nlohmann/json.hpp>
#include <string>

#include "common/clock.h"
#include "common/json_access.h"
#include "kube/auth/exec_plugin.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

std::string to_text(const kube::ExecConfig& config, const kube::ExecCredential& credential) {
  nlohmann::json status = {{"token", credential.token},
                           {"clientCertificateData", credential.certificate.certificate},
                           {"clientKeyData", credential.certificate.key}};
  if (credential.expires) status["expirationTimestamp"] = to_rfc3339_micro(*credential.expires);
  return dump_json({{"kind", "ExecCredential"}, {"apiVersion", config.api_version}, {"status", status}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kube::ExecConfig config;
  config.command = "plugin";
  config.api_version = "client.authentication.k8s.io/v1";
  const Result<kube::ExecCredential> credential = kube::read_credential(config, std::string(fuzz::text_of(data, size)));
  if (!credential) {
    fuzz::require_printable_lines(credential.error().message);
    fuzz::require(credential.error().message.size() < 1000);
    return 0;
  }
  fuzz::require(credential->certificate.certificate.empty() == credential->certificate.key.empty());
  fuzz::require(!credential->token.empty() || !credential->certificate.key.empty());
  const Result<kube::ExecCredential> again = kube::read_credential(config, to_text(config, *credential));
  fuzz::require(again && again->token == credential->token && again->certificate == credential->certificate);
  fuzz::require(again->expires.has_value() == credential->expires.has_value());
  if (again->expires) fuzz::require(to_rfc3339_micro(*again->expires) == to_rfc3339_micro(*credential->expires));
  return 0;
}
