#include "cli/launch/launcher_link.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/json_access.h"

namespace oarlock::launch {
namespace {

constexpr unsigned kUnacknowledgedTimeout = 60'000;  // ms, until a connection to a node without power is closed
constexpr int kMaxLinkDepth = 2;                     // of a line's JSON
constexpr size_t kMaxAnswerLine = 64;                // bytes of a refusal or a lease
constexpr char kRefusedKey[] = "refused";
constexpr char kLeaseKey[] = "lease";

nlohmann::json parse_answer(const std::string& line) {
  return parse_untrusted_json(line, kMaxAnswerLine, kMaxLinkDepth);
}

}  // namespace

void set_link_options(const FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedTimeout, sizeof kUnacknowledgedTimeout);
}

FileDescriptor begin_connect(const SocketAddress& to) {
  FileDescriptor socket(::socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return socket;
  set_link_options(socket);
  const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
  if (::connect(socket.get(), address, to.length) != 0 && errno != EINPROGRESS) socket.close();
  return socket;
}

int connect_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

std::string peer_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  const int failed = ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text.data(), text.size(), nullptr, 0,
                                   NI_NUMERICHOST);
  return failed != 0 ? "" : text.data();
}

void add_channel(const recovery::LineChannel& channel, std::vector<pollfd>& out) {
  const auto events = static_cast<int16_t>(POLLIN | (channel.has_queued() ? POLLOUT : 0));
  if (channel.is_open()) out.push_back({channel.fd(), events, 0});
}

void finish_channel(recovery::LineChannel& channel, std::vector<pollfd>& waiting) {
  channel.flush();
  while (channel.is_open() && !channel.read().empty()) {
  }
  if (channel.is_open() && channel.has_queued()) waiting.push_back({channel.fd(), POLLOUT, 0});
}

std::string hello_line(const std::string& token) { return nlohmann::json{{"regroup", 1}, {"token", token}}.dump(); }

bool is_valid_hello(const std::string& line, const std::string& token) {
  const nlohmann::json json = parse_untrusted_json(line, kMaxHelloLine, kMaxLinkDepth);
  return !token.empty() && recovery::is_equal_secret(text_at(json, "token"), token);
}

std::string refusal_line() { return nlohmann::json{{kRefusedKey, "token"}}.dump(); }

bool is_refusal(const std::string& line) {
  const nlohmann::json json = parse_answer(line);
  return json.is_object() && json.contains(kRefusedKey);
}

std::string lease_line(uint64_t sequence) { return nlohmann::json{{kLeaseKey, sequence}}.dump(); }

std::optional<uint64_t> lease_from_line(const std::string& line) {
  const nlohmann::json json = parse_answer(line);
  const bool is_lease = json.is_object() && json.size() == 1 && json.contains(kLeaseKey);
  if (!is_lease || !json[kLeaseKey].is_number_unsigned()) return std::nullopt;
  return json[kLeaseKey].get<uint64_t>();
}

}  // namespace oarlock::launch
