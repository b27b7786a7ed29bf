#include "operator/kube/http/create_transport.h"

#include <optional>
#include <utility>

#include "operator/kube/http/beast_transport.h"
#include "operator/kube/proxy.h"
#include "operator/kube/server_address.h"
#include "operator/kube/tls_context.h"

namespace oarlock::kube {

Result<std::unique_ptr<Transport>> create_transport(TransportOptions options) {
  Result<ServerAddress> server = parse_server_address(options.server);
  if (!server) return tl::make_unexpected(server.error());
  std::optional<ProxyAddress> proxy;
  if (!options.proxy.empty()) {
    Result<ProxyAddress> parsed = parse_proxy_url(options.proxy);
    if (!parsed) return tl::make_unexpected(parsed.error());
    proxy = std::move(*parsed);
  }
  return check_tls_material(options).map([&]() -> std::unique_ptr<Transport> {
    return std::make_unique<BeastTransport>(std::move(options), std::move(*server), std::move(proxy));
  });
}

}  // namespace oarlock::kube
