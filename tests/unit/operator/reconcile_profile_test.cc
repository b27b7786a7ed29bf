// When the profile of a job is recorded, and that a profile which changes or disappears affects no job that runs. The
// job is stored as JSON, as the API server stores it, because the merge with the recorded profile is part of reading
// it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "api/profile.h"
#include "operator/core/desired.h"
#include "operator/core/profile.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class World {
 public:
  explicit World(json spec = json::object()) {
    spec["nodes"] = 1;
    object_ = {{"metadata", {{"name", "bert"}, {"namespace", "team"}, {"uid", kJobUid}, {"generation", 1}}},
               {"spec", std::move(spec)}};
  }

  // Creates the profile, or changes its spec.
  void set_profile(const std::string& spec) {
    if (!profile_) profile_ = api::AppliedProfile{"default", "team", fmt::format("uid-{}", ++profiles_)};
    ++profile_->generation;
    profile_->spec = spec;
  }
  void set_profile_value(int value) {
    set_profile(
        json{{"template",
              {{"spec",
                {{"containers",
                  {{{"name", "trainer"}, {"env", {{{"name", "VALUE"}, {"value", std::to_string(value)}}}}}}}}}}}}
            .dump());
  }
  void delete_profile() { profile_.reset(); }
  void set_queue(const std::string& queue) { object_["metadata"]["labels"] = {{kLabelQueue, queue}}; }
  // The error of the profile that is recorded now, or none.
  void set_template_error(const std::string& error) { template_error_ = error; }
  // The API server has the CRD of an earlier version.
  void set_drops_profile(bool drops_profile) { drops_profile_ = drops_profile; }
  void set_profiles_error(const std::string& error) { profiles_error_ = error; }

  Job job() const { return api::read_training_job(object_); }
  json& spec() { return object_["spec"]; }
  const json& stored_status() const { return object_["status"]; }
  // Reconciles until the object does not change any more, which enqueues the job again. Returns the number of steps.
  int settle() {
    constexpr int kMaxSteps = 20;
    for (int steps = 1; steps < kMaxSteps; ++steps) {
      const json before = object_;
      step();
      if (object_ == before) return steps;
    }
    return kMaxSteps;
  }

  void wait(std::chrono::seconds time) { waited_ += time; }
  // Reconciles once, and applies the patch of the status.
  Plan step(std::vector<Pod> pods = {}) {
    Observed observed = seen(job(), std::move(pods));
    observed.now += waited_ + std::chrono::milliseconds(20 * ++steps_);
    observed.template_error = template_error_;
    if (may_apply_profile(observed.job)) {
      if (profiles_error_.empty()) observed.profile = found(observed.job);
      observed.profiles_error = profiles_error_;
      observed.is_profile_unknown = !profiles_error_.empty() && !api::profile_name(observed.job.spec).empty();
    }
    Plan plan = reconcile(observed);
    for (const PatchStatus& patch : only<PatchStatus>(plan))
      object_.merge_patch({{"status", api::status_patch(observed.job.metadata, patch.status)["status"]}});
    if (drops_profile_) object_["status"].erase("profile");
    return plan;
  }

  // The variable that set_profile_value() sets, in a pod of the present attempt.
  std::string value() const {
    const Job present = job();
    const json container = PodFactory(present, present.status.attempt).pod(0)["spec"]["containers"][0];
    for (const json& variable : container["env"]) {
      if (variable["name"] == "VALUE") return variable["value"];
    }
    return "none";
  }
  std::string reason() const { return condition_of(job().status, job().status.phase).reason; }
  std::string message() const { return condition_of(job().status, job().status.phase).message; }

 private:
  BoxedOptional<api::AppliedProfile> found(const Job& job) const {
    const bool matches = profile_ && profile_->name == api::profile_name(job.spec);
    return matches ? BoxedOptional<api::AppliedProfile>(*profile_) : BoxedOptional<api::AppliedProfile>();
  }

  json object_;
  std::optional<api::AppliedProfile> profile_;
  std::string profiles_error_;
  std::string template_error_;
  bool drops_profile_ = false;
  int profiles_ = 0;
  int steps_ = 0;
  std::chrono::seconds waited_{0};
};

