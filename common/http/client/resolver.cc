#include "common/http/client/resolver.h"

#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/status_macros.h"

namespace oarlock::kube {
namespace {

namespace net = boost::asio;
using Clock = std::chrono::steady_clock;

}  // namespace

// One lookup. Its thread and the calls that wait for it share it.
struct Resolver::Pending {
  const Clock::time_point started = Clock::now();
  std::mutex mutex;
  std::condition_variable_any done;
  std::optional<Endpoints> found;

  bool is_done() {
    const std::lock_guard lock(mutex);
    return found.has_value();
  }
};

Resolver::Resolver(std::string host, std::string port, Lookup lookup)
    : host_(std::move(host)), port_(std::move(port)), lookup_(std::move(lookup)) {}

Resolver::Endpoints Resolver::lookup_with_system(const std::string& host, const std::string& port) {
  net::io_context io;
  boost::system::error_code error;
  const auto found = net::ip::tcp::resolver(io).resolve(host, port, net::ip::resolver_base::numeric_service, error);
  return {found.begin(), found.end()};
}

TransportResult<Resolver::Endpoints> Resolver::resolve(const CallLimits& limits) {
  boost::system::error_code error;
  if (const auto address = net::ip::make_address(host_, error); !error)
    return Endpoints{{address, static_cast<unsigned short>(std::stoi(port_))}};
  ASSIGN_OR_RETURN(const std::shared_ptr<Pending> pending, pending_lookup());
  Pending& lookup = *pending;
  std::unique_lock lock(lookup.mutex);
  lookup.done.wait_until(lock, limits.cancel(), limits.next(), [&] { return lookup.found.has_value(); });
  if (!lookup.found) {
    RETURN_IF_ERROR(limits.check());
  }
  if (!lookup.found || lookup.found->empty())
    return failed(TransportErrorKind::kConnect, "the host name cannot be resolved");
  return *lookup.found;
}

TransportResult<std::shared_ptr<Resolver::Pending>> Resolver::pending_lookup() {
  const std::lock_guard lock(mutex_);
  if (pending_ != nullptr && !pending_->is_done() && Clock::now() - pending_->started < kSharedLookup) return pending_;
  const auto started = std::make_shared<Pending>();
  try {
    std::thread([started, lookup = lookup_, host = host_, port = port_] {
      Endpoints found = lookup(host, port);
      const std::lock_guard done(started->mutex);
      started->found = std::move(found);
      started->done.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    return failed(TransportErrorKind::kConnect,
                  std::string("cannot start a thread to resolve the host name: ") + error.what());
  }
  pending_ = started;
  return started;
}

}  // namespace oarlock::kube
