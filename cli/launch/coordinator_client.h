// The other side of the connections between launchers, on every node but the first: it finds the coordinator by its
// name, connects to it again and again, sends reports and receives orders.
#pragma once

#include <poll.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/host_lookup.h"
#include "cli/launch/launcher_link.h"
#include "common/clock.h"
#include "recovery/line_channel.h"
#include "recovery/messages.h"

namespace oarlock::launch {

// Not thread-safe.
class CoordinatorClient {
 public:
  struct Events {
    bool has_connected = false;  // the caller sends a report
    std::vector<recovery::Order> orders;
    std::vector<std::string> messages;  // lines for the console
  };

  explicit CoordinatorClient(LauncherLinkOptions options) : options_(std::move(options)) {}

  // Begins to connect. Without an order from the coordinator, time_passed() gives up at `give_up_at`.
  void start(SteadyTime give_up_at, SteadyTime now);

  // Without a connection, the report is lost; another one follows when there is one.
  void send(const recovery::NodeReport& report, SteadyTime now);
  // Whether the lease requires a report.
  bool is_report_due(SteadyTime now) const { return renew_at_ && *renew_at_ <= now; }

  // `ready` holds what poll(2) returned for add_descriptors().
  Events handle(const std::vector<pollfd>& ready, SteadyTime now);
  // Returns why this launcher has to give up the coordinator; nullopt: it does not.
  std::optional<std::string> time_passed(SteadyTime now);
  // Without answers for the time of the lease, closes the connection and returns why the ranks of this node must end:
  // the group may have left it out. Called first, so that a launcher that was stopped for a while detects this before
  // it reads the messages that have arrived meanwhile.
  std::optional<std::string> end_lease(SteadyTime now);

  // Returns the numeric address of the coordinator; empty without a connection.
  std::string coordinator_address() const { return is_connected() ? peer_address(upstream_->fd()) : ""; }

  void add_descriptors(std::vector<pollfd>& out) const;
  std::optional<SteadyTime> deadline() const;
  // Calls finish_channel() for the connection.
  void finish(std::vector<pollfd>& waiting);

 private:
  // A report that may renew the lease.
  struct Unanswered {
    uint64_t sequence;
    SteadyTime sent_at;
  };

  bool is_connected() const { return upstream_ && !connected_by_; }
  void look_up(SteadyTime now);
  void connect_if_found(SteadyTime now);
  void disconnect(SteadyTime now);
  bool read(Events& events);
  bool read_line(const std::string& line, Events& events);

  LauncherLinkOptions options_;
  std::optional<HostLookup> lookup_;               // in progress
  size_t connections_ = 0;                         // that were begun; selects one of several addresses
  std::optional<recovery::LineChannel> upstream_;  // the connection, or an attempt
  std::optional<SteadyTime> connected_by_;         // when the attempt ends, since the name may have a new address
  std::optional<SteadyTime> connect_at_;           // when to connect again
  std::optional<SteadyTime> give_up_at_;           // absent: the coordinator has accepted the token
  bool is_refused_ = false;                        // the coordinator does not accept the token
  std::deque<Unanswered> unanswered_;              // since the connection was made
  std::optional<SteadyTime> leased_at_;            // when the last report that was answered was sent; absent: none was
  std::optional<SteadyTime> renew_at_;             // when to send the next report
};

}  // namespace oarlock::launch
