// The sequence of batches must not depend on the threads, and the loader must stop at any time.
#include "trainer/data/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "trainer/data/fingerprint.h"

namespace oarlock {
namespace {

std::vector<int64_t> count_to(int64_t n) {
  std::vector<int64_t> indices(static_cast<size_t>(n));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// A batch contains index * 1000 + seed. The batch with `bad_index` throws. Early batches take longer than later ones,
// so that threads finish out of order.
class CountingDataset final : public Dataset {
 public:
  explicit CountingDataset(int64_t bad_index = -1) : bad_index_(bad_index) {}

  int64_t size() const override { return 1000; }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override {
    made_.fetch_add(1);
    for (int64_t spin = (indices.front() * 7919) % 5; spin > 0; --spin) std::this_thread::yield();
    at::Tensor& values = batch.allocate("x", {batch.size()}, at::kLong);
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == bad_index_) throw std::runtime_error("sample " + std::to_string(bad_index_) + " is damaged");
      values.mutable_data_ptr<int64_t>()[i] = indices[i] * 1000 + static_cast<int64_t>(seed);
    }
  }
  int made() const { return made_.load(); }

 private:
  int64_t bad_index_;
  mutable std::atomic<int> made_{0};
};

// Samples of 1 MiB; one of them may be changed.
class LargeSamples final : public Dataset {
 public:
  LargeSamples(int64_t size, int64_t changed) : size_(size), changed_(changed) {}

  int64_t size() const override { return size_; }
  void make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const override {
    constexpr int64_t kBytes = int64_t{1} << 20;
    auto* to = batch.allocate("x", {batch.size(), kBytes}, at::kByte).mutable_data_ptr<uint8_t>();
    std::fill(to, to + batch.size() * kBytes, uint8_t{0});
    for (const int64_t index : indices) {
      to[7] = static_cast<uint8_t>(index == changed_ ? 255 : index);
      to += kBytes;
    }
  }

 private:
  int64_t size_;
  int64_t changed_;
};

TEST(Fingerprint, DependsOnSizeAndSamples) {
  const std::string same = sampled_fingerprint(LargeSamples(12, -1));
  EXPECT_EQ(same.size(), 32U);
  EXPECT_EQ(sampled_fingerprint(LargeSamples(12, -1)), same);
  for (int64_t changed = 0; changed < 12; ++changed)
    EXPECT_NE(sampled_fingerprint(LargeSamples(12, changed)), same) << changed;
  for (const int64_t size : {0, 1, 11, 13}) EXPECT_NE(sampled_fingerprint(LargeSamples(size, -1)), same) << size;
}

TEST(Fingerprint, OfManySamplesIncludesTheFirstAndTheLast) {
  const std::string same = sampled_fingerprint(LargeSamples(100, -1));
  for (const int64_t changed : {0, 99}) EXPECT_NE(sampled_fingerprint(LargeSamples(100, changed)), same) << changed;
}

class LoaderThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, LoaderThreads, testing::Values(0, 1, 3));

TEST_P(LoaderThreads, ReturnsEveryBatchInOrder) {
  const CountingDataset dataset;
  for (const bool drop_last : {false, true}) {
    for (const int64_t samples : {0, 1, 8, 100}) {
      DataLoader loader(dataset, count_to(samples),
                        {.batch_size = 8, .drop_last = drop_last, .threads = GetParam(), .prefetch = 2, .seed = 5});
      int64_t next = 0;
      int64_t batches = 0;
      while (const auto batch = loader.next()) {
        ++batches;
        ASSERT_EQ((*batch)["x"].numel(), batch->size());
        for (int64_t i = 0; i < batch->size(); ++i, ++next) {
          EXPECT_EQ(batch->ids[static_cast<size_t>(i)], next);
          EXPECT_EQ((*batch)["x"].const_data_ptr<int64_t>()[i], next * 1000 + 5);
        }
      }
      EXPECT_EQ(next, drop_last ? samples / 8 * 8 : samples);
      EXPECT_EQ(batches, loader.batches());
      EXPECT_FALSE(loader.next()) << "the end must stay the end";
    }
  }
}

TEST_P(LoaderThreads, RethrowsExceptionAtItsBatch) {
  const CountingDataset dataset(/*bad_index=*/42);
  DataLoader loader(dataset, count_to(100), {.batch_size = 10, .threads = GetParam(), .prefetch = 3});
  for (int64_t good = 0; good < 4; ++good) EXPECT_EQ(loader.next()->ids.front(), good * 10);
  for (int again = 0; again < 2; ++again) {
    try {
      loader.next();
      FAIL() << "must throw";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "sample 42 is damaged");
    }
  }
}

