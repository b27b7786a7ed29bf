#include "cli/launch/recovery.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "cli/launch/polling.h"
#include "common/status_macros.h"

namespace oarlock::launch {
namespace {

using recovery::NodeAgent;
using recovery::Order;
using recovery::OrderKind;
using recovery::RankCommand;

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Recovery::Recovery(RecoveryOptions options)
    : options_(std::move(options)), agent_(options_.agent), ranks_(static_cast<size_t>(options_.agent.ranks)) {
  if (options_.agent.node == 0) {
    coordinator_.emplace(options_.coordinator, options_.agent.launcher);
    server_.emplace(*coordinator_, options_.link);
  } else {
    client_.emplace(options_.link);
  }
}

Result<std::unique_ptr<Recovery>> Recovery::make(RecoveryOptions options) {
  std::unique_ptr<Recovery> recovery(new Recovery(std::move(options)));
  if (recovery->server_ && recovery->options_.coordinator.nodes > 1) RETURN_IF_ERROR(recovery->server_->listen());
  return recovery;
}

// ---- Events ----

RecoveryRequests Recovery::start(SteadyTime now) {
  RecoveryRequests requests;
  if (client_) {
    client_->start(now + options_.coordinator.form_timeout, now);
  } else {
    act(agent_.received(coordinator_->order()), now, requests);
  }
  act(agent_.start(), now, requests);
  return requests;
}

RecoveryRequests Recovery::exited(int member, int exit_code, SteadyTime now) {
  RecoveryRequests requests;
  read_rank(member, now, requests);  // a request that it sent before its end
  channel(member).reset();
  if (is_active_) act(agent_.exited(member, exit_code), now, requests);
  return requests;
}

RecoveryRequests Recovery::time_passed(SteadyTime now) {
  RecoveryRequests requests;
  if (!is_active_ || end_without_lease(now, requests)) return requests;
  if (client_) {
    if (client_->is_report_due(now)) report(now, requests);
    if (const auto reason = client_->time_passed(now)) give_up(*reason, now, requests);
  } else {
    receive(server_->time_passed(now), now, requests);
    if (coordinator_->time_passed(now)) publish(now, requests);
  }
  return requests;
}

RecoveryRequests Recovery::handle(const std::vector<pollfd>& ready, SteadyTime now) {
  RecoveryRequests requests;
  if (is_active_ && end_without_lease(now, requests)) return requests;
  // First: a report that cannot be sent closes the connection together with the orders that have arrived.
  if (client_) receive(client_->handle(ready, now), now, requests);
  for (int member = 0; member < options_.agent.ranks; ++member) {
    if (channel(member) && is_ready(channel(member)->fd(), ready)) read_rank(member, now, requests);
  }
  if (server_) receive(server_->handle(ready, now), now, requests);
  return requests;
}

void Recovery::stop(SteadyTime now) {
  if (is_active_) {
    RecoveryRequests ignored;  // the ranks end for another reason
    act(agent_.stop(), now, ignored);
  }
  is_active_ = false;
  is_stopping_ = true;
}

std::vector<pollfd> Recovery::descriptors() const {
  std::vector<pollfd> fds;
  for (const Channel& rank : ranks_) {
    if (rank) add_channel(*rank, fds);
  }
  if (server_) server_->add_descriptors(fds);
  if (client_) client_->add_descriptors(fds);
  return fds;
}

std::optional<SteadyTime> Recovery::deadline() const {
  if (!is_active_) return std::nullopt;
  return client_ ? client_->deadline() : earlier(coordinator_->deadline(), server_->deadline());
}

void Recovery::finish(const Clock& clock, SteadyTime deadline) {
  if (is_stopping_ && coordinator_ && coordinator_->stop()) server_->send_order();
  for (;;) {
    std::vector<pollfd> waiting;
    if (server_) server_->finish(waiting);
    if (client_) client_->finish(waiting);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.steady()).count();
    if (waiting.empty() || left <= 0) return;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(left));
  }
}

