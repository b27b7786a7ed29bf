#include "kube/client/work_queue.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::Eq;

const ObjectKey kA{"ns", "a"};
const ObjectKey kB{"ns", "b"};

class QueueStateTest : public ::testing::Test {
 protected:
  SteadyTime at(std::chrono::milliseconds passed) const { return SteadyTime(1h) + passed; }
  QueueState queue_{QueueState::Options{}};
};

TEST_F(QueueStateTest, ReturnsKeysInOrder) {
  queue_.add(kB, at(0ms));
  queue_.add(kA, at(0ms));
  EXPECT_EQ(queue_.get(at(0ms)), kB);
  EXPECT_EQ(queue_.get(at(0ms)), kA);
  EXPECT_EQ(queue_.get(at(0ms)), std::nullopt);
}

TEST_F(QueueStateTest, ServesNamespacesInTurn) {
  for (int i = 0; i < 1000; ++i) queue_.add({"crowded", std::to_string(i)}, at(0ms));
  queue_.add(kB, at(0ms));
  queue_.add(kA, at(0ms));
  std::vector<ObjectKey> order;
  while (const std::optional<ObjectKey> key = queue_.get(at(0ms))) {
    order.push_back(*key);
    queue_.done(*key, at(0ms));
  }
  ASSERT_EQ(order.size(), 1002u);
  EXPECT_EQ(order[1], kB);
  EXPECT_EQ(order[3], kA);
  EXPECT_EQ(order[0].name, "0");
  EXPECT_EQ(order[2].name, "1");
  EXPECT_EQ(order.back().name, "999");
}

// A key that is added repeatedly does not overtake the others.
TEST_F(QueueStateTest, ReaddedKeyWaitsForItsTurn) {
  queue_.add(kA, at(0ms));
  queue_.add({"other", "x"}, at(0ms));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(queue_.get(at(0ms)), kA);
    queue_.add(kA, at(0ms));
    queue_.done(kA, at(0ms));
    ASSERT_EQ(queue_.get(at(0ms)), (ObjectKey{"other", "x"}));
    queue_.add({"other", "x"}, at(0ms));
    queue_.done({"other", "x"}, at(0ms));
  }
  EXPECT_EQ(queue_.depth(), 2U);
}

TEST_F(QueueStateTest, ProcessesAKeyOnceForManyAdds) {
  for (int i = 0; i < 5; ++i) queue_.add(kA, at(0ms));
  EXPECT_EQ(queue_.depth(), 1U);
  EXPECT_EQ(queue_.get(at(0ms)), kA);
  EXPECT_EQ(queue_.get(at(0ms)), std::nullopt);
}

TEST_F(QueueStateTest, RequeuesAKeyAddedDuringProcessing) {
  queue_.add(kA, at(0ms));
  ASSERT_EQ(queue_.get(at(0ms)), kA);
  queue_.add(kA, at(1ms));
  queue_.add(kA, at(2ms));
  EXPECT_EQ(queue_.get(at(3ms)), std::nullopt);
  queue_.done(kA, at(4ms));
  EXPECT_EQ(queue_.get(at(4ms)), kA);
  queue_.done(kA, at(5ms));
  EXPECT_EQ(queue_.get(at(5ms)), std::nullopt);
}

TEST_F(QueueStateTest, ProgressResetsTheLongestRunningTime) {
  queue_.add(kA, at(0ms));
  queue_.add(kB, at(0ms));
  ASSERT_EQ(queue_.get(at(0ms)), kA);
  ASSERT_EQ(queue_.get(at(0ms)), kB);
  queue_.report_progress(kA, at(400s));
  EXPECT_EQ(queue_.longest_running(at(500s)), 500s);
  queue_.done(kB, at(500s));
  EXPECT_EQ(queue_.longest_running(at(500s)), 100s);
  EXPECT_EQ(queue_.unfinished_work(at(500s)), 500s) << "the whole time of the work counts";
  queue_.done(kA, at(500s));
  queue_.report_progress(kA, at(500s));
  EXPECT_EQ(queue_.longest_running(at(900s)), 0s) << "progress without processing has no effect";
}

