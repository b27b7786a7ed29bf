// A run is killed with SIGKILL at a random time, a hundred times, half of them during a save, and restarted each time.
// It ends with the same bits as an uninterrupted run, and no checkpoint is lost or read incompletely.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "tests/integration/trainer/run_support.h"

namespace oarlock {
namespace {

using test::bits_of;
using test::TemporaryDirectory;
using test::TrainerRanks;
using test::undisturbed;
using testing::Each;

constexpr int kKills = 100;
constexpr int kKillsInside = kKills / 5;  // at least so many while a checkpoint is being written
constexpr int kKillsPerJob = 13;

// Everything that a checkpoint can hold, saved every few steps; with evaluations, so that the best moves.
constexpr char kConfig[] =
    "task: tiny\nsteps: 480\nbatch: {size: 16}\ndata: {samples: 192, eval_samples: 33}\noptimizer: {lr: 0.003}\n"
    "ema: {enabled: true, decay: 0.9}\ncheckpoint: {every_steps: 4, every_epochs: 0, keep: 2}\nseed: 3\n";

class KilledJob {
 public:
  KilledJob(int world_size, std::mt19937& random) : world_size_(world_size), random_(random) {}

  // Kills one run of the job. Returns false if it ended before.
  bool live_and_die(bool inside_a_save) {
    const int64_t begun_at = newest_step();
    TrainerRanks ranks(world_size_, options());
    wait_for_saves(ranks, begun_at, static_cast<int>(random_() % 4));
    if (inside_a_save) wait_for_a_save(ranks);
    wait_a_little(inside_a_save ? 4000 : 20000);
    const int victim = static_cast<int>(random_() % static_cast<unsigned>(world_size_));
    ranks.rank(victim).signal(SIGKILL);
    for (int rank = 0; rank < world_size_; ++rank)  // as the launcher does: the others may still wait for the victim
      if (rank != victim) ranks.rank(rank).signal(SIGTERM);
    const std::vector<int> codes = ranks.wait();
    if (is_writing()) ++killed_inside_;
    check_checkpoints(begun_at);
    return std::find(codes.begin(), codes.end(), 128 + SIGKILL) != codes.end();
  }

  std::string finish() {
    TrainerRanks ranks(world_size_, options());
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_FALSE(is_writing());
    return bits_of(directory_.path() / "last");
  }

  int killed_inside() const { return killed_inside_; }

 private:
  test::TrainerOptions options() {
    return {.config = kConfig,
            .arguments = {"--checkpoint-dir", directory_.path().string()},
            .environment = {{"OARLOCK_UID", "job"}, {"OARLOCK_ATTEMPT", std::to_string(attempt_++)}},
            .directory = {}};
  }

  int64_t newest_step() const {
    int64_t newest = -1;
    for (const std::string& name : names())
      if (name.starts_with("step-")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    return newest;
  }
  bool is_writing() const {
    const std::vector<std::string> all = names();
    return std::any_of(all.begin(), all.end(), [](const std::string& name) { return name.starts_with(".writing-"); });
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    std::error_code ignored;
    for (std::filesystem::directory_iterator entry(directory_.path(), ignored), end; !ignored && entry != end;
         entry.increment(ignored))
      out.push_back(entry->path().filename().string());
    return out;
  }

  template <typename Condition>
  void poll(TrainerRanks& ranks, const Condition& condition) const {
    while (!condition() && test::alive(ranks.rank(0).pid()))
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void wait_for_saves(TrainerRanks& ranks, int64_t from, int saves) const {
    poll(ranks, [&] { return newest_step() >= std::max<int64_t>(from, 0) + 4 * saves; });
  }
  // Waits for one completed save first, because files that are being written may be leftovers of a killed run, which
  // the new run removes before.
  void wait_for_a_save(TrainerRanks& ranks) const {
    const int64_t from = newest_step();
    poll(ranks, [&] { return newest_step() > from; });
    poll(ranks, [&] { return is_writing(); });
  }
  // Waits for a random time, so that the kills occur at different points.
  void wait_a_little(unsigned microseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random_() % microseconds);
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  void check_checkpoints(int64_t begun_at) const {
    const auto search = find_latest_checkpoint(directory_.path());
    ASSERT_TRUE(search);
    EXPECT_TRUE(search->skipped.empty()) << search->skipped[0].reason;
    EXPECT_GE(search->step, begun_at) << "a checkpoint was lost";
    EXPECT_EQ(search->step, newest_step());
    const auto best = read_checkpoint(directory_.path() / "best");
    EXPECT_TRUE(best || !std::filesystem::is_symlink(directory_.path() / "best")) << best.error().message;
  }

  TemporaryDirectory directory_;
  int world_size_;
  std::mt19937& random_;
  int attempt_ = 0;
  int killed_inside_ = 0;
};

TEST(KillResume, AHundredKillsChangeNoBit) {
  std::mt19937 random(20261121);  // the same jobs in every run; the instants depend on the machine
  std::map<int, std::string> expected;
  for (const int world_size : {1, 2}) {
    const TemporaryDirectory whole;
    expected[world_size] = undisturbed(world_size, kConfig, whole.path());
  }
  int kills = 0;
  int inside = 0;
  const auto is_enough = [&](int inside_now) { return kills >= kKills && inside_now >= kKillsInside; };
  for (int number = 0; !is_enough(inside); ++number) {
    ASSERT_LT(number, 3 * kKills / kKillsPerJob)
        << "only " << kills << " kills were in time, " << inside << " of them in a save";
    const int world_size = number % 4 == 3 ? 2 : 1;
    KilledJob job(world_size, random);
    for (int life = 0; life < kKillsPerJob && !is_enough(inside + job.killed_inside()); ++life) {
      if (!job.live_and_die(/*inside_a_save=*/life % 2 == 1)) break;
      ++kills;
    }
    EXPECT_EQ(job.finish(), expected[world_size]) << "job " << number << " of " << world_size << " ranks";
    inside += job.killed_inside();
  }
  RecordProperty("inside_a_save", inside);
  std::printf("%d kills, %d of them while a checkpoint was being written\n", kills, inside);
}

}  // namespace
}  // namespace oarlock
