#include "tests/support/model/regroup_world.h"

#include <algorithm>
#include <type_traits>

namespace oarlock::test::regroup {
namespace {

// Writes the parts of a world that its future depends on. Identifiers are numbered by their first appearance, and
// sequence numbers are relative to the newest one.
class WorldKey {
 public:
  std::string write(const World& world) {
    if (world.coordinator) put(world, *world.coordinator);
    for (const Node& node : world.nodes) put(world, node);
    for (const std::optional<Exile>& exile : world.exiles) {
      put(exile.has_value());
      if (!exile) continue;
      put(world, exile->node);
      if (exile->coordinator) put(world, *exile->coordinator);
    }
    for (const auto& launchers : world.in_training) put_list(launchers);
    put(world.trained_step);
    put_id(world.coordinator_id);
    for (const Process& process : world.processes) put(process);
    for (const auto& [key, ranks] : world.contributions) {
      if (is_past(world, key.first)) continue;
      put_text(key.first);
      put(key.second);
      for (const auto& [rank, state] : ranks) put(rank, state.first, state.second);
    }
    for (const auto& [group, members] : world.met) {
      if (is_past(world, group)) continue;
      put_text(group);
      put_list(members);
    }
    put_text(world.trained_group);
    put(world.trained_generation, world.fence, world.checkpoint, world.faults, world.charged_faults, world.recovered,
        world.has_succeeded, world.has_ended, world.checkpoint_bits, world.smallest_trained, world.has_grown);
    put_id(world.fence_owner);
    return std::move(text_);
  }

 private:
  void put(const World& world, const Coordinator& coordinator) {
    const Coordinator::State& state = coordinator.state();
    put(static_cast<int64_t>(state.kind), state.generation, state.newest_seen, state.donor, state.step,
        state.lost_handovers, state.short_generations, state.leave_at.has_value(), state.form_at.has_value(),
        state.respawn_at.has_value(), state.began_at.has_value(), state.success,
        static_cast<int64_t>(state.sequence - state.form_sequence), state.uncharged, state.formed_at.has_value());
    put(state.group.size());
    for (const int node : state.group) put(node);
    put(state.is_growth, state.known.generation, state.fence);
    put_list(state.known.launchers);
    for (const Coordinator::RankSlot& slot : state.ranks) {
      put(slot.report);
      put(slot.start_failures);
    }
    for (const Coordinator::NodeSlot& slot : state.nodes) {
      put_id(slot.launcher);
      put(age_of_report(world, slot.launcher, slot.sequence), slot.connected, slot.acknowledged, slot.is_expected,
          slot.is_new, slot.member_of);
    }
    for (const uint64_t launcher : state.retired) put_id(launcher);
    for (const auto* list : {&state.members, &state.receivers, &state.kill}) put_list(*list);
  }
  void put(const World& world, const Node& node) {
    put(node.agent.has_value(), node.is_connected);
    if (node.agent) {
      const NodeAgent::State& state = node.agent->state();
      for (const NodeAgent::Slot& slot : state.slots) {
        put(slot.report);
        put(slot.is_stopping, slot.is_abandoned, slot.early_exits);
      }
      for (const uint64_t coordinator : {state.coordinator, state.first_coordinator, state.group_coordinator})
        put_id(coordinator);
      put(age_of_order(world, state.coordinator, state.order_sequence), state.respawns, state.generation, state.forming,
          state.has_ended, state.uncharged, state.is_growth, state.member_of, state.group, state.is_group_known,
          state.fence);
      put_list(state.launchers);
    }
    put(node.reports.size(), node.orders.size());
    for (const NodeReport& report : node.reports) put(world, report);
    for (const Order& order : node.orders) put(world, order);
    put(node.old_report.has_value(), node.old_order.has_value());
    if (node.old_report) put(world, *node.old_report);
    if (node.old_order) put(world, *node.old_order);
  }
  void put(const Process& process) {
    put_id(process.id);
    put(process.rank, process.is_alive, process.is_stopped, process.is_attached, process.has_finished,
        static_cast<int64_t>(process.activity), process.generation, process.donor, process.group_step, process.step,
        process.is_corrupt, process.inbox.size(), process.group_rank, process.group_size, process.bits,
        process.must_leave);
    put_text(process.group);
    for (const RankCommand& command : process.inbox) {
      put(static_cast<int64_t>(command.kind), command.generation, command.donor, command.step, command.rank,
          command.world_size, command.is_growth);
      put_text(command.store_prefix);
    }
  }
  template <typename... Values>
    requires(std::is_arithmetic_v<Values> && ...)
  void put(Values... values) {
    (text_.push_back(static_cast<char>(values)), ...);
  }
  void put_id(uint64_t id) {
    if (id == 0) return put(0);
    put(ids_.try_emplace(id, ids_.size() + 1).first->second);
  }
  void put_text(const std::string& text) { put(texts_.try_emplace(text, texts_.size() + 1).first->second); }
  void put_list(const std::vector<uint64_t>& list) {
    put(list.size());
    for (const uint64_t id : list) put_id(id);
  }
  void put(const RankReport& report) {
    put(static_cast<int64_t>(report.phase), report.generation, report.step, report.exit_code);
    put_id(report.process);
  }
  void put(const World& world, const NodeReport& report) {
    for (const uint64_t id : {report.launcher, report.coordinator, report.first_coordinator}) put_id(id);
    put(age_of_report(world, report.launcher, report.sequence), report.generation, report.uncharged,
        age_of_order(world, report.coordinator, report.order_sequence), report.member_of, report.group, report.fence);
    put_list(report.launchers);
    for (const RankReport& rank : report.ranks) put(rank);
  }
  void put(const World& world, const Order& order) {
    put_id(order.coordinator);
    put(age_of_order(world, order.coordinator, order.sequence), static_cast<int64_t>(order.kind), order.generation,
        order.respawn, order.donor, order.step, order.success, order.uncharged, order.is_growth, order.is_replaced,
        order.nodes.size());
    put_list(order.launchers);
    for (const int node : order.nodes) put(node);
    put_list(order.kill);
    put_list(order.members);
  }
  // Returns whether all members of a group have left it, and none can enter it again.
  static bool is_past(const World& world, const std::string& group) {
    return world.met.contains(group) &&
           std::ranges::find(world.processes, group, &Process::group) == world.processes.end();
  }
  static int64_t age_of_report(const World& world, uint64_t launcher, uint64_t sequence) {
    for (const Node& node : world.nodes) {
      if (launcher_of(node) == launcher) return static_cast<int64_t>(node.agent->state().reports - sequence);
    }
    for (const std::optional<Exile>& exile : world.exiles) {
      if (exile && launcher_of(exile->node) == launcher)
        return static_cast<int64_t>(exile->node.agent->state().reports - sequence);
    }
    return -1;
  }
  static int64_t age_of_order(const World& world, uint64_t coordinator, uint64_t sequence) {
    if (world.coordinator && coordinator == world.coordinator_id)
      return static_cast<int64_t>(world.coordinator->state().sequence - sequence);
    for (const std::optional<Exile>& exile : world.exiles) {
      if (exile && exile->coordinator && coordinator == exile->coordinator_id)
        return static_cast<int64_t>(exile->coordinator->state().sequence - sequence);
    }
    return -1;
  }

  std::string text_;
  std::map<uint64_t, size_t> ids_;
  std::map<std::string, size_t> texts_;
};

}  // namespace

std::string write_key(const World& world) { return WorldKey().write(world); }

}  // namespace oarlock::test::regroup
