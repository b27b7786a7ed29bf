#include "tests/support/model/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "operator/core/reconcile.h"
#include "tests/support/builders.h"
#include "tests/support/model/invariants.h"
#include "tests/support/model/moves.h"
#include "tests/support/model/worlds.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT: this file is about its types
using api::Phase;

constexpr uint32_t kNone = UINT32_MAX;
// Flag of State::next_action: the following action of the same batch of creations has been executed already.
constexpr uint16_t kOtherIsDone = 0x100;
// Flag of a view, in addition to the bits of the stale watches.
constexpr uint8_t kRankIsNotPolled = 8;
constexpr int kSettledAfter = 12;  // maximum of consecutive plans without an external change

// The cluster, the operator between two actions of a plan, and an earlier state that stale watches may still show.
struct State {
  uint32_t world = 0;
  uint32_t plan = kNone;  // the plan in execution; kNone: the operator reconciles next
  uint32_t old_world = kNone;
  uint16_t next_action = 0;
  uint16_t faults = 0;

  bool operator==(const State&) const = default;
};

// How a state was reached, for the trace.
struct Step {
  enum class Kind : uint8_t { kStart, kMove, kAct, kDie, kRemember };
  uint32_t from = kNone;
  Kind kind = Kind::kStart;
  uint8_t view = 0;    // of a kAct that starts a plan: bits of the stale watches
  uint16_t index = 0;  // of the move, or of the action
  uint32_t plan = kNone;
};

struct KnownPlan {
  uint32_t job = 0;  // from which the plan was made
  Plan plan;         // without events
};

struct Done {
  uint32_t world = 0;
  bool is_stopped = false;
};

class Search {
 public:
  Search(const ModelOptions& options, std::span<const Policy> policies)
      : options_(options), policies_(policies), worlds_(first(options)) {}

  ModelResult run() {
    add({}, {});
    for (uint32_t i = 0; i < states_.size() && result_.violation.empty() && states_.size() <= options_.max_states;
         ++i) {
      expand(i);
    }
    result_.is_complete = result_.violation.empty() && states_.size() <= options_.max_states;
    if (result_.is_complete) check_worlds();
    result_.states = states_.size();
    result_.worlds = worlds_.size();
    return result_;
  }

 private:
  static SimCluster first(const ModelOptions& options) {
    SimCluster cluster(options.job);
    for (const std::string& name : options.foreign_pods) cluster.add_foreign_pod(name);
    if (options.metrics_peers) cluster.set_metrics_peers(*options.metrics_peers);
    if (options.gangs) cluster.serve_gangs();
    cluster.set_cluster_nodes(options.cluster_nodes);
    if (options.profile) cluster.set_profile(*options.profile);
    if (options.starts_running) start(cluster);
    return {cluster.job(), cluster.objects(), at_second(1000)};
  }

  // Lets the operator create the pods of the job, of which a queue admits as few as it may, and starts them.
  static void start(SimCluster& cluster) {
    const auto reconcile_once = [&] {
      const Observed observed = cluster.observe(cluster.view());
      for (const Action& action : reconcile(observed).actions) cluster.apply(action, observed.job);
    };
    reconcile_once();
    if (cluster.job().status.queue && cluster.admit(cluster.job().spec.elastic->min_nodes)) {
      for (int i = 0; i < 2; ++i) reconcile_once();
    }
    const View created = cluster.view();
    for (const Pod& pod : created.pods) {
      cluster.schedule(pod.name);
      cluster.start(pod.name);
    }
    reconcile_once();
  }

  // ---- The set of states ---------------------------------------------------------------------------------------

  static size_t hash(const State& state) {
    uint64_t h = state.world * 0x9E3779B97F4A7C15ULL;
    h = (h ^ state.plan) * 0xBF58476D1CE4E5B9ULL;
    h = (h ^ state.old_world ^ (static_cast<uint64_t>(state.next_action) << 40U) ^
         (static_cast<uint64_t>(state.faults) << 52U)) *
        0x94D049BB133111EBULL;
    return h ^ (h >> 31U);
  }