TEST_F(QueueStateTest, DelayedAddKeepsTheEarlierTime) {
  queue_.add_after(kA, 100ms, at(0ms));
  queue_.add_after(kA, 500ms, at(0ms));
  EXPECT_EQ(queue_.get(at(99ms)), std::nullopt);
  EXPECT_EQ(queue_.get(at(100ms)), kA);
  queue_.done(kA, at(100ms));
  EXPECT_EQ(queue_.get(at(500ms)), std::nullopt);  // the later time was dropped

  queue_.add_after(kA, 500ms, at(1000ms));
  queue_.add_after(kA, 100ms, at(1000ms));
  EXPECT_EQ(queue_.next_due(), at(1100ms));
  EXPECT_EQ(queue_.get(at(1100ms)), kA);
  queue_.done(kA, at(1100ms));
  EXPECT_EQ(queue_.get(at(1500ms)), std::nullopt);
}

// Each event of a job may request an earlier time than the previous one.
TEST_F(QueueStateTest, EarlierTimeReplacesTheLaterOne) {
  for (int i = 0; i < 10000; ++i) {
    queue_.add_after(kA, std::chrono::milliseconds(100000 - i), at(0ms));
    queue_.add_after(kB, std::chrono::milliseconds(100000 + i), at(0ms));
  }
  EXPECT_EQ(queue_.delayed(), 2U);
  EXPECT_EQ(queue_.next_due(), at(90001ms));
  EXPECT_EQ(queue_.get(at(90001ms)), kA);
  EXPECT_EQ(queue_.delayed(), 1U);
  EXPECT_EQ(queue_.get(at(100000ms)), kB);
  EXPECT_EQ(queue_.delayed(), 0U);
  EXPECT_EQ(queue_.next_due(), std::nullopt);
}

TEST_F(QueueStateTest, CancelsDelayedAdd) {
  queue_.add_after(kA, 1000ms, at(0ms));
  queue_.add_after(kB, 2000ms, at(0ms));
  queue_.cancel_delayed(kA);
  queue_.cancel_delayed(kA);
  EXPECT_EQ(queue_.delayed(), 1U);
  EXPECT_EQ(queue_.get(at(1000ms)), std::nullopt);
  queue_.add_after(kA, 1500ms, at(1000ms));
  EXPECT_EQ(queue_.get(at(2000ms)), kB);
  EXPECT_EQ(queue_.get(at(2500ms)), kA);
}

TEST_F(QueueStateTest, ZeroDelayAddsImmediately) {
  queue_.add_after(kA, 0ms, at(0ms));
  EXPECT_EQ(queue_.get(at(0ms)), kA);
}