TEST(ReconcileProfile, IsRecordedBeforeTheFirstPod) {
  World world;
  world.set_profile_value(1);
  const Plan plan = world.step();
  EXPECT_THAT(names(plan), Contains("ConfirmPodAbsent bert-0-0")) << "another operator may have created it";
  EXPECT_THAT(names(plan), Not(Contains("CreatePod bert-0-0")));
  EXPECT_EQ(world.job().status.profile->generation, 1);
  EXPECT_EQ(world.value(), "1");
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
}

TEST(ReconcileProfile, JobsWithoutOneStartImmediately) {
  for (const char* opt_out : {"no default", "none"}) {
    World world(std::string_view(opt_out) == "none" ? json{{"profile", ""}} : json::object());
    if (std::string_view(opt_out) == "none") world.set_profile_value(1);
    EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0")) << opt_out;
    EXPECT_FALSE(world.job().status.profile) << opt_out;
  }
}

TEST(ReconcileProfile, ADefaultThatAppearsLaterIsNotAppliedToAStartedJob) {
  World world;
  world.step();
  world.set_profile_value(1);
  world.step({pod(0, 0)});  // before the first status
  world.step({pod(0, 0).running()});
  EXPECT_EQ(world.value(), "none");
  EXPECT_FALSE(world.job().status.profile);
}

TEST(ReconcileProfile, TenChangesDuringRestartsDoNotReachTheJobBeforeItsResume) {
  World world(json{{"failurePolicy", {{"maxRestarts", 100}, {"backoffSeconds", 0}}}});
  world.set_profile_value(0);
  world.step();
  world.step();
  for (int change = 1; change <= 10; ++change) {
    const int attempt = world.job().status.attempt;
    world.step({pod(attempt, 0).running()});
    ASSERT_EQ(world.job().status.phase, Phase::kRunning);
    world.set_profile_value(change);
    if (change == 5) world.delete_profile();
    world.step({pod(attempt, 0).ended(1)});
    ASSERT_EQ(world.job().status.attempt, attempt + 1);
    world.step();  // the operator has crashed before it created the pods
    EXPECT_EQ(world.value(), "0") << "after change " << change;
  }
  world.set_profile_value(11);
  world.spec()["suspend"] = true;
  world.step();
  ASSERT_EQ(world.job().status.phase, Phase::kSuspended);
  EXPECT_EQ(world.value(), "0");
  world.spec()["suspend"] = false;
  world.step();
  EXPECT_EQ(world.value(), "11") << "recorded again";
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-11-0"));
  EXPECT_EQ(world.job().status.phase, Phase::kPending);
}

TEST(ReconcileProfile, AJobCanLeaveItsProfileAtAResume) {
  World world;
  world.set_profile_value(1);
  world.step();
  world.step();
  world.step({pod(0, 0)});
  world.spec()["suspend"] = true;
  world.step();
  world.spec()["profile"] = "";
  world.spec()["suspend"] = false;
  world.step();
  EXPECT_FALSE(world.job().status.profile);
  EXPECT_EQ(world.value(), "none");
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-1-0"));
}

TEST(ReconcileProfile, AMissingProfileIsAwaited) {
  World world(json{{"profile", "default"}});
  EXPECT_THAT(names(world.step()), Contains("EmitEvent ProfileNotFound"));
  EXPECT_EQ(world.job().status.phase, Phase::kPending);
  EXPECT_EQ(world.reason(), api::kProfileNotFound);
  EXPECT_THAT(world.message(), HasSubstr("TrainingProfile default in namespace team"));
  EXPECT_TRUE(world.step().actions.empty()) << "reported once";
  world.set_profile_value(7);
  world.step();
  EXPECT_EQ(world.job().status.phase, Phase::kPending) << "until the profile that was recorded is found to be valid";
  world.step();
  EXPECT_EQ(world.job().status.phase, Phase::kNone) << "as a new job, so that the launcher is decided";
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
  EXPECT_EQ(world.value(), "7");
}

TEST(ReconcileProfile, AMissingProfileDelaysAResume) {
  World world;
  world.spec()["suspend"] = true;
  world.step();
  world.spec()["profile"] = "default";
  world.spec()["suspend"] = false;
  world.step();
  EXPECT_EQ(world.job().status.phase, Phase::kSuspended);
  EXPECT_EQ(world.reason(), api::kProfileNotFound);
  world.set_profile_value(7);
  world.step();
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
}

