#include "ddp/socket.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "common/port_socket.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

std::string to_numeric(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  // The socket interface requires the cast to sockaddr.
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  return host.data();
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Resolves a host for TCP. `flags` are those of getaddrinfo(3). Fails with kNoHost.
Result<Addresses> resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int unresolved = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (unresolved != 0) return fail(ExitCode::kNoHost, gai_strerror(unresolved));
  return Addresses(found, &freeaddrinfo);
}

// Opens a non-blocking socket and begins to connect it. Returns 0, EINPROGRESS, or the errno of the call that failed;
// the socket is not open if that was socket(2).
int begin_connect(const addrinfo& address, FileDescriptor& socket) {
  socket = FileDescriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return errno;
  return ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
}

// Waits for the end of a connection attempt. Returns 0, or its errno.
int finish_connect(int descriptor, std::chrono::milliseconds timeout) {
  pollfd waiting{descriptor, POLLOUT, 0};
  const int ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
  if (ready == 0) return ETIMEDOUT;
  if (ready < 0) return errno;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

Result<Listener> listen_on(int port) {
  PortSocket bound;
  const int error = listen_on_port(port, SOMAXCONN, bound);
  if (error == 0) return Listener{bound.socket.release(), bound.port};
  if (error == EADDRINUSE) {
    return fail(
        ExitCode::kTempFail,
        fmt::format(
            "rendezvous: port {} is in use on this host, so rank 0 cannot listen on it; stop the program that uses it, "
            "or set MASTER_PORT to another port on all ranks",
            port));
  }
  return fail(ExitCode::kUnavailable,
              fmt::format("rendezvous: cannot listen on port {}: {}; set MASTER_PORT to another port on all ranks",
                          port, errno_text(error)));
}

Result<ConnectionAddresses> probe_endpoint(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const Result<Addresses> found = resolve(host, port, 0);
  if (!found) return fail(found.error().code, "the name does not resolve: " + found.error().message);
  int error = 0;
  for (const addrinfo* entry = found->get(); entry != nullptr; entry = entry->ai_next) {
    FileDescriptor socket;
    error = begin_connect(*entry, socket);
    if (error == EINPROGRESS) error = finish_connect(socket.get(), timeout);
    if (error != 0) continue;
    sockaddr_storage local{};
    sockaddr_storage peer{};
    socklen_t local_length = sizeof local;
    socklen_t peer_length = sizeof peer;
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &local_length);
    getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_length);
    return ConnectionAddresses{.peer = to_numeric(peer, peer_length), .local = to_numeric(local, local_length)};
  }
  return fail(ExitCode::kUnavailable, errno_text(error));
}

Result<FileDescriptor> start_connect(const std::string& numeric_address, int port) {
  ASSIGN_OR_RETURN(const Addresses found, resolve(numeric_address, port, AI_NUMERICHOST | AI_NUMERICSERV));
  FileDescriptor socket;
  const int error = begin_connect(*found, socket);
  if (!socket.open()) return fail(ExitCode::kOsErr, errno_text(error));
  if (error != 0 && error != EINPROGRESS) return fail(ExitCode::kUnavailable, errno_text(error));
  return socket;
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1" || numeric_address.starts_with("::ffff:127.");
}

}  // namespace oarlock

// Replaces the function of the C library in the whole process: unless the caller requires a name, it returns the
// numeric address, and queries no DNS server. LibTorch's TCPStore calls it for a log line of each connection that it
// accepts, on its only thread. With a DNS server that does not respond, the store of rank 0 would be blocked for 5 s or
// more for each rank.
extern "C" __attribute__((visibility("default"))) int getnameinfo(const sockaddr* address, socklen_t address_length,
                                                                  char* host, socklen_t host_length, char* service,
                                                                  socklen_t service_length, int flags) {
  static const auto kOfLibc = reinterpret_cast<decltype(&getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NAMEREQD) == 0) flags |= NI_NUMERICHOST;
  return kOfLibc(address, address_length, host, host_length, service, service_length, flags);
}