  void add(const State& state, const Step& step) {
    if (table_.size() < 2 * (states_.size() + 1)) grow();
    const size_t mask = table_.size() - 1;
    size_t at = hash(state) & mask;
    while (table_[at] != kNone) {
      if (states_[table_[at]] == state) return;
      at = (at + 1) & mask;
    }
    table_[at] = static_cast<uint32_t>(states_.size());
    states_.push_back(state);
    steps_.push_back(step);
    if (state.world >= seen_first_.size()) seen_first_.resize(state.world + 1, kNone);
    if (seen_first_[state.world] == kNone) {
      seen_first_[state.world] = static_cast<uint32_t>(states_.size() - 1);
      note(state.world);
    }
  }

  void grow() {
    table_.assign(std::max<size_t>(1024, table_.size() * 2), kNone);
    const size_t mask = table_.size() - 1;
    for (uint32_t i = 0; i < states_.size(); ++i) {
      size_t at = hash(states_[i]) & mask;
      while (table_[at] != kNone) at = (at + 1) & mask;
      table_[at] = i;
    }
  }

  void note(uint32_t world) {
    const Job& job = worlds_.job(worlds_.at(world).job);
    result_.saw_complete |= job.status.phase == Phase::kComplete;
    result_.saw_failed |= job.status.phase == Phase::kFailed;
    result_.saw_suspended |= job.status.phase == Phase::kSuspended;
    result_.saw_stalled |= job.status.phase == Phase::kStalled;
    result_.saw_deleted |= job.metadata.deletion_timestamp.has_value();
    result_.most_restarts = std::max(result_.most_restarts, job.status.restarts.total);
  }

  void note_active_nodes(const api::Status& was, const api::Status& is) {
    if (!was.elastic || !is.elastic || !is.elastic->active_nodes || was.attempt != is.attempt) return;
    const int before = was.elastic->active_nodes.value_or(was.elastic->nodes);
    const int after = is.elastic->active_nodes.value_or(is.elastic->nodes);
    result_.saw_shrunk |= after < before;
    result_.saw_grown |= after > before;
  }

  // ---- Possible next steps --------------------------------------------------------------------------------------

  void expand(uint32_t index) {
    const State state = states_[index];
    const std::vector<std::pair<Move, uint32_t>>& moves = moves_of(state.world);
    for (size_t i = 0; i < moves.size(); ++i) {
      const bool is_fault = moves[i].first.is_fault();
      if (is_fault && state.faults >= options_.faults) continue;
      State next = state;
      next.world = moves[i].second;
      next.faults = static_cast<uint16_t>(state.faults + (is_fault ? 1 : 0));
      go(next, {index, Step::Kind::kMove, 0, static_cast<uint16_t>(i), kNone});
    }
    if (options_.old_views && state.old_world == kNone && state.faults < options_.faults) {
      State next = state;
      next.old_world = state.world;
      ++next.faults;
      go(next, {index, Step::Kind::kRemember, 0, 0, kNone});
    }
    if (state.plan != kNone) {
      act(index, state, 0);
      State dead = state;
      dead.plan = kNone;
      dead.next_action = 0;
      go(dead, {index, Step::Kind::kDie, 0, 0, kNone});
      return;
    }
    const uint8_t views = state.old_world == kNone ? 1 : 8;
    for (uint8_t view = 0; view < views; ++view) {
      begin_plan(index, state, view);
      if (options_.moves.steps) begin_plan(index, state, view | kRankIsNotPolled);
    }
  }

  void begin_plan(uint32_t index, State state, uint8_t view) {
    state.plan = plan_of(state, view);
    if (view == 0 && is_first_plan_of(state.world)) {
      if (std::string problem = check_plan(plans_[state.plan].plan, worlds_.cluster(state.world)); !problem.empty())
        return fail(index, problem, "");
    }
    if (!plans_[state.plan].plan.actions.empty()) act(index, state, view);
  }

  bool is_first_plan_of(uint32_t world) {
    if (world >= has_checked_plan_.size()) has_checked_plan_.resize(std::max<size_t>(world + 1, 2 * world));
    const bool is_first = !has_checked_plan_[world];
    has_checked_plan_[world] = true;
    return is_first;
  }