TEST(ReconcileProfile, AnInvalidProfileIsReportedAndCanBeCorrected) {
  World world;
  world.set_profile(R"({"futureField":1})");
  EXPECT_EQ(world.step().state, PlanState::kBlocked);
  EXPECT_EQ(world.reason(), api::kInvalidProfile);
  EXPECT_THAT(world.message(), HasSubstr("TrainingProfile team/default: spec.futureField"));
  world.set_profile(R"({"failurePolicy":{"maxRestarts":-1}})");  // the merge violates a limit
  world.step();
  world.step();
  EXPECT_EQ(world.reason(), api::kInvalidProfile);
  EXPECT_THAT(world.message(), HasSubstr("spec.failurePolicy.maxRestarts"));
  EXPECT_TRUE(world.step().actions.empty());
  world.set_profile_value(3);
  world.step();
  world.step();
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
  EXPECT_EQ(world.value(), "3");
}

TEST(ReconcileProfile, ABlockedJobIsWrittenOnce) {
  for (const char* queue : {"", "lq"}) {
    for (const bool is_missing : {true, false}) {
      World world(is_missing ? json{{"profile", "missing"}} : json::object());
      if (*queue != '\0') world.set_queue(queue);
      if (!is_missing) world.set_profile(R"({"failurePolicy":{"maxRestarts":-1}})");
      EXPECT_LE(world.settle(), 4) << queue << is_missing;
      EXPECT_EQ(world.reason(), is_missing ? api::kProfileNotFound : api::kInvalidProfile);
    }
  }
}

TEST(ReconcileProfile, AnOlderCrdThatDropsTheProfileIsReportedAndEndsNoLoop) {
  for (const bool is_suspended : {false, true}) {
    World world;
    if (is_suspended) {
      world.spec()["suspend"] = true;
      world.step();
      world.spec()["suspend"] = false;
    }
    world.set_profile_value(1);
    world.set_drops_profile(true);
    EXPECT_LE(world.settle(), 4);
    EXPECT_EQ(world.step().requeue_after, std::chrono::seconds(30)) << "no watch reports a new CRD";
    world.wait(std::chrono::seconds(100));
    EXPECT_EQ(world.step().requeue_after, std::chrono::seconds(100)) << "the delay grows with the time of waiting";
    world.wait(std::chrono::hours(1));
    EXPECT_EQ(world.step().requeue_after, std::chrono::seconds(300));
    EXPECT_EQ(world.job().status.phase, is_suspended ? Phase::kSuspended : Phase::kPending);
    EXPECT_THAT(world.message(), HasSubstr(is_suspended ? "suspend" : "drops status.profile: update the CRDs"));
    world.set_drops_profile(false);
    world.step();
    world.step();
    EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
    EXPECT_EQ(world.value(), "1");
  }
}

// The API server rejects the pods that have the profile.
TEST(ReconcileProfile, ARejectedPodBlocksTheJobUntilTheProfileChanges) {
  for (const char* start : {"new", "queue", "resumed"}) {
    const bool is_resumed = std::string_view(start) == "resumed";
    World world;
    if (std::string_view(start) == "queue") world.set_queue("lq");
    world.set_profile_value(1);
    if (is_resumed) {
      world.step();
      world.step({pod(0, 0)});
      world.spec()["suspend"] = true;
      world.step();
      world.spec()["suspend"] = false;
      world.set_profile_value(2);
    }
    world.settle();
    world.set_template_error("spec.template.spec.tolerations[0].operator: Unsupported value");
    EXPECT_LE(world.settle(), 3) << start;
    EXPECT_EQ(world.job().status.phase, is_resumed ? Phase::kSuspended : Phase::kPending) << start;
    EXPECT_EQ(world.reason(), api::kInvalidProfile);
    EXPECT_THAT(world.message(), AllOf(HasSubstr("spec.tolerations[0].operator: Unsupported value"),
                                       HasSubstr("TrainingProfile team/default")));
    EXPECT_FALSE(world.job().status.queue);
    world.set_profile_value(3);
    world.step();
    world.set_template_error("");  // it concerned the former generation
    world.settle();
    EXPECT_EQ(world.value(), "3") << start;
    if (std::string_view(start) == "queue") continue;  // it waits for its quota
    EXPECT_THAT(names(world.step()), Contains(HasSubstr("CreatePod bert-"))) << start;
  }
}

