// Compares DistributedSampler with PyTorch (tests/data/make_sampler_goldens.py), and starts inside an epoch.
#include "ddp/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "tests/support/paths.h"

namespace oarlock {
namespace {

using testing::HasSubstr;

DistributedSampler sampler_of(const SamplerOptions& options) {
  auto sampler = DistributedSampler::create(options);
  EXPECT_TRUE(sampler) << sampler.error().message;
  return *sampler;
}

TEST(Sampler, MatchesPyTorch) {
  const auto text = read_file(test::data_path("sampler_goldens.json"));
  ASSERT_TRUE(text) << text.error().message;
  const auto golden = nlohmann::json::parse(*text);
  ASSERT_GE(golden["cases"].size(), 20U);
  for (const auto& c : golden["cases"]) {
    for (int rank = 0; rank < c["world_size"].get<int>(); ++rank) {
      SCOPED_TRACE(c["size"].dump() + " samples, rank " + std::to_string(rank) + " of " + c["world_size"].dump());
      const auto& expected = c["ranks"][static_cast<size_t>(rank)];
      const DistributedSampler sampler = sampler_of({.size = c["size"],
                                                     .rank = rank,
                                                     .world_size = c["world_size"],
                                                     .seed = c["seed"],
                                                     .shuffle = c["shuffle"],
                                                     .drop_last = c["drop_last"]});
      const std::vector<int64_t> indices = sampler.indices(c["epoch"]);
      EXPECT_EQ(static_cast<int64_t>(indices.size()), expected["count"].get<int64_t>());
      EXPECT_EQ(static_cast<int64_t>(indices.size()), sampler.samples_per_rank());
      if (expected.contains("indices")) {
        EXPECT_EQ(indices, expected["indices"].get<std::vector<int64_t>>());
        continue;
      }
      ASSERT_GE(indices.size(), 20U);
      EXPECT_EQ(std::vector<int64_t>(indices.begin(), indices.begin() + 20),
                expected["head"].get<std::vector<int64_t>>());
      EXPECT_EQ(std::vector<int64_t>(indices.end() - 20, indices.end()), expected["tail"].get<std::vector<int64_t>>());
      int64_t sum = 0;
      for (size_t i = 0; i < indices.size(); ++i) sum += static_cast<int64_t>(i + 1) * indices[i];
      EXPECT_EQ(sum, expected["weighted_sum"].get<int64_t>());
    }
  }
}

// As a data loader of torch::data calls it.
TEST(Sampler, ReturnsBatchesOfTheEpoch) {
  DistributedSampler sampler({.size = 10, .rank = 1, .world_size = 2, .seed = 3});
  EXPECT_FALSE(sampler.next(2)) << "before the first epoch";
  DistributedSampler of_loader = sampler;
  sampler.set_epoch(4);  // reaches the copy
  of_loader.reset();
  std::vector<int64_t> seen;
  std::vector<size_t> sizes;
  while (const auto batch = of_loader.next(2)) {
    sizes.push_back(batch->size());
    seen.insert(seen.end(), batch->begin(), batch->end());
  }
  EXPECT_EQ(seen, sampler.indices(4));
  EXPECT_THAT(sizes, testing::ElementsAre(2, 2, 1));
  EXPECT_THROW(of_loader.reset(11), ErrorException);
}

std::string saved(const DistributedSampler& sampler) {
  std::stringstream file;
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  archive.save_to(file);
  return file.str();
}

void load(DistributedSampler& sampler, const std::string& text) {
  std::stringstream file(text);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  sampler.load(archive);
}

TEST(Sampler, LoadsItsPosition) {
  DistributedSampler sampler({.size = 10, .rank = 0, .world_size = 2, .seed = 3});
  sampler.set_epoch(2);
  sampler.reset();
  (void)sampler.next(3);
  DistributedSampler resumed({.size = 10, .rank = 0, .world_size = 2, .seed = 3});
  load(resumed, saved(sampler));
  EXPECT_EQ(resumed.next(5), sampler.next(5));
}

// A dataset whose sample is its index.
struct Indices : torch::data::datasets::BatchDataset<Indices, std::vector<int64_t>> {
  std::vector<int64_t> get_batch(at::ArrayRef<size_t> request) override { return {request.begin(), request.end()}; }
  std::optional<size_t> size() const override { return 11; }
};

constexpr SamplerOptions kElevenOnTwo{.size = 11, .rank = 1, .world_size = 2, .seed = 3};

TEST(Sampler, DataLoaderContinuesWithinAnEpoch) {
  DistributedSampler sampler(kElevenOnTwo);
  std::string state;
  const std::vector<int64_t> whole = sampler.indices(5);
  std::vector<int64_t> seen;
  {
    sampler.set_epoch(5);
    const auto loader = torch::data::make_data_loader(Indices(), sampler, torch::data::DataLoaderOptions(2));
    auto batch = loader->begin();
    seen.insert(seen.end(), batch->begin(), batch->end());
    ++batch;
    seen.insert(seen.end(), batch->begin(), batch->end());
    state = saved(sampler);
  }
  DistributedSampler resumed(kElevenOnTwo);
  load(resumed, state);
  EXPECT_EQ(resumed.epoch(), 5);
  const auto loader = torch::data::make_data_loader(Indices(), resumed, torch::data::DataLoaderOptions(2));
  for (int64_t epoch = resumed.epoch(); epoch < 7; ++epoch) {
    resumed.set_epoch(epoch);
    for (const auto& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
    EXPECT_EQ(seen, epoch == 5 ? whole : sampler.indices(epoch));
    seen.clear();
  }
}

TEST(Sampler, LoadsPositionOfOtherWorldSize) {
  DistributedSampler sampler(kElevenOnTwo);
  sampler.reset();
  (void)sampler.next(2);
  DistributedSampler alone({.size = 11, .seed = 3});
  load(alone, saved(sampler));
  const auto rest = alone.next(11);
  ASSERT_TRUE(rest);
  EXPECT_THAT(std::vector<int64_t>(rest->begin(), rest->end()), testing::ElementsAreArray(alone.indices(0, 4)));
}

TEST(Sampler, ResetAfterLoadBeginsAnotherEpoch) {
  DistributedSampler sampler(kElevenOnTwo);
  sampler.reset();
  (void)sampler.next(2);
  DistributedSampler resumed(kElevenOnTwo);
  load(resumed, saved(sampler));
  resumed.set_epoch(1);
  resumed.reset();
  EXPECT_EQ(resumed.next(11)->size(), resumed.indices(1).size());
  resumed.set_epoch(1, /*start=*/4);
  resumed.reset();
  EXPECT_EQ(resumed.next(11)->size(), resumed.indices(1, 4).size());
  resumed.reset();
  EXPECT_EQ(resumed.next(11)->size(), resumed.indices(1).size()) << "the start is that of one reset()";
}

TEST(Sampler, SelectedStartReplacesTheLoadedPosition) {
  const SamplerOptions options{.size = 16, .rank = 0, .world_size = 2, .shuffle = false};
  DistributedSampler sampler(options);
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(4);  // a loader has prefetched more than the program has consumed
  DistributedSampler resumed(options);
  load(resumed, saved(sampler));
  resumed.set_epoch(3, 4);
  DistributedSampler pending(options);
  load(pending, saved(resumed));
  for (DistributedSampler* one : {&resumed, &pending}) {
    one->reset();
    EXPECT_EQ(one->next(2), (std::vector<size_t>{4, 6}));
    one->set_epoch(4);
    one->reset();
    EXPECT_EQ(one->next(1), (std::vector<size_t>{0})) << "the start is that of one epoch";
  }
}

TEST(Sampler, StartsInsideAnEpoch) {
  for (const bool drop_last : {false, true}) {
    for (const int64_t size : {1, 5, 12, 103}) {
      for (int rank = 0; rank < 4; ++rank) {
        const auto sampler =
            sampler_of({.size = size, .rank = rank, .world_size = 4, .seed = 3, .drop_last = drop_last});
        const std::vector<int64_t> whole = sampler.indices(2);
        for (size_t done = 0; done <= whole.size(); ++done) {
          const auto start = static_cast<int64_t>(done) * 4;
          EXPECT_EQ(sampler.indices(2, start),
                    std::vector<int64_t>(whole.begin() + static_cast<long>(done), whole.end()));
          EXPECT_EQ(sampler.samples_per_rank(start), static_cast<int64_t>(whole.size() - done));
        }
      }
    }
  }
}

// Of 103 samples, 4 ranks consume 10 each, then 3 ranks resume. Together they receive every sample, and repeat only
// padding.
TEST(Sampler, ResumesWithAnotherWorldSize) {
  std::multiset<int64_t> seen;
  for (int rank = 0; rank < 4; ++rank) {
    const auto indices = sampler_of({.size = 103, .rank = rank, .world_size = 4}).indices(0);
    seen.insert(indices.begin(), indices.begin() + 10);
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto indices = sampler_of({.size = 103, .rank = rank, .world_size = 3}).indices(0, 40);
    EXPECT_EQ(indices.size(), 21U);
    seen.insert(indices.begin(), indices.end());
  }
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 103U);
  EXPECT_EQ(seen.size(), 103U);  // 63 were left, and 3 divides them
}

TEST(Sampler, RejectsInvalidOptions) {
  const auto rank = DistributedSampler::create({.size = 10, .rank = 2, .world_size = 2});
  ASSERT_FALSE(rank);
  EXPECT_EQ(rank.error().code, ExitCode::kConfig);
  EXPECT_THAT(rank.error().message, HasSubstr("rank 2 is not in [0, world_size) for world_size 2"));
  const auto empty = DistributedSampler::create({.size = 0});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ExitCode::kDataErr);
}

}  // namespace
}  // namespace oarlock
