// Calls of a task's functions: exceptions that name the function and the samples, and means in place of sums.
#include "trainer/engine/task_call.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <numeric>
#include <stdexcept>

#include "trainer/engine/evaluate.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <typename Throw>
Error error_of(Throw&& throw_it) {
  try {
    call_task(
        [&]() -> int {
          throw_it();
          return 0;
        },
        [] { return std::string("train_step at step 5 (samples 3, 1)"); });
  } catch (const ErrorException& error) {
    return error.error();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(TaskCall, NamesPlaceAndBlamesInput) {
  const Error label = error_of([] { at::cross_entropy_loss(at::zeros({2, 3}), at::full({2}, 7, at::kLong)); });
  EXPECT_EQ(label.code, ExitCode::kDataErr);
  EXPECT_EQ(label.message, "train_step at step 5 (samples 3, 1): Target 7 is out of bounds.");
  const Error script = error_of([] {
    throw std::runtime_error(
        "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call "
        "last):\n  File \"net.py\", line 3\nRuntimeError: shapes [2] and [3] differ\n");
  });
  EXPECT_EQ(script.code, ExitCode::kDataErr);
  EXPECT_THAT(script.message, AllOf(HasSubstr("the TorchScript model failed: RuntimeError: shapes [2] and [3] differ"),
                                    Not(HasSubstr("\n"))));
  const Error other = error_of([] { throw std::runtime_error("a bug"); });
  EXPECT_EQ(other.code, ExitCode::kSoftware);
  EXPECT_EQ(other.message, "train_step at step 5 (samples 3, 1): unexpected exception: a bug");
  const Error lost = error_of([] { throw ErrorException({ExitCode::kPeerLost, "rank 1 was lost"}); });
  EXPECT_EQ(lost.code, ExitCode::kPeerLost);
  EXPECT_EQ(lost.message, "rank 1 was lost");
}

TEST(TaskCall, DescribesSamplesBriefly) {
  Batch batch;
  batch.ids = {7};
  EXPECT_EQ(samples_of(batch), "sample 7");
  batch.ids.resize(20, 1);
  EXPECT_THAT(samples_of(batch), AllOf(HasSubstr("samples 7, 1, "), HasSubstr(" and 4 more")));
}

class Numbers final : public Dataset {
 public:
  int64_t size() const override { return 20; }
  void make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const override {
    auto* to = batch.allocate("x", {std::ssize(indices)}, at::kDouble).mutable_data_ptr<double>();
    for (const int64_t index : indices) *to++ = static_cast<double>(index + 1);
  }
};

Result<void> check(int64_t batch_size, const std::function<double(const at::Tensor&)>& reduce) {
  const Numbers data;
  torch::nn::Module module;
  EvalPass pass;
  pass.batch_size = batch_size;
  pass.data = &data;
  pass.step = [&](torch::nn::Module&, const Batch& batch) {
    return EvalOutput{.sums = {{"loss", reduce(batch["x"])}, {"wrong", 0}}, .rows = {}};
  };
  return reject_means(pass, module, at::kCPU);
}

TEST(EvaluationSums, RejectMeansOverTheBatch) {
  const auto sum = [](const at::Tensor& x) { return x.sum().item<double>(); };
  const auto mean = [](const at::Tensor& x) { return x.mean().item<double>(); };
  EXPECT_TRUE(check(8, sum));
  const Result<void> rejected = check(8, mean);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().code, ExitCode::kConfig);
  EXPECT_THAT(rejected.error().message, AllOf(HasSubstr("4.5 for 'loss' of 8 samples"), HasSubstr("return the sum")));
  EXPECT_TRUE(check(1, mean)) << "the mean of one sample is its sum";
  int calls = 0;
  EXPECT_TRUE(check(8, [&](const at::Tensor& x) { return mean(x) + ++calls; })) << "random results";
}

}  // namespace
}  // namespace oarlock
