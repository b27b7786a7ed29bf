// Runs on a GPU (scripts/bench gpu run): device settings, copies ahead, layout, the NCCL group.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>

#include "trainer/device/batch_feed.h"
#include "trainer/device/device.h"
#include "trainer/device/memory_format.h"
#include "trainer/distributed/process_group.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);

at::TensorOptions on_gpu() { return at::TensorOptions(kGpu).dtype(at::kFloat); }

TEST(SelectDevice, OneDevicePerLocalRank) {
  const Result<SelectedDevice> device = select_device({.kind = DeviceKind::kCuda}, {0, 1});
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(device->device, kGpu);
  EXPECT_EQ(select_device({.kind = DeviceKind::kCuda}, {4096, 4097}).error().code, ExitCode::kUnavailable);
}

TEST(DeviceMemory, FollowsTheTensors) {
  const int64_t before = device_memory(kGpu)->allocated_bytes;
  constexpr int64_t kBytes = 64 << 20;
  const at::Tensor tensor = at::empty({kBytes}, on_gpu().dtype(at::kByte));
  const DeviceMemory memory = *device_memory(kGpu);
  EXPECT_EQ(memory.allocated_bytes - before, kBytes);
  EXPECT_GE(memory.reserved_bytes, memory.allocated_bytes);
  EXPECT_GE(memory.peak_bytes, memory.allocated_bytes);
  EXPECT_FALSE(device_memory(at::kCPU));
}

TEST(MemoryFraction, BeyondItIsOutOfMemory) {
  CudaConfig config;
  config.memory_fraction = 0.01;
  ASSERT_TRUE(configure_device(config, kGpu));
  EXPECT_NO_THROW(at::empty({1 << 20}, on_gpu()));
  EXPECT_THROW(at::empty({int64_t{16} << 30}, on_gpu().dtype(at::kByte)), c10::OutOfMemoryError);
}

// Every batch has other contents, and the memory of the source is overwritten as soon as the feed lets it go, while
// the device is kept busy: a copy that came too late, or memory given out too early, would show.
TEST(BatchFeed, BatchesArriveUnharmedWhileKernelsRun) {
  constexpr int64_t kBatches = 200;
  constexpr int64_t kSize = 1 << 18;
  for (const bool pinned : {false, true}) {
    Batch memory;
    int64_t made = 0;
    const auto source = [&]() -> std::optional<Batch> {
      if (made == kBatches) return std::nullopt;
      memory.pinned = pinned;
      memory.ids = {made};
      memory.allocate("x", {kSize}, at::kFloat).fill_(static_cast<double>(made));
      ++made;
      return memory;
    };
    const at::Tensor busy = at::randn({2048, 2048}, on_gpu());
    const auto feed = make_batch_feed(source, kGpu);
    std::vector<at::Tensor> sums;
    for (int64_t i = 0; i < kBatches; ++i) {
      const std::optional<Batch> batch = feed->next();
      ASSERT_TRUE(batch);
      ASSERT_EQ(batch->ids, std::vector<int64_t>{i});
      ASSERT_EQ((*batch)["x"].device(), kGpu);
      at::mm(busy, busy);
      sums.push_back((*batch)["x"].min().add((*batch)["x"].max()));
    }
    EXPECT_FALSE(feed->next());
    EXPECT_FALSE(feed->next());
    for (int64_t i = 0; i < kBatches; ++i) EXPECT_EQ(sums[static_cast<size_t>(i)].item<double>(), 2.0 * i);
  }
}

TEST(BatchFeed, WhatTheSourceThrowsArrivesInItsPlace) {
  int calls = 0;
  const auto feed = make_batch_feed(
      [&]() -> std::optional<Batch> {
        if (++calls == 3) throw std::runtime_error("row 2 is broken");
        Batch batch;
        batch.tensors["x"] = at::full({4}, calls);
        return batch;
      },
      kGpu);
  EXPECT_TRUE(feed->next());
  EXPECT_TRUE(feed->next());
  EXPECT_THROW(feed->next(), std::runtime_error);
}

TEST(BatchFeed, MayEndEarly) {
  const auto feed = make_batch_feed(
      [] {
        Batch batch;
        batch.tensors["x"] = at::full({1 << 20}, 1.0);
        return std::optional(std::move(batch));
      },
      kGpu);
  EXPECT_TRUE(feed->next());
}

TEST(ChannelsLast, ConvolutionGivesTheSame) {
  torch::manual_seed(1);
  torch::nn::Conv2d plain(torch::nn::Conv2dOptions(16, 32, 3).padding(1));
  plain->to(kGpu);
  torch::nn::Conv2d last(torch::nn::Conv2dOptions(16, 32, 3).padding(1));
  last->to(kGpu);
  {
    const at::NoGradGuard no_grad;
    last->weight.copy_(plain->weight);
    last->bias.copy_(plain->bias);
  }
  to_channels_last(*last);
  EXPECT_TRUE(last->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor x = at::randn({8, 16, 20, 20}, on_gpu());
  const at::Tensor expected = plain->forward(x);
  const at::Tensor got = last->forward(channels_last(x));
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-4));
  got.square().sum().backward();
  expected.square().sum().backward();
  EXPECT_TRUE(at::allclose(last->weight.grad(), plain->weight.grad(), 1e-3, 1e-2));
}

TEST(Nccl, AGroupOfOneGpu) {
  GroupOptions options;
  options.device = kGpu;
  options.timeout = std::chrono::seconds(30);
  Result<RankGroup> group = make_nccl_group(c10::make_intrusive<c10d::HashStore>(), options);
  ASSERT_TRUE(group) << group.error().message;
  std::array<double, 2> values = {1.5, -2};
  group->sum(values);
  EXPECT_EQ(values[0], 1.5);
  EXPECT_EQ(group->gather(7), std::vector<int64_t>{7});
  EXPECT_EQ(group->broadcast("hello"), "hello");
  group->barrier();
}

}  // namespace
}  // namespace oarlock
