#include "operator/shell/status_request.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/contract.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxResponse = 64u << 10;  // bytes

class BoundedBody final : public http::ByteSink {
 public:
  bool write(std::string_view bytes) override {
    if (text.size() + bytes.size() > kMaxResponse) return false;
    text += bytes;
    return true;
  }
  std::string text;
};

}  // namespace

std::optional<std::string> request_status(const Connect& connect, const std::string& url, const StatusQuery& query,
                                          std::chrono::milliseconds timeout, const std::stop_token& stop) {
  const std::shared_ptr<http::Transport> transport = connect(url);
  if (transport == nullptr) return std::nullopt;
  BoundedBody body;
  const auto response = transport->stream(
      {.method = "GET", .target = fmt::format("{}?{}", kStatusPath, to_string(query)), .body = "", .content_type = ""},
      body, {timeout, timeout}, stop);
  if (!response || response->status != 200) return std::nullopt;
  return std::move(body.text);
}

}  // namespace oarlock::control