json large_template() {
  return {{"metadata", {{"annotations", {{"a", std::string(api::kMaxProfileBytes + 1, 'x')}}}}},
          {"spec", {{"containers", {{{"name", "trainer"}, {"command", {"x"}}}}}}}};
}

TEST(ReconcileProfile, AJobThatIsTooLargeForADefaultIsNotLost) {
  for (const char* way_out : {"delete", "suspend"}) {
    World world(json{{"template", large_template()}});
    world.set_profile_value(1);
    world.step();
    world.step();
    EXPECT_EQ(world.job().report.problem, "");
    EXPECT_EQ(world.reason(), api::kInvalidProfile);
    EXPECT_THAT(world.message(),
                AllOf(HasSubstr("spec.template: is not a map of at most 64 KiB"), HasSubstr("oarlock suspend bert")));
    EXPECT_TRUE(world.step().actions.empty()) << "reported once";
    if (std::string_view(way_out) == "delete") {
      world.delete_profile();
    } else {
      world.spec()["suspend"] = true;
      world.step();
      ASSERT_EQ(world.job().status.phase, Phase::kSuspended);
      world.spec()["profile"] = "";
      world.spec()["suspend"] = false;
    }
    world.step();
    EXPECT_THAT(names(world.step()), Contains(HasSubstr("CreatePod bert-"))) << way_out;
    EXPECT_FALSE(world.job().status.profile) << way_out;
  }
}

TEST(ReconcileProfile, NumbersOutOfRangeCanBeCorrected) {
  World world;
  world.set_profile(R"({"resourcesPerNode":{"limits":{"nvidia.com/gpu":100000}},"processesPerNode":"auto"})");
  world.step();
  world.step();
  EXPECT_EQ(world.job().report.problem, "");
  EXPECT_EQ(world.reason(), api::kInvalidProfile);
  world.set_profile(R"({"processesPerNode":99999})");  // the same reason: one write
  EXPECT_EQ(only<PatchStatus>(world.step()).size(), 1U);
  EXPECT_EQ(world.job().status.phase, Phase::kPending) << "it is not known yet whether the profile is valid";
  EXPECT_EQ(world.reason(), api::kInvalidProfile);
  world.step();
  EXPECT_THAT(world.message(), HasSubstr("spec.processesPerNode: 99999"));
  world.set_profile_value(4);
  world.step();
  world.step();
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
  EXPECT_EQ(world.value(), "4");
}

TEST(ReconcileProfile, AJobThatMayHaveADefaultWaitsUntilThatIsKnown) {
  World world;
  world.set_profile_value(1);
  world.set_profiles_error("the server is currently unable to handle the request");
  world.step();
  EXPECT_EQ(world.reason(), api::kProfileNotFound);
  EXPECT_THAT(world.message(), HasSubstr("unable to handle the request"));
  EXPECT_EQ(world.step().requeue_after, std::chrono::seconds(30));
  world.set_profiles_error("");
  world.step();
  world.step();
  EXPECT_THAT(names(world.step()), Contains("CreatePod bert-0-0"));
  EXPECT_EQ(world.value(), "1");
  World without(json{{"profile", ""}});
  without.set_profiles_error("the server is currently unable to handle the request");
  EXPECT_THAT(names(without.step()), Contains("CreatePod bert-0-0"));
}

TEST(ReconcileProfile, AJobThatIsSuspendedAgainAfterABlockedResumeIsSuspended) {
  World world;
  world.spec()["suspend"] = true;
  world.step();
  world.spec()["profile"] = "other";
  world.spec()["suspend"] = false;
  world.step();
  ASSERT_EQ(world.reason(), api::kProfileNotFound);
  world.spec()["suspend"] = true;
  world.step();
  EXPECT_EQ(world.reason(), "Suspended");
  EXPECT_EQ(world.message(), "spec.suspend is true");
  EXPECT_TRUE(world.step().actions.empty());
}

TEST(ReconcileProfile, TheCopyOutlivesLaterPatchesOfTheStatus) {
  World world;
  world.set_profile_value(1);
  world.step();
  const json copy = world.stored_status()["profile"];
  world.step();
  world.step({pod(0, 0).running()});
  world.step({pod(0, 0).ended(0)});
  EXPECT_EQ(world.job().status.phase, Phase::kComplete);
  EXPECT_EQ(world.stored_status()["profile"], copy);
}

}  // namespace
}  // namespace oarlock::test