  void go(const State& state, const Step& step) {
    ++result_.transitions;
    add(state, step);
  }

  // Executes the next action of the plan. If two pods are created concurrently, either may be the first.
  void act(uint32_t index, const State& state, uint8_t view) {
    const bool other_is_done = (state.next_action & kOtherIsDone) != 0;
    const auto action = static_cast<uint16_t>(state.next_action & ~kOtherIsDone);
    act(index, state, view, action, static_cast<uint16_t>(action + (other_is_done ? 2 : 1)));
    if (!other_is_done && is_batch_of_two(state.plan, action))
      act(index, state, view, static_cast<uint16_t>(action + 1), static_cast<uint16_t>(action | kOtherIsDone));
  }

  void act(uint32_t index, const State& state, uint8_t view, uint16_t action, uint16_t then) {
    const std::optional<Done> done = apply(state.world, state.plan, action);
    if (!done) return fail(index, violation_, text(state.plan, action, view));
    State next = state;
    next.world = done->world;
    next.next_action = then;
    const bool is_last = (then & kOtherIsDone) == 0 && then >= plans_[state.plan].plan.actions.size();
    if (done->is_stopped || is_last) {
      next.plan = kNone;
      next.next_action = 0;
    }
    go(next, {index, Step::Kind::kAct, view, action, state.plan});
  }

  // Batches of creations double (operator/shell/executor.h): of up to three pods, the second and third are created
  // together.
  bool is_batch_of_two(uint32_t plan, uint16_t action) const {
    const std::vector<Action>& actions = plans_[plan].plan.actions;
    const auto is_pod = [&](int at) {
      return at >= 0 && at < static_cast<int>(actions.size()) &&
             std::holds_alternative<CreatePod>(actions[static_cast<size_t>(at)]);
    };
    return is_pod(action) && is_pod(action + 1) && is_pod(action - 1) && !is_pod(action - 2);
  }

  uint32_t plan_of(const State& state, uint8_t view) {
    const World& now = worlds_.at(state.world);
    const World& old = state.old_world == kNone ? now : worlds_.at(state.old_world);
    const uint32_t job = (view & 1U) != 0 ? old.job : now.job;
    const uint32_t pods = (view & 2U) != 0 ? old.objects : now.objects;
    const uint32_t services = (view & 4U) != 0 ? old.objects : now.objects;
    const PollView poll = (view & kRankIsNotPolled) != 0 ? PollView::kNone
                          : (view & 2U) != 0             ? PollView::kStale
                                                         : PollView::kCurrent;
    return plan_for(job, pods, services, poll, worlds_.is_untouched(state.world));
  }

  // `untouched` does not depend on the watches, but on the current state.
  uint32_t plan_for(uint32_t job, uint32_t pods, uint32_t services, PollView poll, bool untouched) {
    const uint64_t key = (static_cast<uint64_t>(job) << 38U) | (static_cast<uint64_t>(pods) << 14U) |
                         (static_cast<uint64_t>(worlds_.service_state(services)) << 3U) | (untouched ? 4 : 0) |
                         static_cast<uint64_t>(poll);
    const auto [it, is_new] = plan_ids_.try_emplace(key, static_cast<uint32_t>(plans_.size()));
    if (!is_new) return it->second;
    Observed observed = worlds_.observe(job, pods, services, poll, untouched);
    Plan plan = reconcile(observed, policies_);
    std::reverse(observed.pods.begin(), observed.pods.end());
    is_deterministic_ = is_deterministic_ && plan == reconcile(observed, policies_);
    std::erase_if(plan.actions, [](const Action& action) { return std::holds_alternative<EmitEvent>(action); });
    plans_.push_back({job, std::move(plan)});
    return it->second;
  }