// ---- This node ----

Result<std::map<std::string, std::string>> Recovery::prepare(int member, FileDescriptor& inherited) {
  std::map<std::string, std::string> variables;
  if (options_.agent.policy != recovery::RestartPolicy::kRank) return variables;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "a socket pair cannot be created");
  channel(member).emplace(FileDescriptor(ends[0]), recovery::kMaxLineLength);
  inherited = FileDescriptor(ends[1]);
  variables[kEnvRegroupFd] = std::to_string(ends[1]);
  return variables;
}

bool Recovery::has_unjoined_rank() const {
  return std::ranges::any_of(agent_.state().slots, [](const NodeAgent::Slot& slot) {
    return slot.report.phase == recovery::RankPhase::kFinished && slot.report.generation < 0;
  });
}

int64_t Recovery::restarts() const { return std::max<int64_t>({0, agent_.state().forming, agent_.state().generation}); }

void Recovery::read_rank(int member, SteadyTime now, RecoveryRequests& requests) {
  Channel& rank = channel(member);
  if (!rank) return;
  rank->flush();
  for (bool is_more = true; is_more;) {
    const std::vector<std::string> lines = rank->read();
    is_more = !lines.empty();
    for (const std::string& line : lines) {
      const auto request = recovery::join_request_from_json(line);
      if (!request) {
        requests.messages.push_back(
            fmt::format("rank {}: {}", options_.agent.first_rank + member, request.error().message));
      } else if (is_active_) {
        if (request->standby_process != 0) requests.standby.push_back({member, request->standby_process});
        act(agent_.joined(member, *request), now, requests);
      }
    }
  }
  if (!rank->is_open()) rank.reset();
}

void Recovery::act(NodeAgent::Actions actions, SteadyTime now, RecoveryRequests& requests) {
  append(requests.kill, actions.kill);
  append(requests.stop, actions.stop);
  append(requests.spawn, actions.spawn);
  for (const NodeAgent::Actions::Send& send : actions.send) {
    Channel& rank = channel(send.rank);
    if (!rank) continue;
    RankCommand command = send.command;
    // The name may still have the address of a pod that was replaced, in the caches of the cluster's DNS.
    if (command.kind == RankCommand::Kind::kAssign && client_) {
      if (std::string address = client_->coordinator_address(); !address.empty())
        command.store_host = std::move(address);
    }
    rank->send(to_json(command));
  }
  if (actions.ended && !requests.ended) {
    requests.ended = actions.ended;
    if (actions.ended->is_replaced) {  // the other launchers belong to the group of another coordinator
      requests.is_disconnected = true;
      if (server_) server_->close_connections();
    }
    is_active_ = false;
    RankCommand end;
    end.kind = RankCommand::Kind::kEnd;
    end.reason = actions.ended->reason;
    for (Channel& rank : ranks_) {
      if (rank) rank->send(to_json(end));
    }
  }
  if (actions.report) report(now, requests);
}

void Recovery::report(SteadyTime now, RecoveryRequests& requests) {
  const recovery::NodeReport report = agent_.report();
  if (client_) {
    client_->send(report, now);
  } else if (coordinator_->received(report, now)) {
    publish(now, requests);
  }
}

// Ends the group on this node.
void Recovery::give_up(const std::string& reason, SteadyTime now, RecoveryRequests& requests) {
  Order lost;
  lost.coordinator = agent_.state().coordinator;
  lost.sequence = agent_.state().order_sequence + 1;
  lost.kind = OrderKind::kEnd;
  lost.reason = reason;
  lost.success = std::ranges::all_of(agent_.state().slots, [](const NodeAgent::Slot& slot) {
    return slot.report.phase == recovery::RankPhase::kFinished;
  });
  requests.is_disconnected = !lost.success;
  act(agent_.end(lost), now, requests);
}

