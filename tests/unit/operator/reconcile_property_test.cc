// Random walks of a simulated cluster and an operator that crashes after any prefix of a plan and reads stale caches,
// separately for each kind of object. The invariants are checked against the true state at every write.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <sstream>

#include "operator/core/failure.h"
#include "operator/core/membership.h"
#include "operator/core/reconcile.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"
#include "tests/support/model/bad_node_invariants.h"
#include "tests/support/sim_cluster.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;

constexpr int kWalks = 2000;
constexpr int kSteps = 120;
constexpr int kMemory = 40;  // earlier states that a cache may still show
constexpr int kStallSeconds = 3;
constexpr int kExitCodes[] = {0, 0, 0, 1, 1, 137, 75, 76, 76, 78};

int count_after_progress(const api::Status& status) {
  return status.restarts.after_progress ? status.restarts.after_progress->count : 0;
}

class Walk {
 public:
  explicit Walk(uint32_t seed) : random_(seed), sim_(make_job()) {
    if (chance(20)) sim_.add_foreign_pod("bert-0-0");
    if (chance(20)) sim_.add_foreign_pod("bert-1-0");
    if (chance(30)) sim_.set_metrics_peers("[]");
    sim_.set_cluster_nodes(pick(0, 2));
    remember();
  }

  void run() {
    for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
      if (chance(45)) {
        operate();
      } else {
        move();
      }
      remember();
    }
    if (!::testing::Test::HasFailure()) settle();
  }

  std::string trace() const { return trace_.str(); }
  int restarts() const { return sim_.job().status.restarts.total; }
  Phase phase() const { return sim_.job().status.phase; }
  bool saw_suspension() const { return saw_suspension_; }
  bool saw_stall() const { return saw_stall_; }

 private:
  Job make_job() {
    return JobBuilder()
        .nodes(pick(1, 3))
        .max_restarts(pick(0, 2))
        .suspend(chance(10))
        .stall_seconds(kStallSeconds)
        .avoid_nodes(pick(0, 2))
        .build();
  }

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  void remember() {
    if (has_failure(sim_)) failed_.insert(sim_.job().status.attempt);
    if (has_permanent_failure(sim_)) failed_for_good_.insert(sim_.job().status.attempt);
    memory_.push_back(sim_.view());
    ++newest_;
    if (memory_.size() > static_cast<size_t>(kMemory)) memory_.pop_front();
  }
  // Returns the index into memory_ of a moment; moments that were dropped map to the oldest one.
  const View& moment(int64_t when) const {
    const int64_t oldest = newest_ - static_cast<int64_t>(memory_.size()) + 1;
    return memory_[static_cast<size_t>(std::max(when, oldest) - oldest)];
  }

  // Each watch shows a separate moment, never an earlier one than before, unless the operator was restarted.
  Observed look() {
    for (int64_t* seen : {&job_seen_, &pods_seen_, &services_seen_}) {
      if (chance(60)) *seen = newest_;
      *seen = std::max(*seen, newest_ - pick(0, kMemory));
    }
    View view;
    view.job = moment(job_seen_).job;
    view.pods = moment(pods_seen_).pods;
    view.services = moment(services_seen_).services;
    view.network_policies = moment(services_seen_).network_policies;
    Observed out = sim_.observe(view);
    if (chance(30)) {
      out.progress.emplace();
      out.progress->attempt = pick(0, 2);
      out.progress->step = pick(0, 100);
      out.progress->target_steps = 100;
      out.progress->updated_at = to_rfc3339(sim_.now());
    }
    if (chance(70)) out.last_poll = StatusPoll{sim_.now(), chance(50)};
    if (chance(10)) out.last_error = "pods is forbidden: exceeded quota: q, requested: count/pods=1";
    return out;
  }

  void operate() {
    if (chance(15)) {  // a new process, whose first list may come from a stale API server
      trace_ << "operator starts\n";
      for (int64_t* seen : {&job_seen_, &pods_seen_, &services_seen_}) *seen = newest_ - pick(0, kMemory);
    }
    const Observed observed = look();
    const Plan plan = checked_plan(observed);
    const size_t survive =
        chance(30) ? static_cast<size_t>(pick(0, static_cast<int>(plan.actions.size()))) : plan.actions.size();
    execute(plan, observed, survive);
  }

  Plan checked_plan(const Observed& observed) {
    const Plan plan = reconcile(observed);
    Observed shuffled = observed;
    std::shuffle(shuffled.pods.begin(), shuffled.pods.end(), random_);
    EXPECT_EQ(plan, reconcile(shuffled)) << "the plan depends on the order of the pods";
    EXPECT_LE(only<PatchStatus>(plan).size(), 1U);
    if (plan.state == PlanState::kWait) {
      EXPECT_TRUE(plan.actions.empty()) << plan.reason;
    }
    return plan;
  }

  void execute(const Plan& plan, const Observed& observed, size_t survive) {
    trace_ << to_string(plan.state) << ": " << plan.reason << "\n";
    const std::vector<std::string> actions = names(plan);
    for (size_t i = 0; i < survive; ++i) {
      const SimCluster before = sim_;
      check_intent(plan.actions[i], before);
      const Outcome outcome = sim_.apply(plan.actions[i], observed.job);
      trace_ << "  " << actions[i] << (outcome == Outcome::kStopped ? " -> stopped" : "") << "\n";
      check_effect(before);
      remember();
      if (outcome == Outcome::kStopped) return;
    }
    if (survive < plan.actions.size()) trace_ << "  operator crashes\n";
  }

  // Checks the effect of an action on the true state of the cluster.
  void check_intent(const Action& action, const SimCluster& before) {
    const Job& job = before.job();
    if (const auto* create = std::get_if<CreatePod>(&action)) {
      const bool is_new = !before.pods().contains(create->name);
      if (is_new) {
        const PodIdentity id = parse_pod_name(job, create->name).value();
        EXPECT_EQ(id.attempt, job.status.attempt) << "creates a pod of an earlier attempt";
        EXPECT_LT(id.node_rank, job.spec.nodes);
        EXPECT_FALSE(is_terminal(job.status.phase)) << "creates a pod of a finished job";
        EXPECT_NE(job.status.phase, Phase::kSuspended) << "creates a pod of a suspended job";
        EXPECT_EQ(check_avoidance(*create, before), "");
      }
    }
    if (const auto* remove = std::get_if<DeletePod>(&action)) {
      const auto found = before.pods().find(remove->name);
      if (found == before.pods().end() || found->second.uid != remove->uid) return;
      EXPECT_EQ(found->second.owner_uid, job.metadata.uid) << "deletes a pod of another owner";
      const bool is_changed =
          !remove->resource_version.empty() && remove->resource_version != found->second.resource_version;
      const bool is_current = parse_pod_name(job, remove->name).value().attempt == job.status.attempt;
      const bool is_unplaced = found->second.avoided && !has_node(found->second);  // it is created again
      const bool may = !is_current || is_changed || is_unplaced || is_terminal(job.status.phase) ||
                       job.status.phase == Phase::kSuspended;
      EXPECT_TRUE(may) << "deletes a pod of the running attempt: " << remove->name;
    }
  }

  void check_effect(const SimCluster& before) {
    const api::Status& was = before.job().status;
    const api::Status& is = sim_.job().status;
    if (is_terminal(was.phase)) {
      api::Status frozen = is;
      frozen.observed_generation = was.observed_generation;
      frozen.usage = was.usage;  // of pods that outlive the job
      EXPECT_EQ(was, frozen) << "a terminal status must not change";
    }
    check_usage(was, is);
    EXPECT_GE(is.attempt, was.attempt);
    EXPECT_LE(is.restarts.charged, sim_.job().spec.failure_policy.max_restarts);
    if (is.restarts.total != was.restarts.total) {
      const int charged = is.restarts.charged - was.restarts.charged;
      const bool has_progressed = count_after_progress(is) == count_after_progress(was) + 1;
      EXPECT_TRUE(charged == 1 || (charged == 0 && (!is_running(was.phase) || has_progressed)))
          << "only an incomplete start and a restart after progress are not charged";
      EXPECT_EQ(is.restarts.total, was.restarts.total + 1);
      EXPECT_EQ(is.attempt, was.attempt + 1);
      EXPECT_TRUE(failed_.contains(was.attempt)) << "a restart without a failure";
    } else if (is.attempt != was.attempt) {
      EXPECT_EQ(was.phase, Phase::kSuspended) << "a new attempt without a restart or resume";
    }
    if (is.phase == Phase::kFailed && was.phase != Phase::kFailed) {
      EXPECT_TRUE(failed_.contains(was.attempt)) << "failed without a failure";
      EXPECT_TRUE(failed_for_good_.contains(was.attempt) ||
                  was.restarts.charged == sim_.job().spec.failure_policy.max_restarts ||
                  was.restarts.charged + count_after_progress(was) ==
                      total_restart_limit(sim_.job().spec.failure_policy))
          << "failed too early";
    }
    if (is.phase == Phase::kComplete && was.phase != Phase::kComplete) {
      for (int rank = 0; rank < sim_.job().spec.nodes; ++rank)
        EXPECT_TRUE(succeeded_.contains({was.attempt, rank})) << "rank " << rank;
    }
    if (is.phase != Phase::kNone) {
      EXPECT_NE(find_condition(is, is.phase), nullptr);
      for (const api::Condition& condition : is.conditions) {
        const bool is_stopping = is.phase == Phase::kSuspended && condition.reason == "StoppingPods";
        EXPECT_EQ(condition.status, condition.type == to_string(is.phase) && !is_stopping);
      }
    }
    if (is.phase == Phase::kSuspended) saw_suspension_ = true;
    if (is.phase == Phase::kStalled && was.phase != Phase::kStalled) {
      saw_stall_ = true;
      EXPECT_EQ(was.phase, Phase::kRunning);
      const std::optional<SystemTime>& last = is.progress->last_step_time;
      const int timeout = last ? kStallSeconds : JobBuilder::start_timeout_of(kStallSeconds);
      EXPECT_GE(sim_.now() - last.value_or(is.attempt_start_time.value()), std::chrono::seconds(timeout))
          << "stalled too early";
    }
    if (is.phase == Phase::kRunning && was.phase == Phase::kStalled) {
      EXPECT_TRUE(is.progress->step != was.progress->step || !was.progress->last_step_time)
          << "returned to Running without a step";
    }
  }

  static void check_usage(const api::Status& was, const api::Status& is) {
    const api::Usage before = was.usage.value_or(api::Usage{});
    const api::Usage after = is.usage.value_or(api::Usage{});
    EXPECT_EQ(after.classes.sum(), after.allocated) << "the ledger does not sum";
    for (size_t i = 0; i < kUsageClasses.size(); ++i) {
      const auto one = static_cast<UsageClass>(i);
      EXPECT_GE(after.classes[one], before.classes[one]) << kUsageClasses[i];
    }
    EXPECT_GE(after.queued, before.queued);
    EXPECT_GE(after.until, before.until);
  }

  bool has_failure(const SimCluster& world) const {
    const Job& job = world.job();
    const Membership recorded = classify_objects(world.observe({.job = job, .pods = {}, .services = {}}));
    for (int rank = 0; rank < job.spec.nodes; ++rank) {
      if (is_recorded_finished(recorded, static_cast<size_t>(rank))) continue;
      const auto found = world.pods().find("bert-" + std::to_string(job.status.attempt) + "-" + std::to_string(rank));
      if (found == world.pods().end()) {
        if (is_running(job.status.phase)) return true;
        continue;
      }
      const Pod& pod = found->second;
      if (pod.owner_uid != job.metadata.uid || pod.deleting || (has_ended(pod) && !has_succeeded(pod))) return true;
    }
    return false;
  }

  bool has_permanent_failure(const SimCluster& world) const {
    for (const auto& [name, pod] : world.pods()) {
      // A stopped program may end with any exit code.
      if (pod.trainer && pod.trainer->exit_code == 78 && !pod.deleting &&
          parse_pod_name(world.job(), name).value().attempt == world.job().status.attempt)
        return true;
    }
    return false;
  }

  std::vector<std::string> own_pods() const {
    std::vector<std::string> out;
    for (const auto& [name, pod] : sim_.pods()) {
      if (pod.owner_uid == sim_.job().metadata.uid) out.push_back(name);
    }
    return out;
  }

  void end(const std::string& pod, int exit_code) {
    if (!sim_.end(pod, exit_code)) return;
    trace_ << pod << " exits " << exit_code << "\n";
    const PodIdentity id = parse_pod_name(sim_.job(), pod).value();
    // A pod that exits with 0 because it is being deleted has not completed its training.
    if (exit_code == 0 && !sim_.pods().at(pod).deleting) succeeded_.insert({id.attempt, id.node_rank});
  }

  void move() {
    const std::vector<std::string> pods = own_pods();
    const std::string pod = pods.empty() ? "" : pods[static_cast<size_t>(pick(0, static_cast<int>(pods.size()) - 1))];
    switch (pick(0, 15)) {
      case 0:
      case 1:
      case 2:
        sim_.schedule(pod);
        break;
      case 3:
      case 4:
      case 5:
        sim_.start(pod);
        break;
      case 6:
        sim_.make_ready(pod);
        break;
      case 7:
      case 8:
        end(pod, kExitCodes[static_cast<size_t>(pick(0, std::size(kExitCodes) - 1))]);
        break;
      case 9:
        if (chance(30) && sim_.evict(pod)) trace_ << pod << " evicted\n";
        break;
      case 10:
        if (chance(20) && sim_.request_deletion(pod)) trace_ << pod << " deletion requested\n";
        break;
      case 11:
        if (chance(15) && sim_.remove(pod)) trace_ << pod << " removed\n";
        break;
      case 12:
        stop_deleted_pods(50);
        break;
      case 13:
        sim_.tick(pick(1, 15));
        break;
      case 14:
        if (chance(15)) {
          sim_.set_suspend(!sim_.job().spec.suspend);
          trace_ << "suspend: " << sim_.job().spec.suspend << "\n";
        }
        break;
      default:
        if (chance(10)) sim_.delete_service();
        if (sim_.objects().network_policy && chance(20)) {
          if (chance(50)) {
            sim_.delete_network_policy();
          } else {
            sim_.edit_network_policy();
          }
        }
        break;
    }
  }

  // Pods on a dead node remain.
  void stop_deleted_pods(int percent) {
    for (const std::string& pod : own_pods()) {
      if (sim_.pods().at(pod).deleting && chance(percent)) sim_.remove(pod);
    }
  }

  // From now on there are no faults and the caches are fresh: the job must finish, and then no more writes may follow.
  // Pods that are still Terminating remain so, because their nodes are dead.
  void settle() {
    trace_ << "no more faults\n";
    sim_.set_suspend(false);
    sim_.remove_foreign_pods();
    int still = 0;  // plans since the cluster last changed
    for (int round = 0; round < 300; ++round) {
      const int writes = sim_.writes();
      const Observed observed = sim_.observe(sim_.view());
      const Plan plan = checked_plan(observed);
      execute(plan, observed, plan.actions.size());
      if (::testing::Test::HasFailure()) return;
      ++still;
      // Pods of unknown age are created again with a weaker avoidance immediately, twice.
      ASSERT_TRUE(still <= 8 || plan.actions.empty()) << "the operator does not converge: " << plan.reason;
      if (!plan.actions.empty()) continue;
      still = 0;
      const bool moved = advance();
      if (plan.requeue_after) sim_.tick(static_cast<int>(plan.requeue_after->count()));
      if (sim_.writes() != writes || moved || plan.requeue_after) continue;
      ASSERT_TRUE(is_terminal(sim_.job().status.phase)) << "the cluster does not change any more: " << plan.reason;
      check_end(plan);
      return;
    }
    FAIL() << "the job did not finish in 300 rounds";
  }

  bool advance() {
    bool moved = false;
    for (const std::string& pod : own_pods()) {
      if (parse_pod_name(sim_.job(), pod).value().attempt != sim_.job().status.attempt) continue;
      if (sim_.schedule(pod) || sim_.start(pod)) {
        moved = true;
      } else if (is_running(sim_.job().status.phase) && sim_.pods().at(pod).phase == PodPhase::kRunning &&
                 !sim_.pods().at(pod).deleting) {
        end(pod, 0);
        moved = true;
      }
    }
    return moved;
  }

  void check_end(const Plan& last) {
    EXPECT_EQ(last.state, PlanState::kComplete);
    EXPECT_TRUE(last.actions.empty()) << "writes at a fixpoint";
    for (const auto& [name, pod] : sim_.pods()) {
      const bool holds_a_node = !pod.deleting && !has_ended(pod);
      EXPECT_FALSE(holds_a_node) << name << " still runs for a finished job";
    }
  }

  std::mt19937 random_;
  SimCluster sim_;
  std::deque<View> memory_;
  int64_t newest_ = -1;  // the moment of memory_.back()
  int64_t job_seen_ = 0;
  int64_t pods_seen_ = 0;
  int64_t services_seen_ = 0;
  std::set<std::pair<int, int>> succeeded_;  // attempt and node rank of every pod that ever succeeded
  std::set<int> failed_;                     // attempts of which a pod failed, was being deleted or was lost
  std::set<int> failed_for_good_;            // with a permanent exit code
  bool saw_suspension_ = false;
  bool saw_stall_ = false;
  std::ostringstream trace_;
};

TEST(ReconcileProperty, HoldsOnRandomWalks) {
  int completed = 0;
  int failed = 0;
  int restarted = 0;
  int suspended = 0;
  int stalled = 0;
  for (uint32_t seed = 1; seed <= kWalks; ++seed) {
    Walk walk(seed);
    walk.run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << "\n" << walk.trace();
    completed += walk.phase() == Phase::kComplete ? 1 : 0;
    failed += walk.phase() == Phase::kFailed ? 1 : 0;
    restarted += walk.restarts() > 0 ? 1 : 0;
    suspended += walk.saw_suspension() ? 1 : 0;
    stalled += walk.saw_stall() ? 1 : 0;
  }
  // The walks are meaningful only if they reach all of these states.
  EXPECT_GT(completed, kWalks / 10);
  EXPECT_GT(failed, kWalks / 10);
  EXPECT_GT(restarted, kWalks / 10);
  EXPECT_GT(suspended, kWalks / 20);
  EXPECT_GT(stalled, kWalks / 100);
  RecordProperty("completed", completed);
  RecordProperty("failed", failed);
  RecordProperty("restarted", restarted);
  RecordProperty("suspended", suspended);
  RecordProperty("stalled", stalled);
}

}  // namespace
}  // namespace oarlock::test