  // Returns nullopt if the action violates an invariant, which is then in violation_.
  std::optional<Done> apply(uint32_t world, uint32_t plan, uint16_t action) {
    const uint64_t key = (static_cast<uint64_t>(world) << 36U) | (static_cast<uint64_t>(plan) << 8U) | action;
    if (const auto it = outcomes_.find(key); it != outcomes_.end()) return it->second;
    const SimCluster before = worlds_.cluster(world);
    SimCluster after = before;
    const Action& what = plans_[plan].plan.actions[action];
    const Outcome outcome = after.apply(what, worlds_.job(plans_[plan].job));
    violation_ = check_action(what, worlds_.at(world), before, after);
    if (!violation_.empty()) return std::nullopt;
    note_active_nodes(before.job().status, after.job().status);
    result_.saw_disconnected |= replaces_disconnected_pod(what, before);
    const Done out{worlds_.after(world, after), outcome == Outcome::kStopped};
    outcomes_.emplace(key, out);
    return out;
  }

  const std::vector<std::pair<Move, uint32_t>>& moves_of(uint32_t world) {
    if (world >= moves_.size()) moves_.resize(std::max<size_t>(world + 1, 2 * moves_.size()));
    if (moves_[world]) return *moves_[world];
    std::vector<std::pair<Move, uint32_t>> found;
    const SimCluster before = worlds_.cluster(world);
    for (Move& move : moves_in(before, options_.moves)) {
      SimCluster after = before;
      if (!test::apply(move, after)) continue;
      const uint32_t then = worlds_.after(world, after);
      if (then != world) found.emplace_back(std::move(move), then);
    }
    moves_[world] = std::move(found);
    return *moves_[world];
  }

  // ---- Invariants of each state for an operator without stale caches --------------------------------------

  uint32_t fresh_plan(uint32_t world) {
    const World& at = worlds_.at(world);
    return plan_for(at.job, at.objects, at.objects, PollView::kCurrent, worlds_.is_untouched(world));
  }

  // Executes the whole plan; returns kNone if an action violates an invariant.
  uint32_t after_plan(uint32_t world, uint32_t plan) {
    for (uint16_t i = 0; i < plans_[plan].plan.actions.size(); ++i) {
      const std::optional<Done> done = apply(world, plan, i);
      if (!done) return kNone;
      world = done->world;
      if (done->is_stopped) break;
    }
    return world;
  }

  bool is_goal(uint32_t world) {
    const Job& job = worlds_.job(worlds_.at(world).job);
    return is_terminal(job.status.phase) || job.metadata.deletion_timestamp ||
           plans_[fresh_plan(world)].plan.state == PlanState::kBlocked;
  }

  void check_worlds() {
    if (!is_deterministic_) result_.violation = "the plan depends on the order of the pods";
    const size_t count = seen_first_.size();
    std::vector<std::vector<uint32_t>> before(count);
    for (uint32_t world = 0; world < count && result_.violation.empty(); ++world) {
      if (seen_first_[world] == kNone) continue;
      const uint32_t plan = fresh_plan(world);
      if (std::string problem = settle(world); !problem.empty()) return fail(seen_first_[world], problem, "");
      if (std::string problem = check_wake_up(world, plan); !problem.empty())
        return fail(seen_first_[world], problem, "");
      const uint32_t then = after_plan(world, plan);
      if (then < count) before[then].push_back(world);
      for (const auto& [move, next] : moves_of(world)) {
        if (move.is_benign() && next < count) before[next].push_back(world);
      }
    }
    if (result_.violation.empty()) check_reachability(before);
  }

  // Without external changes, the operator must converge to a state in which it has no more actions.
  std::string settle(uint32_t world) {
    for (int round = 0; round < kSettledAfter; ++round) {
      const uint32_t plan = fresh_plan(world);
      if (plans_[plan].plan.actions.empty()) return check_at_rest(worlds_.at(world), worlds_.cluster(world));
      const uint32_t then = after_plan(world, plan);
      if (then == kNone) return violation_;
      if (then == world) return fmt::format("the operator writes at a fixpoint: {}", plans_[plan].plan.reason);
      world = then;
    }
    return "the operator does not converge";
  }

