// Runs on a GPU (scripts/bench gpu run): device settings, memory limit, prefetching, memory layout.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include <chrono>

#include "ddp/library_errors.h"
#include "trainer/checkpoint/async_store.h"
#include "trainer/device/device.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);

at::TensorOptions on_gpu() { return at::TensorOptions(kGpu).dtype(at::kFloat); }

TEST(SelectDevice, AssignsOneDevicePerLocalRank) {
  const Result<SelectedDevice> device = select_device({.kind = DeviceKind::kCuda}, {0, 1});
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(device->device, kGpu);
  EXPECT_EQ(select_device({.kind = DeviceKind::kCuda}, {4096, 4097}).error().code, ExitCode::kUnavailable);
  if (cuda_devices().visible < 2) return;
  EXPECT_EQ(select_device({.kind = DeviceKind::kCuda}, {1, 2})->device, at::Device(at::kCUDA, 1));
  EXPECT_EQ(c10::cuda::current_device(), 1);
  EXPECT_EQ(select_device({.kind = DeviceKind::kCuda, .gpu_ids = {1, 0}}, {1, 2})->device, kGpu);
  EXPECT_EQ(c10::cuda::current_device(), 0);
}

TEST(DeviceMemory, CountsTensors) {
  const int64_t before = device_memory(kGpu)->allocated_bytes;
  constexpr int64_t kBytes = 64 << 20;
  const at::Tensor tensor = at::empty({kBytes}, on_gpu().dtype(at::kByte));
  const DeviceMemory memory = *device_memory(kGpu);
  EXPECT_EQ(memory.allocated_bytes - before, kBytes);
  EXPECT_GE(memory.reserved_bytes, memory.allocated_bytes);
  EXPECT_GE(memory.peak_bytes, memory.allocated_bytes);
  EXPECT_FALSE(device_memory(at::kCPU));
}

// A twentieth of the device's memory: more than the limit below, and less than the free memory of an idle device.
int64_t bytes_above_limit() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t available = 0;
  size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  return static_cast<int64_t>(total / 20);
}

TEST(MemoryFraction, LimitsAllocations) {
  const int64_t bytes = bytes_above_limit();
  EXPECT_NO_THROW(at::empty({bytes}, on_gpu().dtype(at::kByte)));
  c10::cuda::CUDACachingAllocator::emptyCache();
  CudaConfig capped;
  capped.memory_fraction = 0.02;
  ASSERT_TRUE(configure_device(capped, kGpu));
  EXPECT_NO_THROW(at::empty({1 << 20}, on_gpu()));
  const Result<at::Tensor> refused =
      catch_errors([&]() -> Result<at::Tensor> { return at::empty({bytes}, on_gpu().dtype(at::kByte)); });
  ASSERT_TRUE(configure_device({}, kGpu));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::kOsErr);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(testing::HasSubstr("out of device memory"), testing::HasSubstr("cuda.memory_fraction"),
                             testing::Not(testing::HasSubstr("\n"))));
  EXPECT_NO_THROW(at::empty({bytes}, on_gpu().dtype(at::kByte))) << "the limit is removed";
}

// 1 + 2^-12 needs 12 bits of mantissa; TF32 has 10 and rounds it to 1.
constexpr double kFine = 1 + 1.0 / 4096;
constexpr int64_t kSide = 512;  // large enough for tensor cores

at::Tensor product() { return at::mm(at::full({kSide, kSide}, kFine, on_gpu()), at::ones({kSide, kSide}, on_gpu())); }

at::Tensor convolved() {
  return at::conv2d(at::full({8, kSide, 8, 8}, kFine, on_gpu()), at::ones({kSide, kSide, 1, 1}, on_gpu()));
}

bool all_are(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

TEST(Tf32, IsOffByDefault) {
  ASSERT_TRUE(configure_device({}, kGpu));
  EXPECT_TRUE(all_are(product(), kSide * kFine));
  EXPECT_TRUE(all_are(convolved(), kSide * kFine)) << "PyTorch's own default would allow it here";
  CudaConfig config;
  config.tf32 = true;
  ASSERT_TRUE(configure_device(config, kGpu));
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major >= 8) {  // since Ampere
    EXPECT_TRUE(all_are(product(), kSide));
  }
  ASSERT_TRUE(configure_device({}, kGpu));
}

// Every batch has different contents, and the source overwrites its memory as soon as the prefetcher releases it, while
// the device is busy. A late copy, or memory that is reused too early, would change the contents.
TEST(DevicePrefetcher, KeepsContentsWhileKernelsRun) {
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
    const auto prefetcher = make_device_prefetcher(source, kGpu);
    std::vector<at::Tensor> sums;
    for (int64_t i = 0; i < kBatches; ++i) {
      const std::optional<Batch> batch = prefetcher->next();
      ASSERT_TRUE(batch);
      ASSERT_EQ(batch->ids, std::vector<int64_t>{i});
      ASSERT_EQ((*batch)["x"].device(), kGpu);
      at::mm(busy, busy);
      sums.push_back((*batch)["x"].min().add((*batch)["x"].max()));
    }
    EXPECT_FALSE(prefetcher->next());
    EXPECT_FALSE(prefetcher->next());
    for (int64_t i = 0; i < kBatches; ++i) EXPECT_EQ(sums[static_cast<size_t>(i)].item<double>(), 2.0 * i);
  }
}

