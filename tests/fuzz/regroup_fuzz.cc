// Lines of the regroup protocol (docs/recovery.md): the messages, a coordinator that receives the reports, and a
// launcher that receives the orders and the requests of its ranks. The first byte is the size of the pieces in which a
// channel receives the lines.
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "recovery/coordinator.h"
#include "recovery/line_channel.h"
#include "recovery/messages.h"
#include "recovery/node_agent.h"
#include "tests/fuzz/input.h"

using namespace oarlock;
using namespace oarlock::recovery;

namespace {

// Returns the lines that a channel reads when `text` arrives in pieces.
std::vector<std::string> receive(std::string_view text, size_t piece) {
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  FileDescriptor sender(ends[0]);
  LineChannel channel(FileDescriptor(ends[1]), kMaxLineLength);
  std::vector<std::string> lines;
  const auto read = [&] {
    for (;;) {
      std::vector<std::string> more = channel.read();
      if (more.empty()) return;
      std::move(more.begin(), more.end(), std::back_inserter(lines));
    }
  };
  for (size_t begin = 0; begin < text.size(); begin += piece) {
    const std::string_view part = text.substr(begin, piece);
    fuzz::require(::send(sender.get(), part.data(), part.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(part.size()));
    read();
  }
  sender.close();
  read();
  fuzz::require(!channel.is_open());
  return lines;
}

template <typename Message, typename Parse>
void require_same(const Message& message, const Parse& parse) {
  const Result<Message> again = parse(to_json(message));
  fuzz::require(again && *again == message);
}

class Launcher {
 public:
  explicit Launcher(RestartPolicy policy) : agent_(options(policy)) { carry_out(agent_.start()); }

  void receive(const Order& order) { carry_out(agent_.received(order)); }
  void receive(const JoinRequest& request) { carry_out(agent_.joined(0, request)); }
  void exit(int code) { carry_out(agent_.exited(1, code)); }

 private:
  static NodeAgentOptions options(RestartPolicy policy) {
    NodeAgentOptions options;
    options.ranks = 2;
    options.policy = policy;
    options.launcher = 7;
    options.store_host = "node0";
    options.store_port = 29500;
    return options;
  }

  void carry_out(const NodeAgent::Actions& actions) {
    for (const NodeAgent::Actions::Send& send : actions.send) require_same(send.command, rank_command_from_json);
    require_same(agent_.report(), node_report_from_json);
  }

  NodeAgent agent_;
};

void decide(Coordinator& coordinator, const NodeReport& report, SteadyTime now) {
  const uint64_t before = coordinator.order().sequence;
  const bool has_changed = coordinator.received(report, now);
  const Order order = coordinator.order();
  fuzz::require(has_changed == (order.sequence != before) && order.sequence >= before);
  require_same(order, order_from_json);
  if (order.kind == OrderKind::kRun) {
    const bool has_two_nodes = order.nodes == std::vector<int>{0, 1};
    fuzz::require(has_two_nodes || order.nodes == std::vector<int>{0});
    fuzz::require(order.members.size() == 2 * order.nodes.size());
  }
  if (const auto at = coordinator.deadline()) coordinator.time_passed(*at);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  const std::vector<std::string> lines = receive(text, std::max<size_t>(text.size(), 1));
  fuzz::require(receive(text, size_t{data[0]} + 1) == lines);

  CoordinatorOptions options;
  options.nodes = 2;
  options.ranks_per_node = 2;
  options.min_nodes = 1;
  options.shrink_after = std::chrono::seconds(1);
  options.max_restarts = 3;
  Coordinator coordinator(options, 9);
  Launcher by_rank(RestartPolicy::kRank);
  Launcher by_group(RestartPolicy::kGroup);
  SteadyTime now{};
  for (const std::string& line : lines) {
    now += std::chrono::seconds(1);
    if (const auto report = node_report_from_json(line)) {
      require_same(*report, node_report_from_json);
      decide(coordinator, *report, now);
      for (const RankReport& rank : report->ranks) by_rank.exit(rank.exit_code);
    }
    if (const auto order = order_from_json(line)) {
      require_same(*order, order_from_json);
      by_rank.receive(*order);
      by_group.receive(*order);
    }
    if (const auto request = join_request_from_json(line)) {
      require_same(*request, join_request_from_json);
      by_rank.receive(*request);
    }
    if (const auto command = rank_command_from_json(line)) require_same(*command, rank_command_from_json);
  }
  return 0;
}
