// Device code that runs without a GPU: memory layout, the prefetcher on the CPU, global settings, and rejected
// settings.
#include "trainer/device/device.h"

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include "trainer/device/device_prefetcher.h"
#include "trainer/device/step_graph.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

// A replayed graph whose collective waits for a lost rank never finishes.
TEST(PollUntil, ReturnsWhenDoneAndThrowsAtTimeout) {
  int calls = 0;
  poll_until([&] { return ++calls == 3; }, std::nullopt);
  EXPECT_EQ(calls, 3);
  EXPECT_THROW(poll_until([] { return false; }, std::chrono::milliseconds(5)), c10::DistBackendError);
  EXPECT_NO_THROW(synchronize_device(at::kCPU, std::chrono::milliseconds(0)));
}

TEST(PeakFlops, MatchesDeviceName) {
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", MatmulPrecision::kHalf), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", MatmulPrecision::kHalf), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-40GB", MatmulPrecision::kTf32), 156e12);
  EXPECT_EQ(peak_flops("Tesla T4", MatmulPrecision::kTf32), 8.1e12) << "the device has no TF32";
  EXPECT_EQ(peak_flops("NVIDIA L4", MatmulPrecision::kFloat32), 30.3e12);
  EXPECT_FALSE(peak_flops("NVIDIA L40", MatmulPrecision::kHalf)) << "neither L4 nor L40S";
  EXPECT_FALSE(peak_flops("", MatmulPrecision::kHalf));
}

TEST(ChannelsLast, ConvertsLayoutOfModulesAndKeepsValues) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3).padding(1)),
                              torch::nn::BatchNorm2d(8), torch::nn::Conv2d(8, 2, 1));
  const at::Tensor x = at::randn({3, 4, 6, 7});
  const at::Tensor expected = model->forward(x);
  const auto before = model->parameters();
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : before) values.push_back(parameter.detach().clone());
  to_channels_last(*model);
  const auto after = model->parameters();
  ASSERT_EQ(after.size(), values.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(after[i].is_same(before[i]));
    EXPECT_TRUE(at::equal(after[i], values[i]));
    EXPECT_TRUE(after[i].requires_grad());
    EXPECT_TRUE(after[i].dim() != 4 || after[i].is_contiguous(at::MemoryFormat::ChannelsLast));
  }
  const at::Tensor got = model->forward(channels_last(x));
  EXPECT_TRUE(got.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::allclose(got, expected, 1e-5, 1e-5));
}

TEST(ChannelsLast, SetsStridesOfSingleChannel) {
  const at::Tensor image = at::arange(12.0).view({1, 1, 3, 4});
  const at::Tensor got = channels_last(image);
  EXPECT_EQ(got.strides(), (std::vector<int64_t>{12, 1, 4, 1}));
  EXPECT_TRUE(at::equal(got, image));
}

TEST(ChannelsLast, IgnoresOtherDimensions) {
  const at::Tensor matrix = at::randn({3, 4});
  EXPECT_TRUE(channels_last(matrix).is_same(matrix));
}

BatchSource counting(int batches) {
  return [made = 0, batches]() mutable -> std::optional<Batch> {
    if (made == batches) return std::nullopt;
    Batch batch;
    batch.ids = {made++};
    batch.tensors["image"] = at::randn({1, 3, 4, 5});
    batch.tensors["label"] = at::randn({1, 2});
    return batch;
  };
}

TEST(DevicePrefetcher, PassesBatchesThroughOnCpu) {
  const auto prefetcher = make_device_prefetcher(counting(3), at::kCPU);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(prefetcher->next()->ids, std::vector<int64_t>{i});
  EXPECT_FALSE(prefetcher->next());
}

TEST(DevicePrefetcher, AppliesChannelsLastToImagesOnly) {
  const auto prefetcher = make_device_prefetcher(counting(1), at::kCPU, {.channels_last = true});
  const Batch batch = *prefetcher->next();
  EXPECT_TRUE(batch["image"].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(batch["label"].is_contiguous());
}

TEST(ConfigureDevice, SetsGlobalSwitches) {
  CudaConfig config;
  config.tf32 = true;
  config.deterministic = true;
  ASSERT_TRUE(configure_device(config, at::kCPU));
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
  EXPECT_TRUE(at::globalContext().allowTF32CuDNN());
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  ASSERT_TRUE(configure_device({}, at::kCPU));
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
}

TEST(ConfigureDevice, RejectsGraphsWithoutDevice) {
  CudaConfig config;
  config.graphs = true;
  const Result<void> configured = configure_device(config, at::kCPU);
  ASSERT_FALSE(configured);
  EXPECT_EQ(configured.error().code, ExitCode::kConfig);
  EXPECT_NE(configured.error().message.find("cuda.graphs"), std::string::npos);
  EXPECT_FALSE(make_step_graph(at::kCPU, Logger(LogFormat::kText, LogLevel::kWarn)));
  EXPECT_FALSE(device_memory(at::kCPU));
}

}  // namespace
}  // namespace oarlock
