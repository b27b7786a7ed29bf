// The bytes of a peer to the HTTP server of the operator and of each rank. Whatever they are, the connection ends, what
// is sent is an HTTP response, and the server answers a proper request afterwards.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "http/server.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

constexpr uint64_t kProbeInterval = 64;

// Sends the bytes and returns everything that the server sends until it closes the connection.
std::string exchange(int port, std::string_view bytes) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{.tv_sec = 50, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  // Closed connections keep their ports for a minute, so each connection comes from another loopback address.
  static uint32_t connections = 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (++connections & 0xFFFF));
  fuzz::require(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  fuzz::require(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(socket.get(), SHUT_WR);
  std::string answer(65536, '\0');
  size_t have = 0;
  ssize_t got = 0;
  do {
    got = ::recv(socket.get(), answer.data() + have, answer.size() - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
    // libFuzzer's alarm interrupts a call that has a time limit.
  } while ((got > 0 && have < answer.size()) || (got < 0 && errno == EINTR));
  fuzz::require(got >= 0 || errno == ECONNRESET);
  answer.resize(have);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto server = HttpServer::start(
      "127.0.0.1", 0,
      {{"/metrics", HttpRoute([](const std::string&) { return HttpResponse{.body = "metrics"}; })},
       {"/healthz", HttpRoute([](const std::string&) { return HttpResponse{.body = "ok"}; }, HandlerKind::kImmediate)}},
      {.limits = {.response_period = std::chrono::milliseconds(0)}});
  fuzz::require(server.has_value());
  const std::string answer = exchange((*server)->port(), fuzz::text_of(data, size));
  fuzz::require(answer.empty() || answer.starts_with("HTTP/1.1 "));
  static uint64_t runs = 0;
  if (++runs % kProbeInterval != 1) return 0;
  const std::string probe = exchange((*server)->port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  fuzz::require(probe.starts_with("HTTP/1.1 200") && probe.ends_with("metrics"));
  return 0;
}