TEST(DevicePrefetcher, RethrowsExceptionsInOrder) {
  int calls = 0;
  const auto prefetcher = make_device_prefetcher(
      [&]() -> std::optional<Batch> {
        if (++calls == 3) throw std::runtime_error("row 2 is broken");
        Batch batch;
        batch.tensors["x"] = at::full({4}, calls);
        return batch;
      },
      kGpu);
  EXPECT_TRUE(prefetcher->next());
  EXPECT_TRUE(prefetcher->next());
  EXPECT_THROW(prefetcher->next(), std::runtime_error);
}

BatchSource endless() {
  return [] {
    Batch batch;
    batch.tensors["x"] = at::full({1 << 10}, 1.0);
    return std::optional(std::move(batch));
  };
}

// Enqueues some tenths of a second of work.
void keep_busy(int products = 20) {
  const at::Tensor a = at::randn({8192, 8192}, on_gpu());
  for (int i = 0; i < products; ++i) at::mm(a, a);
}

TEST(DevicePrefetcher, LimitsStepsInFlight) {
  constexpr int kDepth = 2;
  const auto prefetcher = make_device_prefetcher(endless(), kGpu, {.depth = kDepth});
  std::vector<at::cuda::CUDAEvent> done;
  for (size_t step = 0; step < 8; ++step) {
    ASSERT_TRUE(prefetcher->next());
    if (step > kDepth) {
      EXPECT_TRUE(done[step - kDepth - 1].query()) << "of step " << step - kDepth - 1 << " when " << step << " begins";
    }
    keep_busy(5);
    done.emplace_back().record();
  }
}

TEST(DevicePrefetcher, ReportsStepWithoutEndAsPeerLost) {
  c10::cuda::device_synchronize();  // the first step would wait for the work of earlier tests
  const auto prefetcher =
      make_device_prefetcher(endless(), kGpu, {.depth = 1, .timeout = std::chrono::milliseconds(20)});
  ASSERT_TRUE(prefetcher->next());
  keep_busy(100);
  ASSERT_TRUE(prefetcher->next());  // one step may be in flight
  const auto taken = catch_errors([&]() -> Result<std::optional<Batch>> { return prefetcher->next(); });
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ExitCode::kPeerLost);
  EXPECT_THAT(taken.error().message, testing::HasSubstr("a collective timed out"));
  c10::cuda::device_synchronize();
}

TEST(DevicePrefetcher, AppliesChannelsLastOnDevice) {
  const auto prefetcher = make_device_prefetcher(
      [] {
        Batch batch;
        batch.tensors["image"] = at::full({2, 3, 4, 5}, 7.0);
        batch.tensors["label"] = at::full({2}, 1.0);
        return std::optional(std::move(batch));
      },
      kGpu, {.channels_last = true});
  const Batch batch = prefetcher->next().value();
  EXPECT_TRUE(batch["image"].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(all_are(batch["image"], 7));
  EXPECT_TRUE(batch["label"].is_contiguous());
}

TEST(DevicePrefetcher, CanBeDestroyedEarly) {
  const auto prefetcher = make_device_prefetcher(
      [] {
        Batch batch;
        batch.tensors["x"] = at::full({1 << 20}, 1.0);
        return std::optional(std::move(batch));
      },
      kGpu);
  EXPECT_TRUE(prefetcher->next());
}

// The copy of a checkpoint is in progress while the next steps run.
TEST(HostCopy, KeepsValuesWhileDeviceContinues) {
  const at::Tensor plain = at::full({1 << 24}, 1.0, on_gpu());
  const at::Tensor image = at::randn({4, 3, 64, 64}, on_gpu()).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor before = image.cpu();
  const at::Tensor mean = at::full({64}, 1.0, on_gpu());  // written in the forward pass
  const TensorSections live = {{"model", {{"image", image}, {"mean", mean}, {"plain", plain}}}};
  HostCopy copy;
  copy.reserve(live);
  for (int round = 1; round <= 3; ++round) {
    keep_busy(5);
    copy.begin(live, {"mean"});
    EXPECT_TRUE(copy.released());
    mean.add_(1);
    copy.wait_for_release();
    plain.add_(1);
    image.zero_();
    copy.finish();
    const TensorMap& held = copy.tensors().at("model");
    EXPECT_TRUE(all_are(held.at("plain"), round));
    EXPECT_TRUE(all_are(held.at("mean"), round));
    EXPECT_TRUE(at::equal(held.at("image"), before));
    EXPECT_TRUE(held.at("plain").is_pinned());
    image.copy_(before);
  }
}

TEST(ChannelsLast, ConvolutionGivesSameResult) {
  ASSERT_TRUE(configure_device({}, kGpu));
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

}  // namespace
}  // namespace oarlock