TEST_P(LoaderThreads, StopsInsideAnEpoch) {
  const CountingDataset dataset;
  for (int64_t taken = 0; taken < 20; ++taken) {
    DataLoader loader(dataset, count_to(1000), {.batch_size = 4, .threads = GetParam(), .prefetch = 2});
    for (int64_t i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
  }
}

TEST_P(LoaderThreads, PrefetchIsBounded) {
  const CountingDataset dataset;
  const int capacity = GetParam() * 2;
  for (int64_t taken = 1; taken < 50; ++taken) {
    const int before = dataset.made();
    {
      DataLoader loader(dataset, count_to(1000), {.batch_size = 4, .threads = GetParam(), .prefetch = 2});
      for (int64_t i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
    }
    EXPECT_LE(dataset.made() - before, taken + capacity);
  }
}

TEST_P(LoaderThreads, ResetsAtAnyTime) {
  const CountingDataset dataset;
  DataLoader loader(dataset, count_to(50), {.batch_size = 7, .threads = GetParam(), .prefetch = 2, .seed = 1});
  for (int64_t taken = 0; taken < 9; ++taken) {
    for (int64_t i = 0; i < taken; ++i) loader.next();
    loader.reset(count_to(10 * taken), static_cast<uint64_t>(taken));
    for (int64_t next = 0; const auto batch = loader.next();) {
      for (int64_t i = 0; i < batch->size(); ++i, ++next)
        ASSERT_EQ((*batch)["x"].const_data_ptr<int64_t>()[i], next * 1000 + taken);
      ASSERT_LE(next, 10 * taken);
    }
    EXPECT_EQ(loader.batches(), (10 * taken + 6) / 7);
    loader.reset(count_to(50), 1);
  }
}

TEST_P(LoaderThreads, ResetAfterErrorReturnsEveryBatch) {
  const CountingDataset dataset(/*bad_index=*/42);
  DataLoader loader(dataset, count_to(100), {.batch_size = 10, .threads = GetParam(), .prefetch = 3});
  for (int64_t good = 0; good < 4; ++good) loader.next();
  EXPECT_THROW(loader.next(), std::runtime_error);
  loader.reset(count_to(40), 0);
  for (int64_t good = 0; good < 4; ++good) EXPECT_EQ(loader.next()->ids.front(), good * 10);
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderThreads, ReusesMemoryOfReleasedBatches) {
  const CountingDataset dataset;
  DataLoader loader(dataset, count_to(600), {.batch_size = 6, .threads = GetParam(), .prefetch = 2});
  std::set<const void*> memory;
  for (int epoch = 0; epoch < 3; ++epoch) {
    while (const auto batch = loader.next()) memory.insert((*batch)["x"].const_data_ptr());
    loader.reset(count_to(600), 0);
  }
  // Those that lie ready or are being made, and the one in the consumer's hands.
  EXPECT_LE(memory.size(), static_cast<size_t>(GetParam() * 2 + 2));
}

TEST_P(LoaderThreads, RetainedBatchesNeverChange) {
  const CountingDataset dataset;
  DataLoader loader(dataset, count_to(400), {.batch_size = 4, .threads = GetParam(), .prefetch = 2});
  std::vector<at::Tensor> kept;
  while (const auto batch = loader.next()) {
    if (kept.size() < 50) kept.push_back(batch->ids[0] % 8 == 0 ? (*batch)["x"] : (*batch)["x"].narrow(0, 0, 1));
  }
  ASSERT_EQ(kept.size(), 50U);
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept[i].const_data_ptr<int64_t>()[0], static_cast<int64_t>(i) * 4000);
}

// Two batches can only be created concurrently if two threads run.
class MeetingDataset final : public Dataset {
 public:
  int64_t size() const override { return 2; }
  void make_batch(std::span<const int64_t>, uint64_t, Batch&) const override {
    std::unique_lock lock(mutex_);
    ++present_;
    arrived_.notify_all();
    if (!arrived_.wait_for(lock, std::chrono::seconds(60), [&] { return present_ == 2; })) {
      throw std::runtime_error("the other thread never came");
    }
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  mutable int present_ = 0;
};

TEST(DataLoader, ThreadsRunConcurrently) {
  const MeetingDataset dataset;
  DataLoader loader(dataset, count_to(2), {.batch_size = 1, .threads = 2, .prefetch = 1});
  EXPECT_EQ(loader.next()->ids.front(), 0);
  EXPECT_EQ(loader.next()->ids.front(), 1);
}

bool reaches_prefetched(const DataLoader& loader, int64_t batches) {
  for (int looks = 0; looks < 30'000; ++looks) {
    if (loader.prefetched() == batches) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(DataLoader, CountsPrefetchedBatches) {
  const CountingDataset dataset;
  DataLoader loader(dataset, count_to(100), {.batch_size = 10, .threads = 2, .prefetch = 3});
  EXPECT_EQ(loader.prefetch_capacity(), 6);
  EXPECT_TRUE(reaches_prefetched(loader, 6));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(loader.next());
  EXPECT_EQ(loader.prefetched(), 0);
  loader.reset(count_to(20), 0);
  EXPECT_TRUE(reaches_prefetched(loader, 2));
  EXPECT_EQ(DataLoader(dataset, count_to(100), {.batch_size = 10, .threads = 0}).prefetch_capacity(), 0);
}

TEST(DataLoader, RejectsOptionsOutOfRange) {
  const CountingDataset dataset;
  EXPECT_THROW(DataLoader(dataset, {}, {.batch_size = 0}), std::invalid_argument);
  EXPECT_THROW(DataLoader(dataset, {}, {.batch_size = 1, .threads = -1}), std::invalid_argument);
  EXPECT_THROW(DataLoader(dataset, {}, {.batch_size = 1, .prefetch = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace oarlock