  // A plan that waits for time to pass must set requeue_after.
  std::string check_wake_up(uint32_t world, uint32_t plan) {
    if (!plans_[plan].plan.actions.empty() || plans_[plan].plan.requeue_after) return "";
    for (const auto& [move, next] : moves_of(world)) {
      if (move.kind != Move::Kind::kTick || plans_[fresh_plan(next)].plan.actions.empty()) continue;
      return fmt::format("requeue_after is missing, although there is something to do later: {}",
                         plans_[fresh_plan(next)].plan.reason);
    }
    return "";
  }

  void check_reachability(const std::vector<std::vector<uint32_t>>& before) {
    std::vector<bool> ends(before.size(), false);
    std::vector<uint32_t> queue;
    for (uint32_t world = 0; world < before.size(); ++world) {
      if (seen_first_[world] == kNone || !is_goal(world)) continue;
      ends[world] = true;
      queue.push_back(world);
    }
    while (!queue.empty()) {
      const uint32_t world = queue.back();
      queue.pop_back();
      for (const uint32_t earlier : before[world]) {
        if (ends[earlier]) continue;
        ends[earlier] = true;
        queue.push_back(earlier);
      }
    }
    uint32_t stuck = kNone;  // the first one that was found has the shortest trace
    for (uint32_t world = 0; world < before.size(); ++world) {
      if (seen_first_[world] != kNone && !ends[world] && (stuck == kNone || seen_first_[world] < seen_first_[stuck]))
        stuck = world;
    }
    if (stuck != kNone) fail(seen_first_[stuck], "the job can never finish, even without faults", "");
  }

  // ---- Traces -------------------------------------------------------------------------------------------------

  // Describes one action; for the first action of a plan, also the plan's reason and the stale watches.
  std::string text(uint32_t plan, uint16_t action, uint8_t view) const {
    std::string line = "operator ";
    if (action == 0) {
      line += plans_[plan].plan.reason;
      const char* watches[] = {" job", " pods", " services", " rank 0 not polled"};
      std::string old;
      for (size_t i = 0; i < std::size(watches); ++i) old += (view >> i & 1U) != 0 ? watches[i] : "";
      line += (old.empty() ? "" : " [stale:" + old + "]") + ": ";
    }
    return line + names(plans_[plan].plan).at(action);
  }

  void fail(uint32_t index, const std::string& what, const std::string& last) {
    std::vector<std::string> lines;
    if (!last.empty()) lines.push_back(last);
    for (uint32_t i = index; i != kNone; i = steps_[i].from) lines.push_back(describe(i));
    result_.violation = what;
    for (auto it = lines.rbegin(); it != lines.rend(); ++it) {
      if (!it->empty()) result_.violation += "\n  " + *it;
    }
  }

  std::string describe(uint32_t index) const {
    const Step& step = steps_[index];
    switch (step.kind) {
      case Step::Kind::kStart:
        return "";
      case Step::Kind::kMove:
        return to_string((*moves_[states_[step.from].world])[step.index].first);
      case Step::Kind::kDie:
        return "operator crashes";
      case Step::Kind::kRemember:
        return "(the watches may show this state later)";
      case Step::Kind::kAct:
        return text(step.plan, step.index, step.view);
    }
    return "";
  }

  const ModelOptions options_;
  const std::span<const Policy> policies_;
  Worlds worlds_;
  std::vector<State> states_;
  std::vector<Step> steps_;                                                   // by state: how it was first reached
  std::vector<uint32_t> table_;                                               // open addressing; indices into states_
  std::vector<uint32_t> seen_first_;                                          // by world: its first state
  std::vector<std::optional<std::vector<std::pair<Move, uint32_t>>>> moves_;  // by world
  std::vector<bool> has_checked_plan_;                                        // by world: that of a current view
  std::vector<KnownPlan> plans_;
  std::unordered_map<uint64_t, uint32_t> plan_ids_;
  std::unordered_map<uint64_t, Done> outcomes_;
  bool is_deterministic_ = true;
  std::string violation_;
  ModelResult result_;
};

}  // namespace

ModelResult check_model(const ModelOptions& options, std::span<const Policy> policies) {
  return Search(options, policies).run();
}

}  // namespace oarlock::test
