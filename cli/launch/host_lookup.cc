#include "cli/launch/host_lookup.h"

#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "common/files.h"

namespace oarlock::launch {
namespace {

std::vector<SocketAddress> look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  std::vector<SocketAddress> addresses;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.address, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return addresses;
}

}  // namespace

struct HostLookup::Shared {
  FileDescriptor event;
  std::mutex mutex;
  std::optional<std::vector<SocketAddress>> found;

  void finish(std::vector<SocketAddress> addresses) {
    {
      const std::scoped_lock lock(mutex);
      found = std::move(addresses);
    }
    const uint64_t one = 1;
    if (event.open()) static_cast<void>(::write(event.get(), &one, sizeof one) == sizeof one);
  }
};

HostLookup::HostLookup(const std::string& host, int port, const Lookup& lookup) : shared_(std::make_shared<Shared>()) {
  if (std::vector<SocketAddress> numeric = look_up(host, port, AI_NUMERICHOST); !numeric.empty()) {
    shared_->finish(std::move(numeric));
    return;
  }
  shared_->event = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  try {
    if (!shared_->event.open()) throw std::system_error(errno, std::generic_category());
    std::thread([shared = shared_, lookup, host, port] { shared->finish(lookup(host, port)); }).detach();
  } catch (const std::system_error&) {  // no descriptor or no thread; the caller tries again later
    shared_->finish({});
  }
}

int HostLookup::fd() const { return shared_->event.get(); }

std::optional<std::vector<SocketAddress>> HostLookup::result() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->found;
}

std::vector<SocketAddress> HostLookup::lookup_with_system(const std::string& host, int port) {
  return look_up(host, port, 0);
}

}  // namespace oarlock::launch
