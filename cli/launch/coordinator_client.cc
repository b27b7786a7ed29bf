#include "cli/launch/coordinator_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "cli/launch/polling.h"
#include "common/contract.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

constexpr auto kReconnectDelay = std::chrono::milliseconds(200);
constexpr auto kConnectTimeout = std::chrono::seconds(2);
constexpr int kRenewalsPerLease = 20;
constexpr size_t kMaxUnanswered = 64;  // reports

std::string describe_refusal(const LauncherLinkOptions& link) {
  return fmt::format("the launcher of node rank 0 at {} does not accept the value of {}; set the same one on all nodes",
                     endpoint(link.host, link.port), kEnvRegroupToken);
}

}  // namespace

void CoordinatorClient::start(SteadyTime give_up_at, SteadyTime now) {
  give_up_at_ = give_up_at;
  look_up(now);
}

// ---- Connection ----

void CoordinatorClient::look_up(SteadyTime now) {
  connect_at_.reset();
  lookup_.emplace(options_.host, options_.port, options_.lookup);
  connect_if_found(now);
}

void CoordinatorClient::connect_if_found(SteadyTime now) {
  const std::optional<std::vector<SocketAddress>> addresses = lookup_->result();
  if (!addresses) return;
  lookup_.reset();
  FileDescriptor socket;
  if (!addresses->empty()) socket = begin_connect((*addresses)[connections_++ % addresses->size()]);
  if (!socket.open()) {
    connect_at_ = now + kReconnectDelay;
    return;
  }
  connected_by_ = now + kConnectTimeout;
  upstream_.emplace(std::move(socket), recovery::kMaxLineLength);
}

void CoordinatorClient::disconnect(SteadyTime now) {
  upstream_.reset();
  unanswered_.clear();
  renew_at_.reset();
  connected_by_.reset();
  connect_at_ = now + kReconnectDelay;
  if (!give_up_at_) give_up_at_ = now + options_.reconnect_timeout;
}

std::optional<std::string> CoordinatorClient::time_passed(SteadyTime now) {
  const bool is_closed = upstream_ && !upstream_->is_open();  // a report could not be sent
  if (is_closed || (connected_by_ && *connected_by_ <= now)) disconnect(now);
  if (connect_at_ && *connect_at_ <= now) look_up(now);
  if (!give_up_at_ || now < *give_up_at_) return std::nullopt;
  if (is_refused_) return describe_refusal(options_);
  return fmt::format("no connection to the launcher of node rank 0 at {}", endpoint(options_.host, options_.port));
}

// ---- Messages ----

void CoordinatorClient::send(const recovery::NodeReport& report, SteadyTime now) {
  if (!is_connected()) return;
  upstream_->send(to_json(report));
  if (!options_.lease) return;
  unanswered_.push_back({report.sequence, now});
  if (unanswered_.size() > kMaxUnanswered) unanswered_.pop_front();
  renew_at_ = now + *options_.lease / kRenewalsPerLease;
}

CoordinatorClient::Events CoordinatorClient::handle(const std::vector<pollfd>& ready, SteadyTime now) {
  Events events;
  if (upstream_ && is_ready(upstream_->fd(), ready) && !read(events)) disconnect(now);
  if (lookup_ && is_ready(lookup_->fd(), ready)) connect_if_found(now);
  return events;
}

// Returns whether the connection can still be used.
bool CoordinatorClient::read(Events& events) {
  if (connected_by_) {
    if (connect_error(upstream_->fd()) != 0) return false;
    connected_by_.reset();
    events.has_connected = true;
    upstream_->send(hello_line(options_.token));
  }
  upstream_->flush();
  for (bool is_more = true; is_more;) {
    const std::vector<std::string> lines = upstream_->read();
    is_more = !lines.empty();
    for (const std::string& line : lines) {
      if (!read_line(line, events)) return false;
    }
  }
  return upstream_->is_open();
}

bool CoordinatorClient::read_line(const std::string& line, Events& events) {
  if (const std::optional<uint64_t> answered = lease_from_line(line)) {
    for (; !unanswered_.empty() && unanswered_.front().sequence <= *answered; unanswered_.pop_front())
      leased_at_ = unanswered_.front().sent_at;
    return true;
  }
  if (is_refusal(line)) {
    if (!std::exchange(is_refused_, true)) events.messages.push_back(describe_refusal(options_));
    return false;
  }
  auto order = recovery::order_from_json(line);
  if (!order) {
    events.messages.push_back(order.error().message);
    return false;
  }
  give_up_at_.reset();
  is_refused_ = false;
  events.orders.push_back(*std::move(order));
  return true;
}

std::optional<std::string> CoordinatorClient::end_lease(SteadyTime now) {
  if (!leased_at_ || now < *leased_at_ + *options_.lease) return std::nullopt;
  upstream_.reset();
  return fmt::format(
      "the launcher of node rank 0 at {} has not answered for {:.1f} s, so that the other nodes may continue without "
      "this one",
      endpoint(options_.host, options_.port), std::chrono::duration<double>(*options_.lease).count());
}

// ---- Descriptors and deadlines ----

void CoordinatorClient::add_descriptors(std::vector<pollfd>& out) const {
  if (is_connected()) add_channel(*upstream_, out);
  if (upstream_ && connected_by_) out.push_back({upstream_->fd(), POLLOUT, 0});
  if (lookup_) out.push_back({lookup_->fd(), POLLIN, 0});
}

std::optional<SteadyTime> CoordinatorClient::deadline() const {
  std::optional<SteadyTime> earliest = earlier(earlier(give_up_at_, connect_at_), earlier(connected_by_, renew_at_));
  if (leased_at_) earliest = earlier(earliest, *leased_at_ + *options_.lease);
  return earliest;
}

void CoordinatorClient::finish(std::vector<pollfd>& waiting) {
  if (is_connected()) finish_channel(*upstream_, waiting);
}

}  // namespace oarlock::launch