TEST_F(QueueStateTest, BackoffDoublesUpToTheMaximum) {
  std::vector<int64_t> waits;
  SteadyTime now = at(0ms);
  for (int i = 0; i < 20; ++i) {
    queue_.add_rate_limited(kA, now);
    const auto due = queue_.next_due();
    ASSERT_TRUE(due);
    waits.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(*due - now).count());
    now = *due;
    ASSERT_EQ(queue_.get(now), kA);
    queue_.done(kA, now);
  }
  std::vector<int64_t> expected;
  for (int i = 0; i < 20; ++i) expected.push_back(std::min<int64_t>(int64_t{5} << i, 60'000));
  EXPECT_EQ(waits, expected);
  EXPECT_EQ(queue_.failures(kA), 20);
  EXPECT_EQ(queue_.failures(kB), 0);
  queue_.forget(kA);
  EXPECT_EQ(queue_.failures(kA), 0);
  queue_.add_rate_limited(kA, now);
  EXPECT_EQ(*queue_.next_due() - now, 5ms);
}

TEST_F(QueueStateTest, BackoffDoesNotOverflow) {
  SteadyTime now = at(0ms);
  for (int i = 0; i < 100; ++i) {
    queue_.add_rate_limited(kA, now);
    now = *queue_.next_due();
    ASSERT_EQ(queue_.get(now), kA);
    queue_.done(kA, now);
  }
  queue_.add_rate_limited(kA, now);
  EXPECT_EQ(*queue_.next_due() - now, 60'000ms);
}

TEST_F(QueueStateTest, ShutDownEndsAddsAndGets) {
  queue_.add(kA, at(0ms));
  ASSERT_EQ(queue_.get(at(0ms)), kA);
  queue_.add(kA, at(0ms));
  queue_.add(kB, at(0ms));
  queue_.shut_down();
  queue_.done(kA, at(1ms));
  queue_.add(kB, at(1ms));
  queue_.add_after(kB, 1ms, at(1ms));
  EXPECT_EQ(queue_.get(at(100ms)), std::nullopt);
}

TEST_F(QueueStateTest, MeasuresProcessingTime) {
  queue_.add(kA, at(0ms));
  queue_.add(kB, at(0ms));
  queue_.get(at(0ms));
  queue_.get(at(1000ms));
  EXPECT_EQ(queue_.processing(), 2u);
  EXPECT_DOUBLE_EQ(queue_.unfinished_work(at(2000ms)).count(), 3.0);
  EXPECT_DOUBLE_EQ(queue_.longest_running(at(2000ms)).count(), 2.0);
}

struct Record final : QueueObserver {
  void on_add(size_t depth) override { adds.push_back(depth); }
  void on_get(size_t depth, Seconds waited) override { gets.emplace_back(depth, waited.count()); }
  void on_done(Seconds worked) override { dones.push_back(worked.count()); }
  void on_retry() override { ++retries; }
  std::vector<size_t> adds;
  std::vector<std::pair<size_t, double>> gets;
  std::vector<double> dones;
  int retries = 0;
};

TEST_F(QueueStateTest, NotifiesTheObserver) {
  Record record;
  QueueState queue({}, &record);
  queue.add(kA, at(0ms));
  queue.add(kA, at(10ms));
  queue.add(kB, at(20ms));
  queue.get(at(500ms));
  queue.done(kA, at(750ms));
  queue.add_rate_limited(kA, at(750ms));
  EXPECT_THAT(record.adds, Eq(std::vector<size_t>{1, 2}));
  EXPECT_THAT(record.gets, Eq(std::vector<std::pair<size_t, double>>{{1, 0.5}}));
  EXPECT_THAT(record.dones, Eq(std::vector<double>{0.25}));
  EXPECT_EQ(record.retries, 1);
}

TEST(WorkQueue, NeverProcessesAKeyConcurrently) {
  WorkQueue queue({}, std::make_shared<RealClock>());
  constexpr int kKeys = 20;
  std::array<std::atomic<int>, kKeys> inside{};
  std::array<std::atomic<int>, kKeys> done{};
  std::atomic<bool> twice = false;
  std::vector<std::jthread> workers;
  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([&] {
      while (const auto key = queue.get()) {
        const auto index = static_cast<size_t>(std::stoi(key->name));
        if (inside[index]++ != 0) twice = true;
        std::this_thread::yield();
        --inside[index];
        ++done[index];
        queue.done(*key);
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < kKeys; ++i) queue.add({"ns", std::to_string(i)});
  }
  queue.add_after({"ns", "0"}, 1ms);
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  const auto all_done = [&] {
    for (const auto& count : done) {
      if (count == 0) return false;
    }
    return queue.depth() == 0 && queue.unfinished_work().count() == 0;
  };
  while (!all_done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(all_done());
  EXPECT_FALSE(twice);
  queue.shut_down();
}

TEST(WorkQueue, ReturnsADelayedKeyWhileItsWaiterWorks) {
  WorkQueue queue({}, std::make_shared<RealClock>());
  std::promise<void> delayed_came;
  std::promise<void> other_done;
  std::vector<std::jthread> workers;
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&] {
      while (const auto key = queue.get()) {
        if (*key == kB) delayed_came.set_value();
        if (*key == kA) {
          delayed_came.get_future().wait();  // processes its key until the delayed one arrives
          other_done.set_value();
        }
        queue.done(*key);
      }
    });
  }
  queue.add_after(kB, 20ms);
  queue.add(kA);
  other_done.get_future().wait();
  queue.shut_down();
}

TEST(WorkQueue, WakesForADelayedKeyAndForShutDown) {
  WorkQueue queue({}, std::make_shared<RealClock>());
  std::promise<std::optional<ObjectKey>> first;
  std::promise<std::optional<ObjectKey>> second;
  std::jthread worker([&] {
    first.set_value(queue.get());
    queue.done(kA);
    second.set_value(queue.get());
  });
  queue.add_after(kB, 1h);
  queue.add_after(kA, 20ms);  // earlier than the time that the worker waits for
  EXPECT_EQ(first.get_future().get(), kA);
  queue.shut_down();
  EXPECT_EQ(second.get_future().get(), std::nullopt);
}

}  // namespace
}  // namespace oarlock::kube