bool Recovery::end_without_lease(SteadyTime now, RecoveryRequests& requests) {
  const auto reason = client_ ? client_->end_lease(now) : std::nullopt;
  if (reason) give_up(*reason, now, requests);
  return reason.has_value();
}

// ---- The other nodes ----

void Recovery::receive(const std::vector<recovery::NodeReport>& reports, SteadyTime now, RecoveryRequests& requests) {
  for (const recovery::NodeReport& report : reports) {
    if (coordinator_->received(report, now)) publish(now, requests);
    server_->answer(report);
  }
  bool has_changed = false;
  for (const LostLauncher& lost : server_->take_lost(now))
    has_changed = coordinator_->disconnected(lost.node, lost.launcher, now, lost.since) || has_changed;
  if (has_changed) publish(now, requests);
  server_->end_retired();
}

void Recovery::receive(const CoordinatorClient::Events& events, SteadyTime now, RecoveryRequests& requests) {
  if (events.has_connected) {
    agent_.connected();
    report(now, requests);
  }
  for (const Order& order : events.orders) {
    announce(order, requests);
    act(agent_.received(order), now, requests);
  }
  append(requests.messages, events.messages);
}

void Recovery::publish(SteadyTime now, RecoveryRequests& requests) {
  const Order order = coordinator_->order();
  if (order.is_replaced) return act(agent_.end(order), now, requests);
  server_->send_order();
  announce(order, requests);
  record_in_pod_restart(order, now);
  act(agent_.received(order), now, requests);
}

// ---- Messages for the console, and the report for the operator ----

void Recovery::announce(const Order& order, RecoveryRequests& requests) {
  const bool is_restart = order.is_growth || order.generation > order.uncharged;
  if (order.kind == OrderKind::kForm && order.generation > announced_ && is_restart) {
    announced_ = order.generation;
    requests.messages.push_back(describe_restart(order));
  }
  if (order.kind != OrderKind::kRun || order.generation <= announced_run_) return;
  announced_run_ = order.generation;
  if (options_.agent.policy == recovery::RestartPolicy::kRank && order.generation > 0 && order.donor < 0) {
    requests.messages.push_back(
        fmt::format("no rank has the complete state of a step; restart {} continues from the newest checkpoint, if any",
                    order.generation));
  }
  if (order.nodes.size() >= static_cast<size_t>(options_.coordinator.nodes)) return;
  const bool is_in_group = std::ranges::find(order.nodes, options_.agent.node) != order.nodes.end();
  requests.messages.push_back(fmt::format(
      "the group continues with {} of {} nodes{}", order.nodes.size(), options_.coordinator.nodes,
      is_in_group ? ", and takes in the others when they connect" : "; this one joins it when its ranks are ready"));
}

std::string Recovery::describe_restart(const Order& order) const {
  if (order.is_growth) return order.reason;
  std::string message = fmt::format("{}; restart {}", order.reason, order.generation - order.uncharged);
  if (coordinator_)
    message += fmt::format(" of {}{}", options_.coordinator.max_restarts, order.respawn ? "" : ", after a delay");
  return message;
}

// Before the launcher of this node starts its processes.
void Recovery::record_in_pod_restart(const Order& order, SteadyTime now) {
  if (!restarts_all_ranks() || order.generation <= in_pod_restarts_.total) return;
  if (order.kind == OrderKind::kForm && !restarting_since_) restarting_since_ = now;
  if (order.kind != OrderKind::kRun) return;
  const SteadyTime since = std::exchange(restarting_since_, std::nullopt).value_or(now);
  in_pod_restarts_.total = order.generation;
  in_pod_restarts_.seconds += std::chrono::duration<double>(now - since).count();
  in_pod_restarts_.rank = coordinator_->state().cause;
  in_pod_restarts_.reason = order.reason;
}

}  // namespace oarlock::launch
