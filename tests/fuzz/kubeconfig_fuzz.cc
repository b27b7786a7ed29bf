// A kubeconfig file, the addresses of the server and of the proxy that it names, and the head of a request to them.
// Exec plugins are read, never run.
#include "kube/auth/kubeconfig.h"

#include <algorithm>

#include "http/client/address.h"
#include "http/client/message.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

// Nothing in the file can end a line of the request's head.
void require_no_extra_lines(const http::RequestFields& fields) {
  const auto text = http::format_request({.target = "/api", .body = "", .content_type = ""}, fields);
  if (!text) return;
  const auto lines = 5 + (fields.token.empty() ? 0 : 1) + (fields.proxy_authorization.empty() ? 0 : 1);
  fuzz::require(std::ranges::count(*text, '\n') == lines && std::ranges::count(*text, '\r') == lines);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile file(fuzz::text_of(data, size));
  const auto config = kube::load_kubeconfig(file.path().string());
  if (!config) return 0;
  const auto server = http::parse_server_address(config->server);
  if (!server) return 0;
  fuzz::require(!server->host.empty() && !server->port.empty());
  const auto proxy = http::parse_proxy_url(config->proxy);
  if (proxy) fuzz::require(!proxy->host.empty() && !proxy->port.empty());
  require_no_extra_lines({.target_prefix = server->prefix,
                          .host = server->header,
                          .user_agent = "a",
                          .token = config->token,
                          .proxy_authorization = proxy ? proxy->authorization() : "",
                          .further = ""});
  return 0;
}
