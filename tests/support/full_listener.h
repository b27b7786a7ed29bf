// An address at which connect(2) blocks.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <stdexcept>
#include <string>

#include "common/files.h"

namespace oarlock::test {

// A listener whose queue is full drops SYN segments: connect(2) waits, as for an address that does not answer.
class FullListener {
 public:
  FullListener() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_.get(), any, size) != 0 || ::listen(listener_.get(), 0) != 0 ||
        ::getsockname(listener_.get(), any, &size) != 0) {
      throw std::runtime_error("listener");
    }
    port_ = ntohs(address.sin_port);
    for (FileDescriptor& client : clients_) {
      client = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(client.get(), any, size);
    }
  }
  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  FileDescriptor listener_;
  FileDescriptor clients_[4];
  int port_ = 0;
};

}  // namespace oarlock::test
