// The small parts of `oarlock run`: its directory, the restart rules, programs and cores.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <fstream>

#include "cli/launch/early_failure.h"
#include "cli/run/local_job.h"
#include "cli/run/local_run.h"
#include "cli/run/run_directory.h"
#include "tests/support/flock_error.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::run {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Decision = control::GroupFailure::Decision;

class FixedClock final : public Clock {
 public:
  SystemTime now() const override { return SystemTime(std::chrono::seconds(1'800'000'000)); }
  SteadyTime steady() const override { return {}; }
};
const FixedClock kClock;

TEST(RunDirectory, KeepsUidAndCountsAttempts) {
  const test::TemporaryDirectory directory;
  std::string uid;
  {
    auto run = RunDirectory::open(directory.path(), "job", false, kClock);
    ASSERT_TRUE(run.has_value()) << run.error().message;
    EXPECT_TRUE(run->is_first_attempt());
    EXPECT_EQ(run->begin_attempt().value(), 0);
    EXPECT_EQ(run->begin_attempt().value(), 1);
    EXPECT_EQ(run->checkpoints(), directory.path() / "job" / "checkpoints");
    uid = run->uid();
    EXPECT_EQ(uid.size(), 36u);
  }
  auto again = RunDirectory::open(directory.path(), "job", false, kClock);
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->is_first_attempt());
  EXPECT_EQ(again->uid(), uid);
  EXPECT_EQ(again->begin_attempt().value(), 2);
  EXPECT_EQ(again->moved_to(), std::nullopt);
}

TEST(RunDirectory, AllowsOneRunAtATime) {
  const test::TemporaryDirectory directory;
  const auto first = RunDirectory::open(directory.path(), "job", false, kClock);
  for (const bool fresh : {false, true}) {
    const auto second = RunDirectory::open(directory.path(), "job", fresh, kClock);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, ExitCode::kUnavailable);
    EXPECT_THAT(second.error().message, HasSubstr("a run of 'job' is in progress"));
  }
  EXPECT_TRUE(RunDirectory::open(directory.path(), "other", false, kClock).has_value());
}

TEST(RunDirectory, NamesAFileSystemWithoutLocks) {
  const test::TemporaryDirectory directory;
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    const test::FlockFailure failure(error);
    const auto run = RunDirectory::open(directory.path(), "job", false, kClock);
    ASSERT_FALSE(run.has_value());
    EXPECT_EQ(run.error().code, ExitCode::kUnavailable);
    EXPECT_THAT(run.error().message, HasSubstr("job/lock: the file system does not support locks"));
    EXPECT_THAT(run.error().message, HasSubstr("--workdir"));
  }
  const test::FlockFailure failure(EIO);
  EXPECT_EQ(RunDirectory::open(directory.path(), "job", false, kClock).error().code, ExitCode::kIoErr);
}

TEST(RunDirectory, FreshRenamesEarlierRun) {
  const test::TemporaryDirectory directory;
  std::string uid;
  for (int i = 0; i < 3; ++i) {
    auto run = RunDirectory::open(directory.path(), "job", true, kClock);
    ASSERT_TRUE(run.has_value()) << run.error().message;
    EXPECT_NE(run->uid(), uid);
    EXPECT_EQ(run->begin_attempt().value(), 0);
    uid = run->uid();
    fs::create_directory(run->checkpoints());
    std::ofstream(run->checkpoints() / "mine") << i;
    EXPECT_EQ(run->moved_to().has_value(), i > 0);
    EXPECT_TRUE(i == 0 || fs::exists(*run->moved_to() / "checkpoints" / "mine"));
  }
  EXPECT_TRUE(fs::exists(directory.path() / "job.2027-01-15T080000Z"));
  EXPECT_TRUE(fs::exists(directory.path() / "job.2027-01-15T080000Z-2"));
}

// A rolled-back release must not resume from the checkpoints of one that keeps its state in another file.
TEST(RunDirectory, FreshRenamesCheckpointsWithoutState) {
  const test::TemporaryDirectory directory;
  fs::create_directories(directory.path() / "job" / "checkpoints" / "step-00000010");
  const auto run = RunDirectory::open(directory.path(), "job", true, kClock);
  ASSERT_TRUE(run.has_value()) << run.error().message;
  EXPECT_FALSE(fs::exists(run->checkpoints()));
  EXPECT_TRUE(fs::exists(directory.path() / "job.2027-01-15T080000Z" / "checkpoints" / "step-00000010"));
}

