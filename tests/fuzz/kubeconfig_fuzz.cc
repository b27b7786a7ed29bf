// A kubeconfig file, and the address of the server that it names. Exec plugins are read, never run.
#include "operator/kube/config.h"
#include "operator/kube/server_address.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile file(fuzz::text_of(data, size));
  const auto config = kube::load_kubeconfig(file.path().string());
  if (!config) return 0;
  const auto address = kube::parse_server_address(config->server);
  if (!address) return 0;
  fuzz::require(!address->host.empty() && !address->port.empty());
  // Nothing that goes into a request's header can end its line.
  for (const std::string& text : {config->token, address->header, address->prefix})
    fuzz::require(text.find_first_of("\r\n") == std::string::npos);
  return 0;
}