TEST(RunDirectory, RejectsStateOfAnotherForm) {
  const test::TemporaryDirectory directory;
  fs::create_directories(directory.path() / "job");
  for (const char* attempts : {"4294967296", "2147483647", "-1", "1.5", "{}"}) {
    std::ofstream(directory.path() / "job" / "run.json") << R"({"uid": "a", "attempts": )" << attempts << "}";
    const auto run = RunDirectory::open(directory.path(), "job", false, kClock);
    ASSERT_FALSE(run.has_value()) << attempts;
    EXPECT_EQ(run.error().code, ExitCode::kDataErr);
    EXPECT_THAT(run.error().message, HasSubstr("--fresh"));
  }
  fs::remove(directory.path() / "job" / "run.json");
  ASSERT_EQ(::mkfifo((directory.path() / "job" / "run.json").c_str(), 0600), 0);
  EXPECT_EQ(RunDirectory::open(directory.path(), "job", false, kClock).error().code, ExitCode::kNoInput);
}

TEST(RunDirectory, ReportsDamageAndMissingPermissions) {
  const test::TemporaryDirectory directory;
  fs::create_directories(directory.path() / "job");
  std::ofstream(directory.path() / "job" / "run.json") << "{\"uid\": 3";
  const auto damaged = RunDirectory::open(directory.path(), "job", false, kClock);
  ASSERT_FALSE(damaged.has_value());
  EXPECT_EQ(damaged.error().code, ExitCode::kDataErr);
  EXPECT_THAT(damaged.error().message, HasSubstr("--fresh"));
  std::ofstream(directory.path() / "file") << "";
  const auto in_the_way = RunDirectory::open(directory.path() / "file", "job", false, kClock);
  ASSERT_FALSE(in_the_way.has_value());
  EXPECT_EQ(in_the_way.error().code, ExitCode::kCantCreate);
}

api::Status status_with(const api::Restarts& restarts) {
  api::Status status;
  status.restarts = restarts;
  return status;
}

TEST(DecideAfterExit, AppliesOperatorsRules) {
  api::TrainingJob job;
  job.metadata.name = "j";
  job.spec.nodes = 2;
  job.spec.failure_policy.max_restarts = 2;
  const auto decision = [&](int restarts, int exit_code) {
    return decide_after_exit(job, status_with({.charged = restarts}), 1, exit_code, "").decision;
  };
  for (const int permanent : {64, 65, 66, 69, 70, 73, 74, 77, 78})
    EXPECT_EQ(decision(0, permanent), Decision::kFail) << permanent;
  for (const int temporary : {1, 2, 75, 76, 127, 134, 137, 139}) {
    EXPECT_EQ(decision(0, temporary), Decision::kRestart) << temporary;
    EXPECT_EQ(decision(1, temporary), Decision::kRestart) << temporary;
    EXPECT_EQ(decision(2, temporary), Decision::kFail) << temporary;
  }
  EXPECT_EQ(decide_after_exit(job, {}, 0, 78, "").reason, "PermanentFailure");
  EXPECT_EQ(decide_after_exit(job, status_with({.charged = 2}), 0, 1, "").reason, "MaxRestartsExceeded");
}

// The message is that of the rank that failed, which is on any node.
TEST(DecideAfterExit, AppliesTheBudgetOfProgress) {
  api::TrainingJob job;
  job.metadata.name = "j";
  job.spec.nodes = 2;
  job.spec.failure_policy.max_restarts = 1;
  job.spec.failure_policy.max_failures_at_step = 2;
  const auto fail_at = [&](int step, const api::Restarts& restarts) {
    const std::string message =
        fmt::format(R"({{"rank":1,"step":{},"checkpointStep":-1,"reason":"Failed","message":"m"}})", step);
    return decide_after_exit(job, status_with(restarts), 1, 1, message);
  };
  const auto restarts_after = [](const control::GroupFailure& failure) {
    api::Status status;
    control::charge_restart(failure.charge.value(), status);
    return status.restarts;
  };
  const control::GroupFailure at_7 = fail_at(7, {.charged = 1});
  EXPECT_EQ(at_7.decision, Decision::kRestart);
  EXPECT_FALSE(at_7.is_charged());
  EXPECT_EQ(fail_at(7, restarts_after(at_7)).reason, "NoProgress");
  const control::GroupFailure at_0 = fail_at(0, {});
  EXPECT_TRUE(at_0.is_charged());
  EXPECT_EQ(fail_at(0, restarts_after(at_0)).reason, "NoProgress") << "before the first step";
}

// A process that was killed has left no message.
TEST(DecideAfterExit, NewCheckpointIsProgress) {
  api::TrainingJob job;
  job.metadata.name = "j";
  job.spec.failure_policy.max_restarts = 1;
  api::Status status = status_with({.charged = 1, .after_progress = api::AfterProgress{.checkpoint_step = 100}});
  status.highest_progress = api::HighestProgress{.checkpoint_step = 100};
  EXPECT_EQ(decide_after_exit(job, status, 0, 137, "").reason, "MaxRestartsExceeded");
  status.highest_progress->checkpoint_step = 110;
  EXPECT_EQ(decide_after_exit(job, status, 0, 137, "").decision, Decision::kRestart);
}

struct RepeatedCase {
  const char* name;
  launch::RankEnd earlier;
  launch::RankEnd later;
  bool is_repeated;
};

TEST(EarlyFailure, IsRepeatedBySameFailureWithoutProgress) {
  using std::chrono::seconds;
  const launch::RankEnd usage{.rank = 1, .exit_code = 2, .lifetime = seconds(3), .last_line = "error: --dta"};
  const auto changed = [&](auto change) {
    launch::RankEnd end = usage;
    change(end);
    return end;
  };
  const auto with_code = [&](int code) { return changed([code](launch::RankEnd& end) { end.exit_code = code; }); };
  const launch::RankEnd other_rank = changed([](launch::RankEnd& end) { end.rank = 0; });
  const launch::RankEnd other_rank_and_line = changed([](launch::RankEnd& end) {
    end.rank = 0;
    end.last_line = "error: --epochs";
  });
  const launch::RankEnd late = changed([](launch::RankEnd& end) { end.lifetime = seconds(30); });
  const launch::RankEnd saved = changed([](launch::RankEnd& end) { end.has_progress = true; });
  for (const RepeatedCase& row :
       {RepeatedCase{"the same", usage, usage, true}, RepeatedCase{"another rank, one line", usage, other_rank, true},
        RepeatedCase{"another rank and line", usage, other_rank_and_line, false},
        RepeatedCase{"another code", with_code(1), usage, false}, RepeatedCase{"late", late, usage, false},
        RepeatedCase{"late again", usage, late, false}, RepeatedCase{"a checkpoint", saved, usage, false},
        RepeatedCase{"a checkpoint, later", usage, saved, false},
        RepeatedCase{"exception", with_code(1), with_code(1), true},
        RepeatedCase{"no command", with_code(127), with_code(127), true},
        RepeatedCase{"time-out of the rendezvous", with_code(75), with_code(75), false},
        RepeatedCase{"lost rank", with_code(76), with_code(76), false},
        RepeatedCase{"failed GPU", with_code(79), with_code(79), false},
        RepeatedCase{"out of memory", with_code(137), with_code(137), false}})
    EXPECT_EQ(launch::is_repeated(row.earlier, row.later), row.is_repeated) << row.name;
  EXPECT_THAT(launch::describe_repeated("rank 1", usage),
              testing::StartsWith("rank 1 ended with exit code 2 again within 30 s"));
  EXPECT_TRUE(launch::reports_progress(R"({"rank":0,"step":3,"checkpointStep":-1,"reason":"Failed"})"));
  EXPECT_FALSE(launch::reports_progress(R"({"rank":0,"step":0,"checkpointStep":-1,"reason":"Failed"})"));
  EXPECT_FALSE(launch::reports_progress("KeyError: 'labels'"));
}

TEST(FindProgram, SearchesOwnDirectoryThenPath) {
  const test::TemporaryDirectory directory;
  const fs::path directory_of_program = directory.path() / "directory_of_program";
  const fs::path in_path = directory.path() / "in_path";
  for (const fs::path& place : {directory_of_program, in_path}) fs::create_directory(place);
  const auto find = [&](const std::string& name) {
    return find_program({name, "x"}, directory_of_program, "/nowhere:" + in_path.string());
  };
  EXPECT_THAT(find("python3").value(), ElementsAre("python3", "x"));
  const auto nowhere = find("oarlock-trainer");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(nowhere.error().message, HasSubstr(directory_of_program.string()));
  for (const fs::path& place : {in_path, directory_of_program}) {
    std::ofstream(place / "oarlock-trainer") << "";
    fs::permissions(place / "oarlock-trainer", fs::perms::owner_all);
    EXPECT_THAT(find("oarlock-trainer").value(),
                ElementsAre(place == directory_of_program ? (directory_of_program / "oarlock-trainer").string()
                                                          : "oarlock-trainer",
                            "x"));
  }
}

TEST(ShareCores, DividesEquallyAmongNodes) {
  EXPECT_THAT(share_cores({0, 1, 4, 5, 6}, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5, 6)));
  EXPECT_THAT(share_cores({0, 1}, 2), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(share_cores({0, 1}, 3), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_THAT(share_cores({0, 1}, 1), ElementsAre(IsEmpty()));
}

// The first restart is immediate; an attempt that ran for long resets the delay.
TEST(LocalRun, DelaysQuickRestarts) {
  using std::chrono::minutes;
  using std::chrono::seconds;
  api::TrainingJob job;
  job.spec.failure_policy.backoff_seconds = 10;
  EXPECT_EQ(delay_after(job, {seconds(5)}), seconds(0));
  EXPECT_EQ(delay_after(job, {seconds(5), seconds(5)}), seconds(10));
  EXPECT_EQ(delay_after(job, {seconds(5), seconds(5), seconds(5)}), seconds(20));
  EXPECT_EQ(delay_after(job, {seconds(5), minutes(11), seconds(5)}), seconds(0));
}

}  // namespace
}  // namespace oarlock::run
